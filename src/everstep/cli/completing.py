"""The command that teaches a shell to complete ours."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from everstep.cli.session import options, session

_HOW = {
    "bash": 'eval "$(everstep completion bash)"  in ~/.bashrc',
    "zsh": 'eval "$(everstep completion zsh)"  in ~/.zshrc',
    "fish": "everstep completion fish > ~/.config/fish/completions/everstep.fish",
}


@click.command(epilog="\b\n" + "\n".join(f"{shell}: {how}" for shell, how in _HOW.items()))
@click.argument("shell", type=click.Choice(list(_HOW)))
@options
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that makes a SHELL complete commands, options and the ids of runs."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click {shell} is not known here.")
    made = kind(context.find_root().command, {}, "everstep", "_EVERSTEP_COMPLETE")
    script = made.source_template % made.source_vars()
    output = session().output
    if output.as_json:
        output.data(completion={"shell": shell, "script": script})
    else:
        click.echo(script)

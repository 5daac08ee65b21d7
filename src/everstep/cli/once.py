"""Commands that do not drop an option: one that takes one value is given once."""

from __future__ import annotations

from collections import Counter

import click


class Once(click.Command):
    """A command that refuses a second value for an option of one, where click takes the last and drops the others."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the words of the command line apart."""
        if not ctx.resilient_parsing:  # a shell that completes a line has no use for what is wrong with it
            self._refuse_twice(ctx, args)
        return super().parse_args(ctx, args)

    def _refuse_twice(self, ctx: click.Context, args: list[str]) -> None:
        _, _, given = self.make_parser(ctx).parse_args(list(args))
        for option, times in Counter(given).items():
            if times > 1 and isinstance(option, click.Option) and not (option.multiple or option.is_flag):
                raise click.UsageError(
                    f"{option.opts[0]} is given {times} times, and one of them would count: leave the others out.", ctx
                )

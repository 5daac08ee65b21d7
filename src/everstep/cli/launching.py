"""How this process becomes a program under capture: for every command that does, and `record` straight from its words.

The library that reads command lines takes longer to load than Python does to start, and whoever records a program waits
for it. So the plain form of `record` is read here. All else (other options, what is not right) is left to the command,
which does the same or says what is wrong.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from everstep.capturing.command import ENTRY, HASHES, VARIABLE, parsed
from everstep.cli.project import prices
from everstep.errors import CaptureError
from everstep.trail.naming import DEFAULT, MEMORY, TRAIL, folder_of, is_url, without_password

LEFT_OUT = "The password is left out of what to type: put it into PGPASSWORD or ~/.pgpass."
DURABILITIES = ("sync", "async", "exit")
_OF_A_RUN = frozenset(  # their first word is an id
    {"answer", "cancel", "compare", "diff", "fork", "replay", "resume", "show", "state", "steps", "why"}
)
_FLAGS = frozenset({"--children", "--quiet", "--json"})
_WITH_WORD = frozenset({"--id", "--durability", "--trail"})
_COMMAND = re.compile(r"`everstep (runs|verify|\w+ [^-`][^`]*)`")


def url_of(named: str | None) -> str:
    """The trail that is meant."""
    return named or os.environ.get(TRAIL) or DEFAULT


def typed(words: Sequence[object], trail: str | None) -> str:
    """A command line of ours, as a shell takes it, with the trail of this name. The words of a program come last."""
    said, where = list(map(str, words)), ["--trail", trail] if trail else []
    begin = 2 if said[0] in _OF_A_RUN else 1
    end = said.index("--", begin) if "--" in said[begin:] else len(said)
    if said[0] in _OF_A_RUN and said[1].startswith("-"):  # an id that would be taken for an option
        last = next((n for n in range(2, end) if said[n].startswith("--")), end)
        return shlex.join(["everstep", said[0], *said[last:end], *where, "--", *said[1:last], *said[end:]])
    return shlex.join(["everstep", *said[:end], *where, *said[end:]])


def in_trail(text: str, trail: str | None) -> str:
    """A text, with the commands on runs that it names as they work with the trail of this name."""

    def said(found: re.Match[str]) -> str:
        try:
            return f"`{typed(shlex.split(found[1]), trail)}`"
        except ValueError:  # it is no command: somebody's own words have such quotes
            return found[0]

    return _COMMAND.sub(said, text) if trail else text


def launch(trail: str | None, command: Sequence[str], said: dict[str, Any]) -> None:
    """Become the program, under capture, in the trail of this name. Does not return."""
    program = parsed(command, others=bool(said.get("children") or said.get("mode")))
    shown = trail and without_password(trail)  # in commands that we tell of
    said = {
        "trail": url_of(trail),
        "named": shown,
        "words": list(command),
        "prices": None if said.get("mode") else prices(),
        **said,
    }
    environment = dict(os.environ)
    environment[VARIABLE] = json.dumps(said)
    environment["PYTHONHASHSEED"] = HASHES
    program.start(ENTRY, environment)


def launch_new(trail: str | None, command: Sequence[str], said: dict[str, Any]) -> None:
    """The same for a new run, whose trail need not be there."""
    url = url_of(trail)
    if not is_url(url):
        (folder_of(url) or Path(url).expanduser()).parent.mkdir(parents=True, exist_ok=True)
    launch(trail, command, {**said, "new": True})


def record(words: Sequence[str]) -> None:
    """Become the program of `record [--id ID] ... -- PROGRAM ...`. Returns if that is not what the words say."""
    if not words or words[0] != "record" or "--" not in words:
        return
    end = words.index("--")
    found = _plain(words[1:end])
    if found is None or url_of(found["trail"]) == MEMORY:
        return
    trail = found.pop("trail")
    with suppress(CaptureError, OSError):  # the command says what is wrong
        launch_new(trail, words[end + 1 :], found)


def _plain(options: Sequence[str]) -> dict[str, Any] | None:
    """What options say, each of them with a word of its own; None if there are others."""
    said: dict[str, Any] = {name[2:]: False for name in _FLAGS} | {name[2:]: None for name in _WITH_WORD}
    left = iter(options)
    for option in left:
        word = next(left, "-") if option in _WITH_WORD else None
        if (option not in _FLAGS and word is None) or (word is not None and word.startswith("-")):
            return None
        said[option[2:]] = True if word is None else word
    is_known = said["durability"] is None or said["durability"] in DURABILITIES
    return said if is_known else None

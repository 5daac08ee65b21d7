"""Values that somebody typed: JSON, or text."""

from __future__ import annotations

import builtins
import json
import re
import shlex
from typing import Any

import click

_BEGINS = ("{", "[", '"')  # what only JSON begins with, as a rule
_ERROR = re.compile(r"(?:([\w.]+)\.)?(\w+): ?(.*)", re.DOTALL)  # as Python prints one
_SHORT = 80  # characters of a text that is spelled out as JSON


def value_of(text: str) -> Any:
    """What a typed text means: JSON if it is that, else itself. Raises UsageError if it is JSON that breaks off."""
    try:
        return json.loads(text)
    except RecursionError:
        raise click.UsageError(f"{text[:20]!r}... is nested too deeply to be read as JSON.") from None
    except json.JSONDecodeError as error:
        if not text.lstrip().startswith(_BEGINS):
            return text
        as_text = shlex.quote(json.dumps(text, ensure_ascii=False)) if len(text) <= _SHORT else "as a JSON string"
        raise click.UsageError(
            f"{text[:_SHORT]!r} begins like JSON and breaks at character {error.pos + 1} ({error.msg}). "
            f"Nothing was taken. Mend it; or if it is meant as text, give it so: {as_text}"
        ) from None


def error_of(text: str) -> Exception:
    """The failure that a text tells of: `TYPE: message` with a type of Python's, or of a module's; else any text.

    The class is a stand-in, of which its name and its module are recorded: no library is loaded to name one.
    """
    found = _ERROR.fullmatch(text)
    module, kind, message = found.groups() if found is not None else (None, "", text)
    known = getattr(builtins, kind, None)
    if module is None and not (isinstance(known, type) and issubclass(known, Exception)):
        return RuntimeError(text)
    made: Exception = type(kind, (Exception,), {"__module__": module or "builtins"})(message)
    return made

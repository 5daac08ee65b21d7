"""aiohttp's exceptions, made again from their names and texts."""

from __future__ import annotations

import ast
import builtins
import re
import ssl
from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

from everstep.capturing.seams.likeness import likeness

_ERRNO = re.compile(r"\[Errno (\d+)\]")
_INNER = re.compile(r"\[(.*)\]$", re.DOTALL)
_OF_TLS = re.compile(r"\[(SSL\w+): (\(.*\))\]$", re.DOTALL)


def revived(aio: ModuleType, asked: Any, kind: str, message: str) -> BaseException:
    """An exception of this class with this text, whatever it takes to make one."""
    found = next((getattr(place, kind, None) for place in _places(aio) if hasattr(place, kind)), None)
    if not isinstance(found, type) or not issubclass(found, Exception):
        return RuntimeError(f"{kind}: {message}")
    number = _ERRNO.match(message)
    if number is not None and issubclass(found, aio.ClientConnectorError):
        message = message[number.end() + 1 :]
    for given, named in _arguments(asked, message, number):
        try:
            made: Exception = found(*given, **named)
            is_it = str(made) == message
        except (TypeError, ValueError, AttributeError):
            continue
        if is_it:
            return made
    return likeness(found, message)


def _places(aio: ModuleType) -> Iterator[Any]:
    yield from (aio, aio.client_exceptions, aio.http_exceptions, builtins)


def _arguments(asked: Any, message: str, number: Any) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """What its class may take."""
    if not message:
        yield (), {}
    if number is not None:
        yield (int(number.group(1)), message.removeprefix(number.group()).strip()), {}
    if message.startswith("("):
        with suppress(ValueError, SyntaxError):  # else it is no text of several arguments
            yield ast.literal_eval(message), {}
    yield (message,), {}
    of_tls = _OF_TLS.search(message)
    if of_tls is not None:
        with suppress(ValueError, SyntaxError, AttributeError):  # else it is of no class of Python's
            yield (asked.connection_key, getattr(ssl, of_tls[1])(*ast.literal_eval(of_tls[2]))), {}
    inner = _INNER.search(message)
    if inner is not None:
        cause = OSError(int(number.group(1)) if number else None, inner.group(1))
        yield (asked.connection_key, cause), {}
        yield (*cause.args,), {}
    status, _, rest = message.partition(", message=")
    if status.isdigit():
        with suppress(ValueError, SyntaxError):  # not as the library tells it
            text = ast.literal_eval(rest.rpartition(", url=")[0])
            yield (asked.request_info, ()), {"status": int(status), "message": text}

"""A network that is not there, for as long as a replay takes: what is replayed is on record, and nothing is live."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from everstep.errors import BlockedNetworkError

# Of a socket, what reaches for somebody else; of the module, what asks for an address.
_METHODS = ("connect", "connect_ex", "sendto")
_FUNCTIONS = ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr", "getnameinfo")


@contextmanager
def no_network() -> Iterator[list[str]]:
    """Refuse every connection that the process tries to make in here. Gives the list of those that were tried."""
    tried: list[str] = []

    def refuse(what: str, given: tuple[Any, ...]) -> Any:
        where = next((part for part in given if isinstance(part, tuple | str) and part), "")
        place = ":".join(map(str, where[:2])) if isinstance(where, tuple) else where
        tried.append(place or what)
        raise BlockedNetworkError(place or what)

    def method(name: str) -> Any:
        return lambda _, *given, **__: refuse(name, given)

    def function(name: str) -> Any:
        return lambda *given, **__: refuse(name, given)

    kept = {name: getattr(socket, name) for name in _FUNCTIONS}
    hidden = {name: vars(socket.socket)[name] for name in _METHODS if name in vars(socket.socket)}
    for name in _METHODS:
        setattr(socket.socket, name, method(name))  # in front of the one that it inherits
    for name in _FUNCTIONS:
        setattr(socket, name, function(name))
    try:
        yield tried
    finally:
        for name, value in kept.items():
            setattr(socket, name, value)
        for name in _METHODS:
            delattr(socket.socket, name)
        for name, value in hidden.items():
            setattr(socket.socket, name, value)

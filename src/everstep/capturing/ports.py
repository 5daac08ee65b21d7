"""Ports that a program leaves to the system: chance too, as it tells them to others, a browser or a server it starts.

Who binds to port 0 of TCP in captured code gets one that follows from the seed of the run, as names of temporary files
do: it is the same in a replay as long as it is free. If none of a few is, the system chooses.
"""

from __future__ import annotations

import errno
import functools
from collections.abc import Iterable
from contextlib import suppress
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary

from everstep.capturing.entropy import source
from everstep.capturing.layout import checked

_FIRST, _COUNT = 61_000, 4_500  # nobody's, and above those that Linux gives to whoever connects
_TRIES, _SIZE = 4, 2  # drawn at once: how many are taken changes nothing of what is drawn later
_given: WeakValueDictionary[int, Any] = WeakValueDictionary()  # by port, who got it here


class _Binding:
    """How a socket is bound to a port that was drawn, if that is free, with its options left as they were."""

    def __init__(self, plain: Any, module: ModuleType) -> None:
        self._plain, self._level = plain, module.SOL_SOCKET
        self._options = {module.SO_REUSEADDR: 1}  # connections to who had it in the recording may not have gone yet
        if hasattr(module, "SO_REUSEPORT"):
            self._options[module.SO_REUSEPORT] = 0  # with others that share theirs it would be taken for free

    def has_bound(self, sock: Any, address: Any, ports: Iterable[int]) -> bool:
        """Whether one of these ports was free. Raises what is wrong with the address."""
        before = {option: sock.getsockopt(self._level, option) for option in self._options}
        try:
            for option, value in self._options.items():
                sock.setsockopt(self._level, option, value)
            return any(self._is_free(sock, address, port) for port in ports)
        finally:
            for option, value in before.items():
                sock.setsockopt(self._level, option, value)

    def _is_free(self, sock: Any, address: Any, port: int) -> bool:
        other = _given.get(port)
        if other is not None and other.fileno() >= 0:
            return False  # to the system it may be free until somebody listens there
        try:
            self._plain(sock, (address[0], port, *address[2:]))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        _given[port] = sock
        return True


def watch(module: ModuleType) -> None:
    """Wrap how sockets get their address. Raises UnknownLayoutError."""
    plain = checked(module, "socket.bind", None)
    families = {module.AF_INET, module.AF_INET6}
    binding = _Binding(plain, module)

    def is_left_open(sock: Any, address: Any) -> bool:
        return (
            sock.family in families
            and sock.type == module.SOCK_STREAM
            and isinstance(address, tuple)
            and address[1:2] == (0,)
        )

    @functools.wraps(plain)
    def bind(self: Any, address: Any, /) -> None:
        draw = source() if is_left_open(self, address) else None
        if draw is not None:
            drawn = draw(_TRIES * _SIZE)
            numbers = (int.from_bytes(drawn[at : at + _SIZE], "big") for at in range(0, len(drawn), _SIZE))
            with suppress(OSError):  # what is wrong with the address is told below
                if binding.has_bound(self, address, (_FIRST + number % _COUNT for number in numbers)):
                    return
        plain(self, address)

    module.socket.bind = bind

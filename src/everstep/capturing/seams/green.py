"""gevent and eventlet take the place of threads, locks and sockets: under them those of a recorder stand still."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from everstep.capturing.layout import checked
from everstep.capturing.seams.uncaptured import run_here
from everstep.errors import UnrecordableError

_CHANGES = {
    "gevent.monkey": ("patch_all", "patch_socket", "patch_thread", "patch_time"),
    "eventlet.patcher": ("monkey_patch",),
}


def patch(module: ModuleType) -> None:
    """Refuse to have the standard library changed under a captured program. Raises UnknownLayoutError."""
    for name in _CHANGES[module.__name__]:
        setattr(module, name, _refused(checked(module, name, None), module.__name__.partition(".")[0]))


def _refused(plain: Any, library: str) -> Any:
    @functools.wraps(plain)
    def refused(*given: Any, **named: Any) -> Any:
        if run_here() is not None:
            raise UnrecordableError(f"what {library} has changed", "threads, or asyncio")
        return plain(*given, **named)

    return refused

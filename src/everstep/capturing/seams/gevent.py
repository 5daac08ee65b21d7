"""gevent, which puts itself in the place of threads, locks and sockets: under it those of a recorder stand still."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from everstep.capturing.layout import checked
from everstep.capturing.seams.uncaptured import run_here
from everstep.errors import UnrecordableError


def patch(module: ModuleType) -> None:
    """Refuse to have the standard library changed under a captured program. Raises UnknownLayoutError."""
    for name in ("patch_all", "patch_socket", "patch_thread", "patch_time"):
        setattr(module, name, _refused(checked(module, name, None)))


def _refused(plain: Any) -> Any:
    @functools.wraps(plain)
    def refused(*given: Any, **named: Any) -> Any:
        if run_here() is not None:
            raise UnrecordableError("what gevent has changed", "threads, or asyncio")
        return plain(*given, **named)

    return refused

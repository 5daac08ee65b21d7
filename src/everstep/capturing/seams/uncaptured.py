"""Ways to the outside that are not recorded: the program is told, once for each, at the line that takes it.

A process that is forked off is a copy of the program. What it does is its own: it is no part of the run from there on,
or two processes would write one record. A connection that no library that we know opens, and a datagram, is a call that
will be made again; so is a name that the program looks up itself. A sealed replay refuses all of these.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

from everstep.capturing import ports
from everstep.capturing.layout import checked
from everstep.capturing.session import boundary
from everstep.errors import CaptureWarning
from everstep.run import faults
from everstep.run.lanes import CURRENT, OUTSIDE, here
from everstep.trail.late import Late

_SEAL = Late("everstep.capturing.seal")  # needed to tell a line alone
_LOOKUPS = ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr", "getnameinfo")  # getfqdn comes to one
_OF_SOCKETS = {  # what each does, and where it is told the address
    "connect": ("connects to", 0),
    "connect_ex": ("connects to", 0),
    "sendto": ("sends to", -1),
    "sendmsg": ("sends to", 3),
}
_OF_OS = ("fork", "forkpty", "posix_spawn", "posix_spawnp", "execv", "execve")  # the others of `os` come to these


def patch(module: ModuleType) -> None:
    """Wrap those of `os`, the processes of `multiprocessing`, or sockets. Raises UnknownLayoutError."""
    if module.__name__ == "os":
        for name in _OF_OS:
            if hasattr(module, name):
                setattr(module, name, _told(getattr(module, name), f"os.{name}"))
    elif module.__name__ == "socket":
        for name, (does, at) in _OF_SOCKETS.items():
            setattr(module.socket, name, _reaching(checked(module, f"socket.{name}", None), does, at))
        for name in _LOOKUPS:
            setattr(module, name, _looking_up(checked(module, name, None)))
        ports.watch(module)
    else:
        start = checked(module, "BaseProcess.start", ["self"])
        module.BaseProcess.start = _told(start, "multiprocessing")


def _told(plain: Any, name: str) -> Any:
    ends = name.startswith("os.exec")

    @functools.wraps(plain)
    def wrapped(*args: Any, **named: Any) -> Any:
        lane = boundary()
        if lane is not None and lane.run.captured.replays:
            lane.run.captured.refuse(f"become another program by {name}" if ends else f"start a process by {name}")
        if lane is None or lane.run.captured.replays:
            return _apart(plain(*args, **named), name)
        if lane.run.captured.is_news(name):
            faults.warn(
                f"run {lane.run.run_id!r} becomes another program by {name}: of that one nothing is recorded. Have it "
                "recorded itself, as in `opentelemetry-instrument everstep record -- python agent.py`."
                if ends
                else f"run {lane.run.run_id!r} starts a process by {name}, which is not recorded: what that gives will "
                "be missing in a replay, which refuses it if it is sealed. Start it by subprocess, whose processes are "
                "recorded.",
                CaptureWarning,
            )
        token = CURRENT.set(OUTSIDE)  # what it takes to start it is told of already
        try:
            made = plain(*args, **named)
        finally:
            CURRENT.reset(token)
        return _apart(made, name)

    return wrapped


def run_here() -> Any:
    """The captured run whose code this is; None if it is not ours, or part of a call that is recorded."""
    lane = here()
    if lane is None or lane.run.captured is None or lane.scope.leaf is not None or lane.run.closed:
        return None
    return lane.run


def _reaching(plain: Any, does: str, at: int) -> Any:
    @functools.wraps(plain)
    def wrapped(self: Any, *args: Any) -> Any:
        run = run_here()
        address = args[at] if len(args) > at else None  # a connected socket is told none, and its peer was told of
        if run is not None and address is not None and run.captured.is_news("reach"):
            faults.warn(
                f"run {run.run_id!r} {does} {_SEAL.shown(address)} at {_SEAL.line()}, by no library whose calls "
                "are recorded: what is said there will be missing in a replay, which refuses it if it is sealed, and a "
                "resumed run does it again. Have it use a library that is known, if it has the choice.",
                CaptureWarning,
            )
        return plain(self, *args)

    return wrapped


def _looking_up(plain: Any) -> Any:
    @functools.wraps(plain)
    def wrapped(host: Any, *args: Any, **named: Any) -> Any:
        run = run_here()
        is_told = sys._getframe(1).f_code.co_name == "create_connection"  # noqa: SLF001 - it connects, and is told of that
        is_lookup = run is not None and not is_told and not _SEAL.is_address(plain.__name__, host)
        if is_lookup and run.captured.is_news("look up"):
            faults.warn(
                f"run {run.run_id!r} looks up {_SEAL.shown(host)} at {_SEAL.line()}, by {plain.__name__}: lookups of "
                "names are not recorded. A replay refuses them if it is sealed, and asks again with --seal off; as "
                "does a resumed run. Take the name or the address from configuration, if the program has the choice.",
                CaptureWarning,
            )
        return plain(host, *args, **named)

    return wrapped


def _apart(made: Any, name: str) -> Any:
    """Take the copy that a fork made out of the run."""
    if name in {"os.fork", "os.forkpty"} and (made[0] if isinstance(made, tuple) else made) == 0:
        CURRENT.set(OUTSIDE)
    return made

"""asyncio's processes, and uvloop's: `subprocess_exec` and `subprocess_shell` of the event loop.

All of `asyncio.create_subprocess_*` and `anyio.open_process` goes through these two, and what they take is public: a
protocol that is told what comes out. So the program's readers and writers are asyncio's own.
"""

from __future__ import annotations

import subprocess
from types import ModuleType
from typing import Any

from everstep.capturing import calling, process
from everstep.capturing.awaited_process import Heard, Link, Tap
from everstep.capturing.children import environment
from everstep.capturing.layout import checked
from everstep.capturing.process import Transcript
from everstep.capturing.session import boundary
from everstep.capturing.transports import Transport
from everstep.run.lanes import CURRENT, OUTSIDE, Lane

_PIPES = ("stdin", "stdout", "stderr")


def patch(module: ModuleType) -> None:
    """Wrap the event loop of asyncio, or that of uvloop. Raises UnknownLayoutError."""
    name = "Loop" if module.__name__ == "uvloop" else "BaseEventLoop"
    loop = checked(module, name, None)
    parameters = None if module.__name__ == "uvloop" else ["self", "protocol_factory"]
    for method, shell in (("subprocess_exec", False), ("subprocess_shell", True)):
        setattr(loop, method, _starting(checked(module, f"{name}.{method}", parameters), shell=shell))


def _starting(plain: Any, *, shell: bool) -> Any:
    async def start(self: Any, protocol_factory: Any, *args: Any, **named: Any) -> Any:
        lane = boundary()
        if lane is None:
            return await plain(self, protocol_factory, *args, **named)
        return await _started(lane, plain, self, protocol_factory, args, named, shell=shell)

    return start


async def _started(
    lane: Lane, plain: Any, loop: Any, protocol_factory: Any, args: Any, named: dict[str, Any], *, shell: bool
) -> tuple[Transport, Any]:
    streams = {name: named.get(name, subprocess.PIPE) for name in _PIPES}
    pipes = [name for name, stream in streams.items() if stream == subprocess.PIPE]
    told = [*pipes, *(["stderr in stdout"] if streams["stderr"] == subprocess.STDOUT else [])]
    asked = process.request(args, named.get("cwd"), told, shell=shell, executable=named.get("executable"))
    asked.form = process.AWAITED
    taps: list[Tap] = []

    async def live() -> tuple[Transcript, Heard]:
        tap = Tap()
        told = {**named, "env": environment(named.get("env"))}
        token = CURRENT.set(OUTSIDE)  # whatever is started for it belongs to nobody
        try:
            transport, _ = await plain(loop, lambda: tap, *args, **told)
        finally:
            CURRENT.reset(token)
        taps.append(tap)
        transcript = Transcript(transport.get_pid(), merged={"in"})
        return transcript, Heard(tap)

    transcript, chunks = await calling.call_awaited(lane, asked, live)
    link = Link(transcript, chunks, taps[0] if taps else None)
    transport = Transport(link, [_PIPES.index(name) for name in pipes])
    protocol = protocol_factory()
    link.begin(protocol, transport)
    return transport, protocol

"""subprocess: `Popen`, below everything that starts a process there, `os.popen` included.

Live, its pipes lead to a thread that carries the bytes on and notes them. From the record, nothing is started: the same
pipes lead to a thread that plays the process. So `Popen` stays the class it is, and its files are files.

Where a stream is no pipe (inherited, a file) what it carries is not recorded; only the exit status is. A file that a
process wrote stays as it is in replay.
"""

from __future__ import annotations

import functools
import inspect
import io
import os
import subprocess
from types import ModuleType
from typing import Any

from everstep.capturing import calling
from everstep.capturing.calls import Nothing
from everstep.capturing.children import environment, exported
from everstep.capturing.layout import checked
from everstep.capturing.pipes import Flow, Pump
from everstep.capturing.process import NAMES, Transcript, request
from everstep.capturing.seams import signals
from everstep.capturing.session import boundary
from everstep.capturing.tapes import Buffered, Reader, Tape

_STREAMS = (  # each with the program's end of its pipe, and the other one
    ("in", "p2cwrite", "p2cread"), ("out", "c2pread", "c2pwrite"), ("err", "errread", "errwrite")
)  # fmt: skip
_PIPE = 1 << 16  # bytes that a pipe takes when nobody reads
_PATIENCE = 2.0
_TAPE = "_everstep_tape"  # the attribute of a process that is recorded, or played
_GIVEN = (
    "self", "args", "executable", "preexec_fn", "close_fds", "pass_fds", "cwd", "env", "startupinfo", "creationflags",
    "shell", "p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite",
)  # fmt: skip


def patch(sp: ModuleType) -> None:
    """Wrap `Popen`. Raises UnknownLayoutError."""
    popen = checked(sp, "Popen", None)
    wrapped = {
        "_execute_child": _executing(checked(sp, "Popen._execute_child", list(_GIVEN))),
        "_wait": _waiting(checked(sp, "Popen._wait", ["self", "timeout"])),
        "_internal_poll": _polling(checked(sp, "Popen._internal_poll", ["self", "_deadstate"])),
        "_communicate": _communicating(checked(sp, "Popen._communicate", ["self", "input", "endtime", "orig_timeout"])),
    }
    for name, method in wrapped.items():
        setattr(popen, name, method)
    os.system = _running(os.system)
    signals.watch()


def _running(plain: Any) -> Any:
    @functools.wraps(plain)
    def system(command: Any) -> int:
        lane = boundary()
        if lane is None:
            return int(plain(command))

        def live() -> tuple[Transcript, Nothing]:
            transcript = Transcript(0)
            transcript.exit = plain(exported(command))
            return transcript, Nothing()

        asked = request(command, None, (), shell=True)  # noqa: S604 - only told
        transcript, chunks = calling.call(lane, asked, live)
        next(chunks, None)
        return int(transcript.exit or 0)

    return system


def _executing(plain: Any) -> Any:
    names = list(inspect.signature(plain).parameters)[1:]

    def _execute_child(self: Any, *given: Any) -> None:
        lane = boundary()
        if lane is None:
            plain(self, *given)
            signals.forget(self.pid)  # one on record may have had the same number
        else:
            _start(self, lane, plain, dict(zip(names, given, strict=True)))

    return _execute_child


def _waiting(plain: Any) -> Any:
    def _wait(self: Any, timeout: float | None) -> Any:
        tape = getattr(self, _TAPE, None)
        if tape is None or self.returncode is not None:
            if tape is not None and _reads_no_more(self):  # what the process left behind may still write: to nobody
                tape.ended(self.returncode)
            return plain(self, timeout)
        if tape.served:
            return _wait_for_played(self, tape, timeout)
        try:
            status = plain(self, timeout)
        except subprocess.TimeoutExpired as late:
            tape.transcript.waits.append(float(late.timeout))
            raise
        tape.ended(status)
        return status

    return _wait


def _reads_no_more(popen: Any) -> bool:
    return all(file is None or file.closed for file in (popen.stdout, popen.stderr))


def _polling(plain: Any) -> Any:
    # What it needs when a process is let go of is bound here: the module may be gone by then.
    def _internal_poll(self: Any, _deadstate: int | None = None, *more: Any, _tape: str = _TAPE, **named: Any) -> Any:
        tape = getattr(self, _tape, None)
        if tape is None or self.returncode is not None or (_deadstate is not None and not tape.served):
            return plain(self, _deadstate, *more, **named)
        if tape.served and _deadstate is not None:
            self.returncode = _deadstate
            return _deadstate
        if tape.served:
            return _poll_played(self, tape)
        status = plain(self, _deadstate, *more, **named)
        if status is None:
            tape.transcript.waits.append("poll")
        else:
            tape.ended(status)
        return status

    return _internal_poll


def _communicating(plain: Any) -> Any:
    def _communicate(self: Any, input: Any, endtime: Any, orig_timeout: Any) -> Any:  # noqa: A002 - its name there
        tape = getattr(self, _TAPE, None)
        if tape is None:
            return plain(self, input, endtime, orig_timeout)
        if not tape.served:
            return _communicate_live(self, tape, plain, (input, endtime, orig_timeout))
        with tape.blocking():
            known = tape.waited("communicate")
            if isinstance(known, list):
                raise _given_up(self, input, orig_timeout, known)
            if known is not None:
                tape.waits.appendleft(known)  # for the wait after all output
            return plain(self, input, None, orig_timeout)  # it may say so of the wait after all output

    return _communicate


# Starting.


def _start(popen: Any, lane: Any, execute: Any, given: dict[str, Any]) -> None:
    pipes = [NAMES[kind] for kind, near, _ in _STREAMS if given[near] >= 0]
    if given["errwrite"] >= 0 and given["errwrite"] == given["c2pwrite"]:
        pipes.append("stderr in stdout")
    asked = request(
        given["args"], given["cwd"], pipes, shell=bool(given["shell"]),
        executable=given["executable"],
    )  # fmt: skip
    flows: list[Flow] = []

    def live() -> tuple[Transcript, Nothing]:
        _execute(popen, execute, given, flows)
        return Transcript(popen.pid), Nothing()

    transcript, chunks = calling.call(lane, asked, live)
    tape = Tape(transcript, chunks)
    setattr(popen, _TAPE, tape)
    if tape.served:
        _play(popen, tape, given)
    elif flows:
        tape.pump = Pump(flows, transcript)
    signals.know(transcript.pid, tape, lane.run)
    _dress(popen, tape)


def _execute(popen: Any, execute: Any, given: dict[str, Any], flows: list[Flow]) -> None:
    """Start the process with pipes of its own; those of the program lead to us."""
    ours = {**given, "env": environment(given["env"])}
    for kind, near, far in _STREAMS:
        if given[near] < 0:
            continue
        read, write = os.pipe()
        if kind == "in":
            ours[far] = read
            flows.append(Flow(kind, given[far], write))
        else:
            ours[far] = write
            flows.append(Flow(kind, read, given[far]))
            if kind == "out" and given["errwrite"] == given["c2pwrite"]:
                ours["errwrite"] = write
    try:
        execute(popen, *ours.values())
    except BaseException:  # an interrupt too: nobody else would close these
        for flow in flows:
            os.close(flow.target if flow.kind == "in" else flow.source)
        of = vars(popen)
        if not of["_closed_child_pipe_fds"]:
            for end in {ours[far] for _, near, far in _STREAMS if given[near] >= 0}:
                os.close(end)
        of["_closed_child_pipe_fds"] = False  # those of the program: it closes them then
        raise


def _play(popen: Any, tape: Tape, given: dict[str, Any]) -> None:
    """Have the process played: nothing is started."""
    popen.pid, popen._child_created = tape.transcript.pid, True  # noqa: SLF001 - as its own method does
    popen._close_pipe_fds(-1, -1, -1, -1, -1, -1)  # noqa: SLF001 - /dev/null, if it opened that
    targets = {kind: given[far] for kind, near, far in _STREAMS if kind != "in" and given[near] >= 0}
    source = given["p2cread"] if given["p2cwrite"] >= 0 else -1
    if targets or source >= 0:
        tape.play(source, targets)


def _dress(popen: Any, tape: Tape) -> None:
    """Put our own raw files under the program's, where it can see what they do."""
    for name in ("stdout", "stderr"):
        file = getattr(popen, name)
        if file is None or not (tape.served or isinstance(file, io.FileIO | io.BufferedReader)):
            continue
        raw = Reader(os.dup(file.fileno()), tape, name)
        made: Any = raw
        if isinstance(file, io.FileIO):
            raw.exactly()
        elif isinstance(file, io.TextIOWrapper):
            made = io.TextIOWrapper(io.BufferedReader(raw), encoding=file.encoding, errors=file.errors)
        else:
            made = Buffered(raw)
        setattr(popen, name, made)
        file.close()


# From the record.


def _wait_for_played(popen: Any, tape: Tape, timeout: float | None) -> Any:
    known = tape.waited("wait")
    if known is not None:  # what is left of a longer time, where several ends are waited for
        raise subprocess.TimeoutExpired(popen.args, known if isinstance(known, float) else timeout or 0.0)
    if tape.transcript.exit is None:
        raise tape.never_ended()
    try:
        with tape.blocking():
            if tape.puppet is not None:
                tape.puppet.through.wait()
    finally:
        popen.returncode = tape.transcript.exit  # also for code that is taken out here: nothing is left running
    tape.ended(popen.returncode)
    return popen.returncode


def _poll_played(popen: Any, tape: Tape) -> Any:
    if tape.waited("poll") is None and tape.transcript.exit is not None:
        if tape.puppet is not None and not tape.puppet.through.wait(_PATIENCE):
            return None
        popen.returncode = tape.transcript.exit
        tape.check()
        tape.ended(popen.returncode)
    return popen.returncode


def _communicate_live(popen: Any, tape: Tape, plain: Any, given: tuple[Any, ...]) -> Any:
    before = len(tape.transcript.waits)
    try:
        return plain(popen, *given)
    except subprocess.TimeoutExpired as late:
        if len(tape.transcript.waits) == before:  # else it was the wait after all output
            tape.transcript.waits.append([len(late.output or b""), len(late.stderr or b"")])
        raise


def _given_up(popen: Any, input: Any, timeout: float, sizes: list[int]) -> subprocess.TimeoutExpired:  # noqa: A002 - its name there
    """Read what had been read when it took too long, and give what was raised then."""
    of = vars(popen)
    if not of["_communication_started"]:
        of["_fileobj2output"] = {file: [] for file in (popen.stdout, popen.stderr) if file is not None}
    popen._save_input(input)  # noqa: SLF001 - as its own method does
    if popen.stdin is not None and of["_input"]:
        popen.stdin.flush()
        of["_input_offset"] += os.write(popen.stdin.fileno(), of["_input"][of["_input_offset"] :][:_PIPE])
    read: list[bytes | None] = []
    for file, size in zip((popen.stdout, popen.stderr), sizes, strict=True):
        parts = [] if file is None else of["_fileobj2output"][file]
        while (missing := size - sum(map(len, parts))) > 0 and (data := os.read(file.fileno(), missing)):
            parts.append(data)
        read.append(b"".join(parts) or None)
    return subprocess.TimeoutExpired(popen.args, timeout, output=read[0], stderr=read[1])

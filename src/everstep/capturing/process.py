"""Processes as steps: what is asked, and what is kept of a conversation through pipes.

A process is one step. It is not kept message by message (as `duplex` does for sockets): bytes in pipes have no
boundaries, and where a write is cut differs from run to run. Kept is in which order bytes went in and came out, so
that in replay nothing comes out before the program has put in what it had put in then.

Not kept, and not compared: the environment (it carries keys), and what a process does to files, among them those
given as its stdout: in replay they stay as they are.
"""

from __future__ import annotations

import builtins
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, pairwise
from signal import SIGHUP, SIGINT, SIGTERM
from typing import Any

from everstep.capturing.calls import Call, Form
from everstep.capturing.command import PYTHON
from everstep.capturing.exchange import Exchange
from everstep.capturing.sizes import by_placeholders
from everstep.errors import DivergenceError

_SHORT = 200  # characters: enough to see which it is
_PRINTABLE = re.compile(
    rb"[\t\n\r\x20-\x7e]{8,}"
)  # in what is no text only these hold secrets; the rest looks like some
_SET = re.compile(r"(?:\s*+\w+=(?:\"[^\"]*\"|'[^']*'|[^\s\"'])*+(?=\s))*+")  # what a shell sets for a command
_OS_ERROR = re.compile(r"\[Errno (\d+)\] (.*?)(?:: (['\"])(.*)\3)?", re.DOTALL)
ENDED = frozenset(end for number in (SIGHUP, SIGINT, SIGTERM) for end in (-number, 128 + number))  # as a shell has it
_NOBODY = 1 << 22  # no process has this number
_TOLD = frozenset({"pid", "stdin", "closed", "talk"})  # one of these is in every recorded one, and tells what went in
Item = list[Any]  # ["in" | "out" | "err", bytes, or None for its end], ["gone"], ["signal", number]


class Transcript:
    """What a process was told, and what it said."""

    def __init__(self, pid: int, merged: AbstractSet[str] = frozenset({"in", "out", "err"})) -> None:
        self.pid = pid
        self._merged = merged  # kinds of which what follows one another is one
        self.items: list[Item] = []
        self.waits: list[Any] = []  # when the program looked for its end in vain: "poll", seconds, [bytes read]
        self.reads: dict[str, list[int]] = {}  # sizes of reads, where the program can see them
        self.exit: int | None = None
        self.takes_all = False  # a fork has put it there, and nothing is known of what goes in
        self._lock = threading.Lock()

    def note(self, kind: str, *data: Any) -> None:
        """Add what just happened; bytes to those before, if they are of the same kind."""
        with self._lock:
            last = self.items[-1] if self.items else None
            is_more = kind in self._merged and last is not None and last[0] == kind and data[0] is not None
            if is_more and last is not None and last[1] is not None:
                last[1] += data[0]
            else:
                self.items.append([kind, *(bytearray(each) if isinstance(each, bytes) else each for each in data)])

    def copied(self) -> list[Item]:
        """All of it, as it is now."""
        with self._lock:
            return [[kind, *(bytes(each) if isinstance(each, bytearray) else each for each in data)]
                    for kind, *data in self.items]  # fmt: skip


def request(args: Any, cwd: Any, pipes: Sequence[str], *, shell: bool = False, executable: Any = None) -> Call:
    """A call, from what a process is about to be started with."""
    told = [_told(word) for word in ([args] if isinstance(args, str | bytes | os.PathLike) else list(args))]
    asked: dict[str, Any] = {"args": told[0] if shell and len(told) == 1 else told}
    if shell:
        asked["shell"] = True
    if executable is not None:
        asked["executable"] = _told(executable)
    if cwd is not None:
        asked["cwd"] = _relative(os.fsdecode(cwd))
    if pipes:
        asked["pipes"] = list(pipes)
    if shell and told:
        first = next(iter(told[0][_SET.match(told[0]).end() :].split(maxsplit=1)), "")  # type: ignore[union-attr] # it matches
    else:
        first = told[0] if told else ""
    name = f"run {first.rsplit('/', 1)[-1].strip('{}') or 'nothing'}"
    return Call(name, asked, FORM, revive, external=True, node_type="process")


def _told(word: Any) -> str:
    text = os.fsdecode(word)
    return PYTHON if text == sys.executable else text


def _relative(path: str) -> str:
    """A folder as seen from the one that the program works in, if it is below that."""
    found = os.path.relpath(path)
    return path if found.startswith("..") else found


def revive(kind: str, message: str) -> BaseException:
    """An exception of starting a process, from its type's name and its text."""
    error = getattr(builtins, kind, None)
    if isinstance(error, type) and issubclass(error, OSError):
        known = _OS_ERROR.fullmatch(message)
        if known is not None:
            number, text, _, name = known.groups()
            return OSError(int(number), text, name) if name is not None else OSError(int(number), text)
    if isinstance(error, type) and issubclass(error, Exception):
        return error(message)
    return RuntimeError(f"{kind}: {message}")


class _Form(Form):
    """How conversations with processes are stored: flat if all that went in went in first, else item by item."""

    def pack(
        self, head: Transcript, chunks: Sequence[Any], offsets: Sequence[float], clean: Callable[[str], str]
    ) -> dict[str, Any]:
        """The stored form of a conversation."""
        del chunks, offsets
        items = head.copied()
        stored: dict[str, Any] = {"exit": head.exit, "pid": head.pid}
        flat = _flat(items) if head.exit is not None else None
        if flat is None:
            stored["talk"], changed = _talk(items, clean)
        else:
            changed = False
            for name, data in flat.items():
                text, length = _cleaned(data, clean) if isinstance(data, bytes) else (data, None)
                stored[name] = text if length is None or name != "stdin" else [text, length]
                changed = changed or length is not None
        if head.waits:
            stored["waits"] = list(head.waits)
        if head.reads and not changed:
            stored["reads"] = {name: list(sizes) for name, sizes in head.reads.items()}
        return stored

    def unpack(self, stored: Any) -> tuple[Transcript, Sequence[Any]]:
        """The conversation, complete. There are no chunks beside it. Of one that a fork has put there, what is said."""
        stored = _as_stored(stored)
        head = Transcript(stored.get("pid", _NOBODY))
        head.exit, head.takes_all = stored.get("exit", 0), not stored.keys() & _TOLD
        head.waits = list(stored.get("waits", ()))
        head.reads = {name: list(sizes) for name, sizes in stored.get("reads", {}).items()}
        head.items = _encoded(stored["talk"] if "talk" in stored else _unflat(stored))
        if not isinstance(head.exit, int | None):
            raise TypeError("a process ends with a number")
        return head, ()


class _Awaited(_Form):
    """How conversations with awaited processes are stored: item by item, each as large as the program got it."""

    def pack(
        self, head: Transcript, chunks: Sequence[Any], offsets: Sequence[float], clean: Callable[[str], str]
    ) -> dict[str, Any]:
        """The stored form of a conversation."""
        del chunks, offsets
        talk, _ = _talk(head.copied(), clean)
        return {"exit": head.exit, "pid": head.pid, "talk": talk}

    def unpack(self, stored: Any) -> tuple[Transcript, Sequence[Any]]:
        """The conversation, and as its chunks what came out."""
        head, _ = super().unpack(stored)
        if head.exit is not None and not any(item[0] == "exit" for item in head.items):  # a fork has put it there
            head.items += [["exit", head.exit], ["out", None], ["err", None], ["lost", None]]
        return head, [item for item in head.items if item[0] not in _DONE]


FORM, AWAITED = _Form(), _Awaited()
_DONE = frozenset({"in", "gone", "signal"})  # what the program did, or what became of it
NAMES = {"in": "stdin", "out": "stdout", "err": "stderr"}
_SAID = frozenset({"exit", "talk", *NAMES.values()})  # one of these is in whatever is stored of a process


def _as_stored(given: Any) -> Mapping[str, Any]:
    """A stored conversation; of any other value, that of a process which printed it."""
    if given is None or (isinstance(given, Mapping) and given.keys() & _SAID):
        return given or {}
    return {"stdout": given if isinstance(given, str | bytes) else json.dumps(given)}


def _talk(items: Sequence[Item], clean: Callable[[str], str]) -> tuple[list[Item], bool]:
    """Items as they are stored, and whether there were secrets in them."""
    found, hidden = [], _hidden(items, clean)
    changed = hidden is not items
    for kind, *data in hidden:
        if not data or not isinstance(data[0], bytes):
            found.append([kind, *data])
            continue
        text, length = _cleaned(data[0], clean)
        changed = changed or length is not None
        found.append([kind, text] if length is None or kind != "in" else [kind, text, length])
    return found, changed


def _hidden(items: Sequence[Item], clean: Callable[[str], str]) -> Sequence[Item]:
    """Items without the secrets that came out in several pieces; the same ones if there are none."""
    hidden: list[Item] | None = None
    for kind in ("out", "err"):
        at = [n for n, item in enumerate(items) if item[0] == kind and item[1]]
        whole = b"".join(items[n][1] for n in at)
        text, length = _cleaned(whole, clean) if len(at) > 1 else (b"", None)
        if length is None:
            continue
        after = text.encode() if isinstance(text, str) else text
        ends = accumulate(by_placeholders(whole, after, [len(items[n][1]) for n in at]), initial=0)
        hidden = list(items) if hidden is None else hidden
        for n, (start, end) in zip(at, pairwise(ends), strict=True):
            hidden[n] = [kind, after[start:end]]
    return items if hidden is None else hidden


def _encoded(items: Sequence[Item]) -> list[Item]:
    if any(kind in NAMES and not isinstance(data[0], str | bytes | None) for kind, *data in items):
        raise TypeError("what goes in and comes out is text, or bytes")
    return [[kind, *(each.encode() if isinstance(each, str) else each for each in data)] for kind, *data in items]


def _flat(items: Sequence[Item]) -> dict[str, Any] | None:
    """Everything by stream, None if the order between them matters."""
    found: dict[str, Any] = {}
    answered = False
    for kind, *data in items:
        if kind == "signal" or (kind == "in" and answered):
            return None
        if kind == "gone":
            found["gone"] = True
            continue
        answered = answered or kind != "in"
        if data[0] is not None:
            found[NAMES[kind]] = found.get(NAMES[kind], b"") + data[0]
        elif kind == "in":
            found["closed"] = True
    return found


def _unflat(stored: Mapping[str, Any]) -> list[Item]:
    items: list[Item] = []
    if "stdin" in stored:
        kept = stored["stdin"]
        items.append(["in", *kept] if isinstance(kept, list) else ["in", kept])
    if stored.get("closed"):
        items.append(["in", None])
    if stored.get("gone"):
        items.append(["gone"])
    return [*items, *([kind, stored[name]] for kind, name in NAMES.items() if kind != "in" and name in stored)]


def _cleaned(data: bytes, clean: Callable[[str], str]) -> tuple[str | bytes, int | None]:
    """Bytes without their secrets, as text where they are text; with their length, if they changed."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        bare = _PRINTABLE.sub(lambda match: clean(match[0].decode()).encode(), data)
        return bare, None if bare == data else len(data)
    cleaned = clean(text)
    return cleaned, None if cleaned == text else len(data)


def diverged(exchange: Exchange, error: DivergenceError) -> DivergenceError:
    """Note that the program says something else to a process than it did, as its script has found."""
    name = exchange.call.name
    return exchange.diverged(error.cause, f"{name} << {error.recorded}", f"{name} << {error.requested}")


class Script:
    """A conversation on record, gone through once more: what may come out, and whether what goes in is the same."""

    def __init__(self, transcript: Transcript, clean: Callable[[str], str]) -> None:
        self.exit, self._takes_all = transcript.exit, transcript.takes_all
        self._items, self._at = transcript.items, 0
        self._clean = clean
        self._heard = bytearray()
        self.closed = False  # the program closed its stdin
        self.gone = False  # nobody reads what it puts in
        self.signals = 0

    @property
    def through(self) -> bool:
        """Whether all that was said was said again."""
        return self._at >= len(self._items)

    @property
    def waits_for(self) -> str | None:
        """What the program has to do before more comes out."""
        return None if self.through else str(self._items[self._at][0])

    def hear(self, data: bytes) -> None:
        """The program put something in; nothing means that it closed."""
        if data:
            self._heard += data
        else:
            self.closed = True

    def missing(self) -> DivergenceError:
        """What the program did not do, while it waits for the process."""
        wanted = self._items[self._at][1]
        return _differs("the end of its input" if wanted is None else wanted, bytes(self._heard))

    def skip(self) -> None:
        """Wait no longer for what the program has to do."""
        self._at += 1

    def due(self) -> Item | None:
        """The next that comes out, ["out" | "err", bytes or None]; None if it is too early. Raises DivergenceError."""
        while not self.through:
            item = self._items[self._at]
            kind = item[0]
            if kind not in _DONE:
                self._at += 1
                self.gone = self.gone or kind == "lost"
                return item
            if kind == "gone":
                self.gone = True
            elif kind == "signal":
                if not self.signals:
                    return None
                self.signals -= 1
            elif not (self._closes() if item[1] is None else self._takes(item)):
                return None
            self._at += 1
        if self._heard and not (self.gone or self._takes_all) and self.exit is not None:
            raise _differs("nothing more", bytes(self._heard))
        return None

    def compare(self) -> None:
        """See whether what was put in is what was, as far as it is its turn. Raises DivergenceError."""
        if self.waits_for != "in":
            return
        wanted, *secret = self._items[self._at][1:]
        if wanted is None:
            self._closes()
        elif not secret and not wanted.startswith(self._heard[: len(wanted)]):
            raise _differs(wanted, bytes(self._heard))

    def _closes(self) -> bool:
        if self._heard:
            raise _differs("the end of its input", bytes(self._heard))
        return self.closed

    def _takes(self, item: Item) -> bool:
        """Whether the input that is next on record has come."""
        wanted, heard = item[1], self._heard
        lengths = [len(wanted), *item[2:]]
        if len(lengths) == 1 and not wanted.startswith(heard[: len(wanted)]):
            raise _differs(wanted, bytes(heard))
        for length in sorted(lengths, reverse=True):
            if len(heard) >= length and (len(lengths) == 1 or self._same(heard[:length], wanted)):
                del heard[:length]
                return True
        if len(heard) >= max(lengths) or self.closed:
            raise _differs(wanted, bytes(heard))
        return False

    def _same(self, heard: bytes | bytearray, wanted: bytes) -> bool:
        cleaned, _ = _cleaned(bytes(heard), self._clean)
        return (cleaned.encode() if isinstance(cleaned, str) else cleaned) == wanted


def _differs(recorded: Any, heard: bytes) -> DivergenceError:
    return DivergenceError("changed input", recorded=_short(recorded), requested=_short(heard))


def _short(data: Any) -> str:
    text = data.decode("utf-8", "replace") if isinstance(data, bytes | bytearray) else str(data)
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}..."

"""Exceptions after a resume: what handlers look at, and the classes that they catch by."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.message import Message
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

import everstep
from everstep import Runner, Trail, step, workflow
from everstep.errors import RecordedError
from tests.integration.failing import WORLD, act, seen_twice
from tests.integration.running import crashed
from tests.integration.support import output, python


class Slotted(Exception):  # noqa: N818 - as in failing.py
    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        super().__init__("refused")
        self.code = code


@dataclass(frozen=True)
class Frozen(Exception):  # noqa: N818 - as above
    code: int


def noted() -> Exception:
    error = ValueError("odd")
    error.add_note("in line 3")
    return error


def caused(cause: BaseException | None) -> Exception:
    error = Slotted(7)
    error.__cause__ = cause
    return error


def circle() -> Exception:
    error = caused(ExceptionGroup("all", [caused(None), caused(None)]))
    for each in error.__cause__.exceptions:  # type: ignore[union-attr] # the group above
        each.__cause__ = error
    return error


def hidden(*bases: Any) -> type[Exception]:
    """A class that no module names, as one that only a library knows."""
    return type("Hidden", bases, {})


ERRORS: dict[str, tuple[Callable[[], Exception], tuple[str, ...]]] = {
    "file": (lambda: FileNotFoundError(2, "No such file", "a.txt"), ("errno", "strerror", "filename", "filename2")),
    "two files": (lambda: OSError(18, "Cross-device link", "a", None, "b"), ("filename", "filename2")),
    "name": (lambda: NameError("no such name", name="x"), ("name",)),
    "attribute": (lambda: AttributeError("no such attribute", name="x", obj={}), ("name",)),
    "import": (lambda: ImportError("no such module", name="x", path="y"), ("msg", "name", "path")),
    "slots": (lambda: Slotted(7), ("code",)),
    "frozen": (lambda: Frozen(7), ("code",)),
    "notes": (noted, ("__notes__",)),
    "group": (lambda: ExceptionGroup("two", [noted()]), ("message",)),
    "caused": (lambda: caused(noted()), ("args",)),
    "in a circle": (circle, ("args",)),
    "half a page": (lambda: HTTPError("http://x", 429, "Too Many Requests", Message(), BytesIO(b"")), ("code", "msg")),
}
HIDDEN: dict[str, tuple[Callable[[], Exception], tuple[type[Exception], ...]]] = {
    "value": (lambda: hidden(ValueError)("odd"), (ValueError,)),
    "file": (lambda: hidden(FileNotFoundError)(2, "No such file", "a.txt"), (FileNotFoundError, OSError)),
    "two": (lambda: hidden(KeyError, AttributeError)("odd"), (LookupError, AttributeError)),
    "below one that is known": (lambda: hidden(hidden(Slotted))(7), (Slotted,)),
    "with arguments of its own": (lambda: hidden(UnicodeDecodeError)("utf-8", b"a", 0, 1, "odd"), (ValueError,)),
    "group": (lambda: hidden(ExceptionGroup)("two", [ValueError("odd")]), (ExceptionGroup,)),
}


@step(output=None)
def boom(made: str) -> None:
    WORLD(made)
    error = HIDDEN[made[7:]][0]() if made.startswith("hidden ") else ERRORS[made][0]()
    raise error


@pytest.fixture
def trail() -> Iterator[Trail]:
    with everstep.open(":memory:") as opened:
        yield opened


@pytest.mark.parametrize("made", ERRORS)
def test_an_exception_has_what_is_in_no_dict(trail: Trail, made: str) -> None:
    """Promise 6: a handler that looks at the name of the file finds it, and does the same as before."""
    live, served = seen_twice(trail, boom, made)
    assert isinstance(served, type(live))
    assert (type(served).__qualname__, str(served), served.args[:1]) == (
        type(live).__qualname__, str(live), live.args[:1],
    )  # fmt: skip
    names = ERRORS[made][1]
    assert [getattr(served, name) for name in names] == [getattr(live, name) for name in names]


def test_the_members_of_a_group_have_their_notes(trail: Trail) -> None:
    _, served = seen_twice(trail, boom, "group")
    assert served.exceptions[0].__notes__ == ["in line 3"]


def test_what_an_exception_was_raised_from_is_there(trail: Trail) -> None:
    """Promise 6: handlers look there for what a library wrapped."""
    live, served = seen_twice(trail, boom, "caused")
    assert (type(served.__cause__), served.__cause__.args) == (ValueError, ("odd",))
    assert served.__cause__.__notes__ == live.__cause__.__notes__
    assert served.__cause__.__cause__ is None


def test_exceptions_that_were_raised_from_one_another_are_kept_once(trail: Trail) -> None:
    _, served = seen_twice(trail, boom, "in a circle")
    assert [(type(each), each.__cause__) for each in served.__cause__.exceptions] == [(Slotted, None)] * 2


def test_what_a_recorded_exception_has_not_is_an_attribute_that_is_missing(trail: Trail) -> None:
    """Promise 13: that of urllib looks for it in the answer, which was not stored."""
    live, served = seen_twice(trail, boom, "half a page")
    assert (served.code, str(served), repr(served)) == (429, str(live), repr(live))
    assert not hasattr(served, "what nobody has")
    with pytest.raises(AttributeError, match="recorded HTTPError has no 'headers'"):
        _ = served.headers


@pytest.mark.parametrize("made", HIDDEN)
def test_who_caught_an_exception_by_a_class_that_it_derives_from_catches_it_again(trail: Trail, made: str) -> None:
    """Promise 6: also where only a library knows its own class."""
    live, served = seen_twice(trail, boom, f"hidden {made}")
    assert isinstance(served, RecordedError)
    assert all(isinstance(each, cls) for each in (live, served) for cls in HIDDEN[made][1])
    assert (str(served), type(served).__qualname__) == (str(live), type(live).__qualname__)
    sent = pickle.loads(pickle.dumps(served))
    assert (type(sent), str(sent)) == (RecordedError, str(live))


def test_a_group_whose_class_is_hidden_is_split_by_its_handlers(trail: Trail) -> None:
    _, served = seen_twice(trail, boom, "hidden group")
    matched, rest = served.split(ValueError)
    assert [str(each) for each in matched.exceptions] == ["odd"]
    assert rest is None


def test_one_that_went_through_a_step_after_a_crash_is_still_what_it_was(trail: Trail) -> None:
    """It is recorded again, for the step around it, and served from there after a second crash."""
    caught: list[Exception] = []

    @step(output=None)
    def around() -> None:
        try:
            boom("hidden file")
        finally:
            act("inside")

    @workflow
    def catches() -> str:
        try:
            around()
        except OSError as error:
            caught.append(error)
        return act("after")

    for place in ("inside", "after"):
        WORLD.crash = {place}
        crashed(trail, catches, id="r")
    Runner(trail).run(catches, id="r")
    assert [(str(each), type(each).__qualname__) for each in caught] == [
        ("[Errno 2] No such file: 'a.txt'", "Hidden")
    ] * 2
    assert trail.replay("r", catches).identical


IN_A_LIBRARY = """
import os, sys, types
import everstep

sys.modules["library"] = types.ModuleType("library")  # which the code below does not name
exec("from dataclasses import dataclass\\n@dataclass\\nclass Close:\\n    code: int", vars(sys.modules["library"]))

def failed():
    close = vars(sys.modules["library"])["Close"]
    error, cause = ValueError("lost", 7), OSError(5, "closed", close(1006))
    error.close, error.code, error.__cause__ = close(1011), 1011, cause
    return ExceptionGroup("all", [error])

@everstep.step
def boom():
    raise failed()

@everstep.workflow
def catches():
    try:
        boom()
    except ExceptionGroup as group:
        error = group.exceptions[0]
        print([repr(error), error.code, hasattr(error, "close"), str(error.__cause__)[:9], error.__cause__.errno])
    if "CRASH" in os.environ:
        sys.stdout.flush()
        os._exit(0)

everstep.Runner(everstep.open(sys.argv[1])).run(catches, id="r")
"""


def test_what_an_exception_held_of_a_library_that_the_code_cannot_name_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 6: nobody chose to store it, and the run is resumed."""
    monkeypatch.setenv("CRASH", "1")
    live = output(IN_A_LIBRARY, tmp_path / "trail.db")
    monkeypatch.delenv("CRASH")
    assert live == "[\"ValueError('lost', 7)\", 1011, True, '[Errno 5]', 5]"
    assert output(IN_A_LIBRARY, tmp_path / "trail.db") == live.replace("True", "False")


def test_an_awaited_step_raises_the_same(trail: Trail) -> None:
    @step(output=None)
    async def missing() -> None:
        boom.function("file")

    @workflow
    async def catches() -> str:
        try:
            await missing()
        except OSError as error:
            found = error.filename
        return str(act(found))

    WORLD.crash = {"a.txt"}
    crashed(trail, catches, id="r")
    assert asyncio.run(everstep.AsyncRunner(trail).run(catches, id="r")).value == "a.txt"


PARTS = """
import os, sys, everstep
sys.path.insert(0, sys.argv[2])
import shop.goods.models

@everstep.step
def find():
    print("found", end=" ")
    return shop.goods.models.Order(4)

@everstep.step
def ship(order):
    raise shop.goods.models.Refused(order.number)

@everstep.step
def end():
    if sys.argv[3] == "crash":
        os._exit(9)

@everstep.workflow
def flow():
    order = find()
    try:
        ship(order)
    except shop.goods.models.Refused as error:
        end()
        return f"{order.number} {error}"

print(everstep.Runner(everstep.open(sys.argv[1])).run(flow, id="r").value)
"""
MODELS = """
import dataclasses
@dataclasses.dataclass
class Order:
    number: int
class Refused(Exception): ...
"""


def test_classes_in_parts_of_a_package_are_found_in_a_new_process(tmp_path: Path) -> None:
    """Promise 7: `import shop.goods.models` lets the code name what is in there."""
    folder = tmp_path / "shop" / "goods"
    folder.mkdir(parents=True)
    (folder / "models.py").write_text(MODELS)
    trail = tmp_path / "trail.db"
    assert python(PARTS, trail, tmp_path, "crash").returncode == 9
    assert output(PARTS, trail, tmp_path, "go on") == "4 4"

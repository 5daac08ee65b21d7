"""What a test captures: recorded once, everything live, into a file beside the test; answered from it ever after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from everstep.capturing.session import Session, capture
from everstep.errors import DivergenceError, EverstepError, SealedError
from everstep.policy.rules import Rule
from everstep.testing.plugin import UPDATED
from everstep.testing.regression import told_failure
from everstep.trail.trail import Trail
from everstep.trail.trail import open as open_trail

_RUN = "capture"
_AGAIN = "pytest --everstep-update makes the calls anew, live, and writes the file."


_WRITTEN = pytest.StashKey[dict[Path, "Blocks"]]()


class Blocks:
    """The fixture: makes the calls of a block, or has them answered by the file."""

    def __init__(self, item: pytest.Item) -> None:
        self.item = item
        self._left: list[str] = []  # the files of blocks that were not entered

    def __call__(self, path: str, redact: Sequence[Rule] = (), **how: Any) -> AbstractContextManager[Session]:
        """A block to be entered."""
        place, is_update = self.item.path.parent / path, self.item.config.getoption("everstep_update")
        if not is_update and not place.is_file():
            pytest.fail(f"there is no file {str(place)!r}: {_AGAIN}", pytrace=False)
        self._left.append(path)
        return self._block(path, place, redact, how, is_update=is_update)

    @contextmanager
    def _block(
        self, path: str, place: Path, redact: Sequence[Rule], how: dict[str, Any], *, is_update: bool
    ) -> Iterator[Session]:
        __tracebackhide__ = True
        self._left.remove(path)
        again = _AGAIN
        if is_update:
            written = self.item.config.stash.setdefault(_WRITTEN, {})
            first = written.get(place)
            if first is None or (first is not self and first.item is self.item):  # it runs once more
                written[place] = self
                self.item.user_properties.append((UPDATED, path))
                with _recorded(place, redact, how) as session:
                    yield session
                return
            again = f"give this block a file of its own. {first.item.nodeid} has just written {path}."
        with _replayed(path, place, redact, how, again) as session:
            yield session

    def end(self) -> None:
        """Have the test fail if it left a block out: what stood below it was live, and is in no file."""
        if self._left:
            pytest.fail(
                f"everstep_capture({self._left[0]!r}) captured nothing: it is a block, to be entered by `with`.",
                pytrace=False,
            )


@contextmanager
def _recorded(place: Path, redact: Sequence[Rule], how: dict[str, Any]) -> Iterator[Session]:
    """Make the calls, and write the file, however the block ends."""
    with open_trail(":memory:", redact=redact) as trail:
        try:
            with capture(trail, _RUN, name=place.stem, **how) as session:
                yield session
        finally:
            place.parent.mkdir(parents=True, exist_ok=True)
            trail.export(_RUN, place)


@contextmanager
def _replayed(path: str, place: Path, redact: Sequence[Rule], how: dict[str, Any], again: str) -> Iterator[Session]:
    """Answer the calls from the file. The test fails where they are others."""
    __tracebackhide__ = True
    with open_trail(":memory:", redact=redact) as trail:
        run = _imported(trail, path, place)
        session = None
        try:
            with capture(trail, run, name=trail.run(run).workflow, mode="verify", **how) as session:
                yield session
        except (DivergenceError, SealedError):
            if session is None or session.report is None:
                raise
            told = told_failure(path, session.report, again)
            # Alone: the error says the same, and a way out that a test has not.
            raise pytest.fail.Exception(told, pytrace=False) from None


def _imported(trail: Trail, path: str, place: Path) -> str:
    try:
        return trail.import_run(place).id
    except EverstepError as error:
        pytest.fail(f"{path}: {error}", pytrace=False)

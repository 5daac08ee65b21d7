"""What a test captures: recorded once, everything live, into a file beside the test; answered from it ever after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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


def capturer(item: pytest.Item) -> Callable[..., AbstractContextManager[Session]]:
    """The fixture: makes the calls of a block, or has them answered by the file."""

    def everstep_capture(path: str, redact: Sequence[Rule] = (), **how: Any) -> AbstractContextManager[Session]:
        place = item.path.parent / path
        if item.config.getoption("everstep_update"):
            item.user_properties.append((UPDATED, path))
            return _recorded(place, redact, how)
        if not place.is_file():
            pytest.fail(f"there is no file {str(place)!r}: {_AGAIN}", pytrace=False)
        return _replayed(path, place, redact, how)

    return everstep_capture


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
def _replayed(path: str, place: Path, redact: Sequence[Rule], how: dict[str, Any]) -> Iterator[Session]:
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
            pytest.fail(told_failure(path, session.report, _AGAIN), pytrace=False)


def _imported(trail: Trail, path: str, place: Path) -> str:
    try:
        return trail.import_run(place).id
    except EverstepError as error:
        pytest.fail(f"{path}: {error}", pytrace=False)

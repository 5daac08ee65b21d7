"""The pytest plugin: recorded runs as tests.

    @pytest.mark.everstep_replay("runs/failed-booking.everstep", workflow=booking)
    def test_the_booking_goes_as_it_went(): ...

Loaded with every session of pytest that has Everstep installed, so it loads nothing until a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import pytest

MARKER = "everstep_replay"
UPDATED = "everstep_updated"  # among the properties of a test: the file that it recorded again
_SESSION = pytest.StashKey[ExitStack]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two switches."""
    group = parser.getgroup("everstep", "recorded runs")
    group.addoption(
        "--everstep-update",
        action="store_true",
        help="run the workflows of everstep_replay tests live, with the inputs on record, make the calls of "
        "everstep_capture, and write their files anew",
    )
    group.addoption(
        "--everstep-always-replay",
        action="store_true",
        help="have every run go through its code again after each step, so that hidden nondeterminism shows",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and the forced replay true if it is wanted."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(path, workflow, redact=(), inputs=None, rerun=()): replay the run in the file, from the folder "
        "of the test, against today's code",
    )
    if config.getoption("everstep_always_replay"):
        stack = config.stash[_SESSION] = ExitStack()
        stack.enter_context(import_module("everstep.testing").always_replay())


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave things as they were."""
    config.stash.get(_SESSION, ExitStack()).close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Before a marked test runs: the replay. The test fails with its report, and does not run, where they part."""
    if item.get_closest_marker(MARKER) is not None:
        import_module("everstep.testing.regression").check_marked(item)


@pytest.fixture
def everstep_report(request: pytest.FixtureRequest) -> Any:
    """The ReplayReport of the test that is marked with everstep_replay."""
    return import_module("everstep.testing.regression").report_of(request.node)


@pytest.fixture
def everstep_replay(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`everstep_replay(path, workflow)`: the ReplayReport. The test fails with it where code and record part."""
    made: Callable[..., Any] = import_module("everstep.testing.regression").replayer(request.node)
    return made


@pytest.fixture
def everstep_capture(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """A context manager for the calls of a test: they are answered by a file, or made and written there."""
    made = import_module("everstep.testing.captures").Blocks(request.node)
    yield made
    made.end()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say which files were recorded again."""
    reports = [report for found in terminalreporter.stats.values() for report in found if hasattr(report, "when")]
    updated = [
        value
        for report in reports
        if report.when == "call"
        for name, value in report.user_properties
        if name == UPDATED
    ]
    if updated:
        terminalreporter.section("everstep: recorded again, live")
        for line in updated:
            terminalreporter.line(line)

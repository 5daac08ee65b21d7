from __future__ import annotations

import os
import subprocess
import sys

import pytest

import everstep
from tests.integration.plugging import EXPORT, REPLAYS, change, export, made, plugin, pytest_in
from tests.integration.support import environment

pytest_plugins = ["pytester"]


@pytest.fixture
def shop(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    return made(pytester, monkeypatch)


def test_a_file_is_recorded_again_when_that_is_asked_for_and_it_is_said(shop: pytest.Pytester) -> None:
    change(shop, "min(search", "max(search")
    change(shop, 'raise ConnectionError("declined")', 'return f"paid {amount}"')
    shop.makepyfile(REPLAYS)
    before = (shop.path / "runs/b-1.everstep").read_bytes()
    pytest_in(shop).assert_outcomes(failed=1)
    assert (shop.path / "runs/b-1.everstep").read_bytes() == before
    result = pytest_in(shop, "--everstep-update")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([
        "*everstep: recorded again, live*", "runs/b-1.everstep: b-1, failed with 4 entries, is now completed with 4",
    ])  # fmt: skip
    pytest_in(shop).assert_outcomes(passed=1)
    trail = everstep.open(":memory:")
    run = trail.import_run(shop.path / "runs/b-1.everstep")
    assert (run.id, run.status, run.tags) == ("b-1", "completed", {"user": "ada"})
    assert trail.step("b-1", run.head).output == "paid 90"


def test_recording_again_gives_the_answers_that_are_on_record(shop: pytest.Pytester) -> None:
    change(shop, "{text}: ", "{text} = ")
    shop.makepyfile(REPLAYS.replace("b-1", "a-1").replace("booking", "approval"))
    pytest_in(shop).assert_outcomes(failed=1)
    pytest_in(shop, "--everstep-update").assert_outcomes(passed=1)
    trail = everstep.open(":memory:")
    run = trail.import_run(shop.path / "runs/a-1.everstep")
    assert trail.step("a-1", run.head).output == "it = yes"


def test_inputs_that_could_not_be_stored_are_given_by_the_test(shop: pytest.Pytester) -> None:
    test = """
        import pytest, shop

        @pytest.mark.everstep_replay("runs/c-1.everstep", workflow=shop.chat%s)
        def test_chat():
            pass
    """
    shop.makepyfile(test % "")
    for words in ((), ("--everstep-update",)):
        result = pytest_in(shop, *words)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["*'client'*stored*"])
    shop.makepyfile(test % ', inputs={"client": shop.Client(), "question": "why?"}')
    pytest_in(shop).assert_outcomes(passed=1)
    change(shop, "{question}, {", "{question} {")
    pytest_in(shop).assert_outcomes(failed=1)
    pytest_in(shop, "--everstep-update").assert_outcomes(passed=1)
    pytest_in(shop).assert_outcomes(passed=1)


def test_what_replays_otherwise_at_once_is_seen_when_it_is_recorded_again(shop: pytest.Pytester) -> None:
    change(shop, 'best["price"])\n', 'best["price"] + __import__("time").time_ns())\n')
    shop.makepyfile(REPLAYS)
    result = pytest_in(shop, "--everstep-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*'pay': changed argument*"])


def test_inputs_that_no_longer_fit_are_told_and_the_file_stays(shop: pytest.Pytester) -> None:
    change(shop, "booking(city, budget=100)", "booking(town)")
    change(shop, "search(city), key", "search(town), key")
    shop.makepyfile(REPLAYS)
    before = (shop.path / "runs/b-1.everstep").read_bytes()
    result = pytest_in(shop, "--everstep-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*could not be recorded again: TypeError: *town*"])
    assert (shop.path / "runs/b-1.everstep").read_bytes() == before


def test_inputs_that_were_secrets_are_told(shop: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_KEY_FILE", str(shop.path / "key"))
    code = EXPORT.replace('"Rome"', 'everstep.Secret("Rome")')
    export(shop, code)
    shop.makepyfile(REPLAYS)
    pytest_in(shop).assert_outcomes(passed=1)
    result = pytest_in(shop, "--everstep-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*cannot be recorded again*'city'*could not be stored*"])


def test_several_workers_say_what_they_recorded_too(shop: pytest.Pytester) -> None:
    shop.makepyfile(REPLAYS)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "1", "--everstep-update", *plugin()],
        cwd=shop.path, env={**environment(), "PYTHONPATH": f"{environment()['PYTHONPATH']}{os.pathsep}{shop.path}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "recorded again, live" in result.stdout, result.stdout
    assert "1 passed" in result.stdout

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points

import pytest

import everstep
from everstep.errors import BlockedNetworkError
from everstep.testing.network import no_network
from tests.integration.support import ROOT, environment

pytest_plugins = ["pytester"]

PLUGIN = "everstep.testing.plugin"
SHOP = """
import everstep
from everstep import step, workflow

LIVE = []

@step
def search(city):
    LIVE.append(city)
    return [{"hotel": "A", "price": 90}, {"hotel": "B", "price": 70}]

@step
def pay(hotel, amount):
    raise ConnectionError("declined")

@workflow
def booking(city, budget=100):
    best = min(search(city), key=lambda offer: offer["price"])
    return pay(best["hotel"], best["price"])

@workflow
def approval(text):
    return f"{text}: {everstep.pause('send it?')}"
"""
EXPORT = """
import everstep, shop

with everstep.open(":memory:") as trail:
    runner = everstep.Runner(trail)
    runner.run(shop.booking, "Rome", id="b-1", error_handling="continue", tags={"user": "ada"})
    runner.run(shop.approval, "it", id="a-1")
    runner.run(shop.approval, id="a-1", answer="yes")
    runner.run(shop.approval, "it", id="a-2")
    for name in ("b-1", "a-1", "a-2"):
        trail.export(name, f"runs/{name}.everstep")
"""
REPLAYS = """
import pytest, shop

@pytest.mark.everstep_replay("runs/b-1.everstep", workflow=shop.booking)
def test_booking():
    pass
"""


@pytest.fixture(autouse=True)
def the_same_package_as_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])


@pytest.fixture
def shop(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with a program, and runs of it on file."""
    pytester.makepyfile(shop=SHOP, export=EXPORT)
    pytester.mkdir("runs")
    subprocess.run([sys.executable, "export.py"], cwd=pytester.path, env=environment(), check=True)
    (pytester.path / "export.py").unlink()
    return pytester


def pytest_in(place: pytest.Pytester, *words: str) -> pytest.RunResult:
    """Run pytest there as somebody does who has installed Everstep."""
    known = any(found.value == PLUGIN for found in entry_points(group="pytest11"))
    plugin = [] if known else ["-p", PLUGIN]
    return place.runpytest_subprocess(
        *plugin, "-p", "no:cacheprovider", "-p", "no:randomly", "--strict-markers", *words
    )


def change(place: pytest.Pytester, old: str, new: str) -> None:
    path = place.path / "shop.py"
    assert old in path.read_text("utf-8")
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")


def test_pytest_finds_the_plugin_by_its_entry_point_and_it_loads_nothing() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"everstep": PLUGIN}
    code = f"import {PLUGIN}, sys; print(*sorted(name for name in sys.modules if name.startswith('everstep.')))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["everstep.testing", PLUGIN]


def test_a_run_that_the_code_still_does_is_a_passing_test_and_nothing_is_live(shop: pytest.Pytester) -> None:
    """Promise 6."""
    shop.makepyfile(REPLAYS + "    assert shop.LIVE == []\n")
    pytest_in(shop).assert_outcomes(passed=1)


def test_the_report_comes_as_a_fixture(shop: pytest.Pytester) -> None:
    shop.makepyfile("""
        import pytest, shop

        @pytest.mark.everstep_replay("runs/b-1.everstep", workflow=shop.booking)
        def test_marked(everstep_report):
            assert everstep_report.identical
            assert (everstep_report.status, everstep_report.served) == ("failed", 2)

        def test_called(everstep_replay):
            assert everstep_replay("runs/b-1.everstep", shop.booking).identical
            assert everstep_replay("runs/a-2.everstep", workflow=shop.approval).whole is False
    """)
    pytest_in(shop).assert_outcomes(passed=2)


def test_a_change_is_a_failure_with_both_sides_and_no_frame_of_ours(shop: pytest.Pytester) -> None:
    """Promise 6."""
    change(shop, "min(search", "max(search")
    shop.makepyfile(REPLAYS)
    result = pytest_in(shop)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        "*test_booking*",
        "runs/b-1.everstep: the code does not do what is on record at step 2, 'pay': changed argument",
        "'pay' is asked for with other arguments.",
        "  hotel:",
        "    - 'B'",
        "    + 'A'",
        "  amount:",
        "    - 70",
        "    + 90",
        "note: the code of the workflow is another *",
        "*--everstep-update*",
        "FAILED *test_booking*",
    ])  # fmt: skip
    for word in ("Traceback", "traceback", "regression.py", "plugin.py", "rehearsal"):
        result.stdout.no_fnmatch_line(f"*{word}*")


def test_a_fixture_that_fails_points_at_the_line_of_the_test(shop: pytest.Pytester) -> None:
    change(shop, "min(search", "max(search")
    shop.makepyfile("""
        import shop

        def test_called(everstep_replay):
            everstep_replay("runs/b-1.everstep", shop.booking)
    """)
    result = pytest_in(shop)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [">*everstep_replay(*", "E * changed argument", "E *- 'B'", "E *+ 'A'", "*.py:4: Failed"]
    )
    result.stdout.no_fnmatch_line("*regression.py*")


def test_a_text_of_many_lines_is_shown_as_a_diff(shop: pytest.Pytester) -> None:
    prompt = "You book hotels.\\nBe kind.\\nCity: "
    change(shop, "min(search(city)", f"min(search('{prompt}' + city)")
    subprocess.run([sys.executable, "-c", EXPORT], cwd=shop.path, env=environment(), check=True)
    change(shop, "Be kind.", "Be quick.")
    shop.makepyfile(REPLAYS)
    pytest_in(shop).stdout.fnmatch_lines(
        ["  city:", "      You book hotels.", "    - Be kind.", "    + Be quick.", "      City: Rome"]
    )


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ('"runs/none.everstep", workflow=shop.booking', "*there is no file *none.everstep*everstep export RUN*"),
        ('"runs/b-1.everstep", workflow=shop.approval', "*'b-1' is one of workflow 'booking', not of 'approval'*"),
        ('"runs/b-1.everstep", workflow=len', "*is no workflow*"),
        ('"runs/b-1.everstep"', "*workflow*write @pytest.mark.everstep_replay*"),
        ("", "*path*write @pytest.mark.everstep_replay*"),
        ('"shop.py", workflow=shop.booking', "*damage in *shop.py', line 1*"),
    ],
)
def test_what_cannot_be_replayed_is_a_clear_failure(shop: pytest.Pytester, marker: str, said: str) -> None:
    """Promise 13."""
    shop.makepyfile(REPLAYS.replace('"runs/b-1.everstep", workflow=shop.booking', marker))
    result = pytest_in(shop)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([said])


def test_paths_are_those_beside_the_test(shop: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    test = shop.path / "runs" / "test_beside.py"
    test.write_text(REPLAYS.replace("runs/b-1", "b-1"), "utf-8")
    pytest_in(shop, "runs").assert_outcomes(passed=1)
    monkeypatch.setenv("PYTHONPATH", f"{environment()['PYTHONPATH']}{os.pathsep}{shop.path}")
    monkeypatch.chdir(shop.path / "runs")
    pytest_in(shop, str(test)).assert_outcomes(passed=1)


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
    subprocess.run([sys.executable, "-c", code], cwd=shop.path, env=environment(), check=True)
    shop.makepyfile(REPLAYS)
    pytest_in(shop).assert_outcomes(passed=1)
    result = pytest_in(shop, "--everstep-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*cannot be recorded again*'city'*could not be stored*"])


def test_rules_of_ones_own_keep_secrets_out_of_a_replay_too(
    shop: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERSTEP_KEY_FILE", str(shop.path / "key"))
    rule = 'everstep.Rule("hotel", pattern=r"HTL-\\d+")'
    change(shop, '"hotel": "B"', '"hotel": "HTL-12345"')
    code = EXPORT.replace('":memory:"', f'":memory:", redact=[{rule}]')
    subprocess.run([sys.executable, "-c", code], cwd=shop.path, env=environment(), check=True)
    assert "HTL-12345" not in (shop.path / "runs/b-1.everstep").read_text("utf-8")
    shop.makepyfile(
        REPLAYS.replace("shop.booking", f"shop.booking, redact=[{rule}]").replace("import", "import everstep,")
    )
    pytest_in(shop).assert_outcomes(passed=1)


def test_code_that_reaches_for_the_network_fails_the_test_though_it_catches_the_error(shop: pytest.Pytester) -> None:
    change(
        shop,
        "    best = min",
        "    import socket\n    try:\n        socket.create_connection(('192.0.2.1', 80))\n"
        "    except OSError:\n        pass\n    best = min",
    )
    shop.makepyfile(REPLAYS)
    result = pytest_in(shop)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the code between the steps is live*", "reached for the network: 192.0.2.1*"])


def test_the_network_is_back_behind_a_replay() -> None:
    before = {name: getattr(socket, name) for name in ("getaddrinfo", "gethostbyname")}
    with socket.create_server(("127.0.0.1", 0)) as server:
        with no_network() as tried, socket.socket() as one, socket.socket(type=socket.SOCK_DGRAM) as other:
            for reach in (
                lambda: socket.create_connection(server.getsockname()),
                lambda: one.connect(server.getsockname()),
                lambda: one.connect_ex(server.getsockname()),
                lambda: other.sendto(b"x", server.getsockname()),
                lambda: socket.getaddrinfo("example.org", 80),
            ):
                with pytest.raises(BlockedNetworkError, match="no network in a replay"):
                    reach()
        assert [place.rpartition(":")[0] or place for place in tried] == [*["127.0.0.1"] * 4, "example.org"]
        socket.create_connection(server.getsockname()).close()
    assert {name: getattr(socket, name) for name in before} == before
    assert not {"connect", "connect_ex", "sendto", "sendmsg"} & vars(socket.socket).keys()


ALWAYS = """
import random, everstep, shop

@everstep.step
def ask(number):
    return number

@everstep.workflow
def chance():
    return ask(1) + ask(random.random())

def test_nondeterminism():
    assert everstep.Runner().run(chance).completed
"""


def test_the_forced_replay_is_on_for_a_whole_suite(shop: pytest.Pytester) -> None:
    shop.makepyfile(ALWAYS)
    pytest_in(shop).assert_outcomes(passed=1)
    result = pytest_in(shop, "--everstep-always-replay")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*DivergenceError*"])


def test_a_session_without_runs_on_file_loads_none_of_the_library(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_nothing_is_loaded():
            assert [name for name in sys.modules if name.startswith("everstep.")] == [
                "everstep.testing", "everstep.testing.plugin"
            ]
    """)
    known = any(found.value == PLUGIN for found in entry_points(group="pytest11"))
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *([] if known else ["-p", PLUGIN])], cwd=pytester.path,
        env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 passed" in result.stdout


def test_the_marker_and_the_switches_have_their_help(pytester: pytest.Pytester) -> None:
    pytest_in(pytester, "--markers").stdout.fnmatch_lines(["@pytest.mark.everstep_replay(path, workflow, *"])
    pytest_in(pytester, "--help").stdout.fnmatch_lines(["*--everstep-update*", "*--everstep-always-replay*"])


def test_several_workers_say_what_they_recorded_too(shop: pytest.Pytester) -> None:
    shop.makepyfile(REPLAYS)
    known = any(found.value == PLUGIN for found in entry_points(group="pytest11"))
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "1", "--everstep-update", *([] if known else ["-p", PLUGIN])],
        cwd=shop.path, env={**environment(), "PYTHONPATH": f"{environment()['PYTHONPATH']}{os.pathsep}{shop.path}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "recorded again, live" in result.stdout, result.stdout
    assert "1 passed" in result.stdout

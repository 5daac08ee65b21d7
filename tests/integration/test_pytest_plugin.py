from __future__ import annotations

import os
import socket
import subprocess
import sys
import tomllib

import pytest

from everstep.errors import BlockedNetworkError
from everstep.testing.network import no_network
from tests.integration.plugging import EXPORT, PLUGIN, REPLAYS, change, export, made, plugin, pytest_in
from tests.integration.support import ROOT, environment

pytest_plugins = ["pytester"]


@pytest.fixture
def shop(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    return made(pytester, monkeypatch)


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
        "'pay' was called with different arguments.",
        "  hotel:",
        "    - 'B'",
        "    + 'A'",
        "  amount:",
        "    - 70",
        "    + 90",
        "note: the workflow's code has changed since it was recorded",
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
    export(shop, EXPORT)
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


def test_a_test_with_several_marks_needs_all_of_its_runs(shop: pytest.Pytester) -> None:
    second = (
        '@pytest.mark.everstep_replay("runs/a-1.everstep", workflow=shop.approval)\ndef test_booking(everstep_report):'
    )
    shop.makepyfile(
        REPLAYS.replace("def test_booking():", second) + "    assert everstep_report.workflow == 'approval'\n"
    )
    pytest_in(shop).assert_outcomes(passed=1)
    change(shop, "min(search", "max(search")
    result = pytest_in(shop)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["runs/b-1.everstep: *"])


def test_a_run_with_secrets_replays_on_a_machine_with_another_key(
    shop: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERSTEP_KEY_FILE", str(shop.path / "key"))
    code = EXPORT.replace('"Rome"', 'everstep.Secret("Rome")')
    export(shop, code)
    monkeypatch.setenv("EVERSTEP_KEY_FILE", str(shop.path / "another"))
    shop.makepyfile(REPLAYS)
    pytest_in(shop).assert_outcomes(passed=1)


def test_rules_of_ones_own_keep_secrets_out_of_a_replay_too(
    shop: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERSTEP_KEY_FILE", str(shop.path / "key"))
    rule = 'everstep.Rule("hotel", pattern=r"HTL-\\d+")'
    change(shop, '"hotel": "B"', '"hotel": "HTL-12345"')
    code = EXPORT.replace('":memory:"', f'":memory:", redact=[{rule}]')
    export(shop, code)
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
    methods = dict(vars(socket.socket))
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
        with no_network():
            with no_network():
                pass
            with pytest.raises(BlockedNetworkError):
                socket.create_connection(server.getsockname())
    assert {name: getattr(socket, name) for name in before} == before
    assert vars(socket.socket) == methods


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
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin()], cwd=pytester.path,
        env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 passed" in result.stdout


def test_the_marker_and_the_switches_have_their_help(pytester: pytest.Pytester) -> None:
    pytest_in(pytester, "--markers").stdout.fnmatch_lines(["@pytest.mark.everstep_replay(path, workflow, *"])
    pytest_in(pytester, "--help").stdout.fnmatch_lines(["*--everstep-update*", "*--everstep-always-replay*"])

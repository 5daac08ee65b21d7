from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import everstep
from everstep import Runner
from tests.integration.cli_support import HOSTILE, data, process, run
from tests.integration.moved import KINDS, booking
from tests.integration.support import environment

SHOP = """
import everstep

@everstep.step
def search(city):
    return [90, 70]

@everstep.workflow(name="booking")
def book(city):
    return min(search(city))

print("loaded")

class Box:
    inner = book

if __name__ == "__main__":
    with everstep.open("trail.db") as trail:
        everstep.Runner(trail).run(book, "Rome", id="b/1: Rome")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def trail(place: Path) -> Path:
    with everstep.open(place / "trail.db") as made:
        KINDS["failed"][0](made)
        KINDS["children"][0](made)
    return place / "trail.db"


@pytest.fixture
def shop(place: Path) -> Path:
    """A folder with a program and its trail."""
    (place / "shop.py").write_text(SHOP, "utf-8")
    subprocess.run([sys.executable, "shop.py"], cwd=place, env=environment(), check=True, capture_output=True)
    return place


def test_a_run_goes_from_one_trail_to_another(trail: Path, place: Path) -> None:
    result = run("export", "children", "-o", "kept/journey.everstep", "--trail", trail)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "wrote kept/journey.everstep: 4 rows.\n"
    result = run("import", "kept/journey.everstep", "--trail", "new/other.db")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines() == [
        "children: completed, 4 rows.", "next: everstep show children --trail new/other.db",
    ]  # fmt: skip
    assert run("verify", "--trail", "new/other.db").exit_code == 0
    assert [found["id"] for found in data("runs", "--all", "--trail", "new/other.db")["runs"]] == [
        "children", "children/booking#0", "children/booking#1",
    ]  # fmt: skip


def test_json_tells_the_same(trail: Path, place: Path) -> None:
    found = data("export", "failed", "--trail", trail)["export"]
    assert found == {"file": "failed.everstep", "bytes": (place / "failed.everstep").stat().st_size, "test": None}
    assert data("import", "failed.everstep", "--trail", "other.db") == {
        "import": [{"file": "failed.everstep", "run": "failed", "workflow": "booking", "status": "failed"}]
    }


def test_several_files_are_read_and_a_run_that_is_there_is_an_error(trail: Path, place: Path) -> None:
    for name in ("failed", "children"):
        run("export", name, "--trail", trail)
    assert run("import", "failed.everstep", "children.everstep", "--trail", "other.db").exit_code == 0
    result = run("import", "failed.everstep", "--trail", "other.db")
    assert result.exit_code == 5
    assert "a run 'failed' exists already" in result.stderr
    assert run("import", "failed.everstep", "--id", "second", "--trail", "other.db").exit_code == 0
    assert run("import", "failed.everstep", "children.everstep", "--id", "x", "--trail", "other.db").exit_code == 2


def test_damage_has_its_exit_code_and_names_the_line(trail: Path, place: Path) -> None:
    """Promise 9."""
    run("export", "failed", "--trail", trail)
    file = place / "failed.everstep"
    file.write_text(file.read_text("utf-8").replace("declined", "accepted"), "utf-8")
    result = run("import", file, "--trail", "other.db")
    assert result.exit_code == 6
    assert "line 5: the line does not tell what the step's row holds" in result.stderr
    assert data("runs", "--trail", "other.db")["runs"] == []


def test_what_is_not_there_is_told(trail: Path) -> None:
    assert run("export", "none", "--trail", trail).exit_code == 3
    assert run("export", "failed", "--trail", "none.db").exit_code == 1
    result = run("import", "none.everstep", "--trail", trail)
    assert result.exit_code == 1
    assert "No such file" in result.stderr


def test_an_imported_run_is_resumed_shown_and_compared_as_any_other(trail: Path, place: Path) -> None:
    run("export", "failed", "--trail", trail)
    run("import", "failed.everstep", "--trail", "other.db")
    run("import", "failed.everstep", "--trail", "other.db", "--id", "second")
    assert "the card was declined" in run("show", "failed", "--trail", "other.db").stdout
    assert run("compare", "failed", "second", "--trail", "other.db").exit_code == 0
    with everstep.open("other.db") as other:
        other.fork("second", 2, id="fork", outcome="paid").release()
        assert Runner(other).run(booking, id="fork").value == "paid"


def test_an_id_decides_no_path(place: Path) -> None:
    with everstep.open("trail.db") as trail:
        trail.record("../../up/and away", workflow="w").finish()
        trail.record(f"x{HOSTILE}", workflow="w").finish()
        trail.record("...", workflow="w").finish()
    for run_id, name in (
        ("../../up/and away", "up-and-away"),
        (f"x{HOSTILE}", "x-0-owned-2J-31m-evil"),
        ("...", "run"),
    ):
        result = run("export", run_id, "--trail", "trail.db")
        assert result.exit_code == 0, result.stderr
        assert (place / f"{name}.everstep").is_file()
        assert not set(result.stderr) & set("\x1b\x07\u202e")


def test_a_test_is_written_beside_and_passes(shop: Path) -> None:
    done = process("export", "b/1: Rome", "-o", "tests/good-booking.everstep", "--as-test", "--app", "shop",
                   "--trail", "trail.db", cwd=shop)  # fmt: skip
    assert done.code == 0, done.stderr
    assert "next: python -m pytest tests/test_good_booking.py" in done.stderr
    text = (shop / "tests" / "test_good_booking.py").read_text("utf-8")
    assert "from shop import book\n" in text
    assert (
        '@pytest.mark.everstep_replay("good-booking.everstep", workflow=book)\ndef test_good_booking() -> None:' in text
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    if not _installed():
        command += ["-p", "everstep.testing.plugin"]
    passed = subprocess.run(command, cwd=shop, env=environment(), capture_output=True, text=True, check=False)
    assert "1 passed" in passed.stdout, passed.stdout
    (shop / "shop.py").write_text(SHOP.replace("min(", "max("), "utf-8")
    failed = subprocess.run(command, cwd=shop, env=environment(), capture_output=True, text=True, check=False)
    assert "changed result" in failed.stdout, failed.stdout


def _installed() -> bool:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--help"], env=environment(), capture_output=True, text=True, check=True
    )
    return "--everstep-update" in done.stdout


def test_a_test_that_somebody_has_written_on_is_left_alone(shop: Path) -> None:
    words = (
        "export",
        "b/1: Rome",
        "-o",
        "good.everstep",
        "--as-test",
        "--app",
        "shop:Box.inner",
        "--trail",
        "trail.db",
    )
    assert process(*words, cwd=shop).code == 0
    test = shop / "test_good.py"
    assert "from shop import Box\n" in test.read_text("utf-8")
    assert "workflow=Box.inner)" in test.read_text("utf-8")
    test.write_text("mine", "utf-8")
    done = process(*words, cwd=shop)
    assert "test_good.py is there, and was left alone." in done.stderr
    assert test.read_text("utf-8") == "mine"


def test_the_code_that_a_test_imports_is_what_a_person_named(shop: Path) -> None:
    words = ("export", "b/1: Rome", "--as-test", "--trail", "trail.db")
    assert process(*words, cwd=shop).code == 2
    assert process(*words, "--app", "none", cwd=shop).code == 1
    assert process(*words, "--app", "shop:search", cwd=shop).code == 1
    assert process(*words[:2], "--app", "shop", "--trail", "trail.db", cwd=shop).code == 2
    assert list(shop.glob("*.everstep")) == []
    (shop / "pyproject.toml").write_text('[tool.everstep]\napp = "shop"\n', "utf-8")
    done = process(*words, "--json", cwd=shop)
    assert done.code == 0
    assert done.stdout.startswith('{"everstep": 1, "export": {"file": "b-1-Rome.everstep"')
    assert "loaded" in done.stderr
    assert (shop / "test_b_1_rome.py").is_file()

"""Secrets that are known by their name, however the name and the value reach the state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import everstep

HIDDEN = "correct horse battery staple"
OTHER = "another horse, another staple"
TOKEN = "sk-ant-" + "a1B2" * 8


def leaves(trail: everstep.Trail, folder: Path, text: str) -> list[str]:
    trail.close()
    return [path.name for path in folder.iterdir() if text.encode() in path.read_bytes()]


@pytest.fixture
def key(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_KEY_FILE", str(tmp_path_factory.mktemp("key") / "redaction.key"))


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize(
    "put",
    [
        lambda run: run.step("s", set={"password": HIDDEN}),
        lambda run: run.step("s", output=HIDDEN, output_to="password"),
        lambda run: run.step("s", output=HIDDEN, append_to="passwords"),
        lambda run: run.step("s", append={"passwords": [HIDDEN]}),
        lambda run: run.step("s", set={"config": {}, ("config", "password"): HIDDEN}),
        lambda run: (
            run.step("s", set={"passwords": ["", ""]}) and run.step("s", splice={"passwords": (0, 1, [HIDDEN])})
        ),
        lambda run: run.save({"password": HIDDEN}),
        lambda run: run.save({"a": {"password": OTHER}}) and run.save({"a": {"password": HIDDEN}}),
        lambda run: run.save({"credentials": {"x": OTHER}}) and run.save({"credentials": {"x": HIDDEN}}),
        lambda run: run.save({"credentials": ["x"]}) and run.save({"credentials": ["x", HIDDEN]}),
    ],
)
def test_a_value_under_the_name_of_a_secret_is_not_on_disk(tmp_path: Path, put: Callable[[Any], Any]) -> None:
    """Promise 10."""
    trail = everstep.open(tmp_path / "trail.db")
    with trail.record("r") as run:
        put(run)
        run.step("after", output=1, output_to="n")
    assert "[redacted:" in repr(trail.state("r"))
    assert trail.verify().ok
    assert leaves(trail, tmp_path, HIDDEN) == []


@pytest.mark.usefixtures("key")
def test_a_name_that_is_a_secret_itself_is_replaced_and_the_state_can_be_read(tmp_path: Path) -> None:
    """Promise 10."""
    trail = everstep.open(tmp_path / "trail.db")
    with trail.record("r") as run:
        run.step("s", set={TOKEN: 1})
        run.step("s", set={(TOKEN,): 2})
    [(name, value)] = trail.state("r").items()
    assert (name[:20], value) == ("[redacted:anthropic:", 2)
    assert leaves(trail, tmp_path, TOKEN) == []


@pytest.mark.usefixtures("key")
def test_equal_secrets_have_equal_placeholders_whichever_way_they_came(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail, trail.record("r") as run:
        run.step("s", set={"password": HIDDEN}, output=everstep.Secret(HIDDEN), output_to="other")
        run.step("s", set={"password": None, "has_password": True})
    state = trail_state(tmp_path, 1)
    assert state["password"].rpartition(":")[2] == state["other"].rpartition(":")[2]
    assert trail_state(tmp_path, 2)["password"] is None


def trail_state(folder: Path, at: int) -> dict[str, Any]:
    with everstep.open(folder / "trail.db", read_only=True) as trail:
        return trail.state("r", at=at)

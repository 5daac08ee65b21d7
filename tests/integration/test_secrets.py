"""Secrets planted everywhere a value can go in: no byte of them is in any file of the trail."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.model import StepError

# One for each place, so that a leak tells where it came in. The first by their shape, the second by their name alone.
TOKEN = "sk-ant-api03-{:0>24}"
PLAIN = "plain words number {}"


@pytest.fixture(autouse=True)
def key(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_KEY_FILE", str(tmp_path_factory.mktemp("key") / "redaction.key"))


class Planter:
    """Makes secrets and remembers them."""

    def __init__(self) -> None:
        self.planted: dict[str, str] = {}

    def token(self, place: str) -> str:
        """A secret that is known by its shape."""
        return self._plant(place, TOKEN.format(f"Zq{len(self.planted)}"))

    def plain(self, place: str) -> str:
        """A secret that only the name it stands under, or Secret, gives away."""
        return self._plant(place, PLAIN.format(f"{len(self.planted):04}x"))

    def _plant(self, place: str, secret: str) -> str:
        self.planted[place] = secret
        return secret

    def leaks(self, folder: Path) -> dict[str, list[str]]:
        """The places whose secret is in a file, with the files."""
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert any(len(data) > 4096 for data in files.values())
        found = {
            place: [
                name for name, data in files.items() if secret.encode() in data or secret.encode("utf-16-le") in data
            ]
            for place, secret in self.planted.items()
        }
        return {place: names for place, names in found.items() if names}


@everstep.register
@dataclasses.dataclass
class Account:
    user: str
    password: str


def raised(message: str) -> Exception:
    """An exception with the secret in its message, its cause and its traceback."""
    try:
        try:
            raise KeyError(message)
        except KeyError as cause:
            raise ValueError(f"could not log in with {message}") from cause
    except ValueError as error:
        return error


def by_shape(plant: Planter) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field of a step, with a token in it."""
    token = plant.token
    yield (
        "inputs",
        {"inputs": {"prompt": f"use {token('inputs')} please", "n": [1, (token("nested"), {"x": token("deep")})]}},
    )
    yield "output", {"output": f"the key is {token('output')}."}
    yield "bytes", {"output": token("bytes").encode(), "set": {"b": bytearray(token("bytearray").encode())}}
    yield "keys", {"output": {token("key"): 1, "inner": {token("inner key"): 2}}}
    yield "json", {"output": '{"authorization": "Bearer ' + token("json") + '"}'}
    yield "url", {"inputs": f"https://x.example/?api_key={token('url')}&y=1"}
    yield "error", {"error": raised(token("error"))}
    yield "step error", {"error": StepError("E", token("message"), f"File x\n{token('traceback')}")}
    yield "metadata", {"metadata": {"note": token("metadata"), "list": [token("metadata list")]}}
    yield "decision", {"decision": {"route": token("decision")}}
    yield "usage", {"usage": {"who": token("usage"), "tokens": 5}}
    yield "lane", {"lane": token("lane")}
    yield "versions", {"input_versions": {token("versions"): 1}}
    yield "fingerprint", {"fingerprint": token("fingerprint")}
    yield "node type", {"node_type": token("node type")}
    yield "series", {"attempt_series_id": token("series")}
    yield "child", {"child_run_id": token("child run")}
    yield "pause", {"pause": {"question": token("pause")}, "status": "paused"}
    yield "set", {"set": {"x": token("set"), token("set name"): 1}}
    yield "append", {"append": {"log": [token("append"), {"y": token("append nested")}]}}
    deleted = token("deleted")
    yield "path", {"set": {"deep": {"list": []}, ("deep", token("path")): token("at a path"), deleted: 1}}
    yield "splice", {"splice": {("deep", "list"): (0, 0, [token("splice")])}, "delete": [deleted]}
    yield "large", {"output": "x" * 70_000 + " " + token("large") + " " + "y" * 70_000, "output_to": "large"}
    yield "secret class", {"output": Account("ada", token("field by shape"))}


def by_name(plant: Planter) -> Iterator[tuple[str, dict[str, Any]]]:
    """Values that are secret because of where they stand."""
    plain = plant.plain
    yield "inputs", {"inputs": {"password": plain("inputs"), "a": [{"api_key": plain("nested")}]}}
    yield "output", {"output": {"Authorization": plain("header"), "headers": [("Set-Cookie", plain("pair"))]}}
    yield "number", {"output": {"credentials": {"user": plain("in a dict"), "list": [plain("in a list")]}}}
    yield "class", {"output": Account("ada", plain("field"))}
    yield "set", {"set": {"api_key": plain("set"), "config": {"db": {"password": plain("set nested")}}}}
    yield "output_to", {"output": plain("output_to"), "output_to": "password"}
    yield "append_to", {"output": plain("append_to"), "append_to": "passwords"}
    yield "append", {"append": {"secrets": [plain("append")]}}
    yield "path", {"set": {"settings": {"password": ""}, ("settings", "password"): plain("path")}}
    yield "path in a secret", {"set": {"credentials": {"a": 1}, ("credentials", "user"): plain("below a secret")}}
    yield (
        "wrapped",
        {"output": everstep.Secret(plain("Secret")), "set": {"w": [everstep.Secret({"k": plain("Secret dict")})]}},
    )
    yield "metadata", {"metadata": {"access_token": plain("metadata")}}
    yield "decision", {"decision": {"secret": plain("decision")}}
    yield "usage", {"usage": {"api_key": plain("usage")}}
    yield "pause", {"pause": {"password": plain("pause")}, "status": "paused"}
    yield "text", {"output": f"login failed: {{'password': '{plain('printed dict')}'}}"}
    yield "error", {"error": ValueError(f'{{"client_secret": "{plain("error text")}"}}')}


def plant_in(trail: everstep.Trail, plant: Planter) -> None:
    """Fill a trail with secrets, all ways in."""
    token, plain = plant.token, plant.plain
    run_id = token("run id")
    run = trail.record(
        run_id, workflow=token("workflow"), inputs={"password": plain("run inputs"), "q": token("run inputs by shape")},
        tags={"user": token("tag"), token("tag name"): "x"}, metadata={"m": token("run metadata")},
        fingerprint=token("run fingerprint"),
    )  # fmt: skip
    for source in (by_shape, by_name):
        for name, detail in source(plant):
            run.step(f"step {name}", **detail)
    run.step(token("step name"))
    run.checkpoint(
        token("checkpoint name"), metadata={"password": plain("checkpoint"), "t": token("checkpoint metadata")}
    )
    run.save({"password": plain("saved"), "a": {"b": token("saved by shape")}, "log": []})
    run.save(
        {"password": plain("saved again"), "a": {"b": token("saved again by shape")}, "log": [token("saved in a list")]}
    )
    for number in range(40):  # a keyframe or two
        run.step(
            "bulk",
            append={"log": [random.randbytes(4_000), token(f"bulk {number}")]},
            set={"api_key": plain(f"bulk name {number}")},
        )
    run.finish({"secret": plain("finish"), "t": token("finish by shape")})
    own = trail.runs(limit=1)[0].id
    assert trail.store.keyframe(own, trail.run(own).head) is not None
    with trail.fork(
        own,
        3,
        id=token("fork id"),
        set={"password": plain("fork set"), "x": token("fork by shape")},
        tags={"t": token("fork tag")},
    ):
        pass
    with pytest.raises(RuntimeError), trail.record("failing"):
        raise RuntimeError(f"at the end {token('run error')}")


def read_all(trail: everstep.Trail) -> str:
    """Everything that is handed out, as text."""
    parts: list[str] = []
    for run in trail.runs():
        parts += [repr(run), *(repr(step.to_dict()) for step in trail.steps(run.id)), repr(trail.state(run.id))]
    return "\n".join([*parts, repr(trail.checkpoints())])


def test_no_secret_reaches_the_disk_while_the_trail_is_open_or_closed(tmp_path: Path) -> None:
    """Promise 10: not in the file, its log, its lock or its index for search."""
    plant, folder = Planter(), tmp_path / "trail"
    folder.mkdir()
    trail = everstep.open(folder / "trail.db")
    plant_in(trail, plant)
    assert len(plant.planted) > 120
    assert trail.search("bulk", limit=3)
    assert {"trail.db", "trail.db-wal", "trail.db-search"} <= {path.name for path in folder.iterdir()}
    assert plant.leaks(folder) == {}
    assert trail.verify().ok
    trail.close()
    assert plant.leaks(folder) == {}


def test_nothing_that_is_handed_out_shows_a_secret(tmp_path: Path) -> None:
    """Promise 10."""
    plant = Planter()
    with everstep.open(tmp_path / "trail.db") as trail:
        plant_in(trail, plant)
        text = read_all(trail)
    assert [place for place, secret in plant.planted.items() if secret in text] == []
    assert text.count("[redacted:") > 100


def test_the_awaited_way_keeps_secrets_out_too(tmp_path: Path) -> None:
    """Promise 10."""
    plant, folder = Planter(), tmp_path / "trail"
    folder.mkdir()

    async def main() -> None:
        trail = await everstep.AsyncTrail.open(folder / "trail.db")
        run = await trail.record(plant.token("run id"), inputs={"password": plant.plain("inputs")})
        for source in (by_shape, by_name):
            for name, detail in source(plant):
                await run.step(f"step {name}", **detail)
        await run.save({"password": plant.plain("saved")})
        await run.checkpoint(plant.token("checkpoint"))
        await run.finish({"t": plant.token("finish")})
        assert plant.leaks(folder) == {}
        await trail.close()

    asyncio.run(main())
    assert plant.leaks(folder) == {}


@pytest.mark.parametrize(
    "refuse",
    [
        lambda run, secret: run.step("s", output={"when": object(), "token": secret}),
        lambda run, secret: run.step("s", output={secret: object()}),
        lambda run, secret: run.step("s", append={"x": [secret]}),
        lambda run, secret: run.step("s", set={secret: object()}),
        lambda run, secret: run.step("s", append={("x", secret): [1]}),
        lambda run, secret: run.step("s", delete=[("x", secret)]),
        lambda run, secret: run.step("s", splice={secret: (0, 9, [])}),
    ],
)
def test_no_error_of_ours_shows_a_secret(tmp_path: Path, refuse: Callable[[everstep.Recorder, str], Any]) -> None:
    """Promise 10: nor those that a traceback would show with it."""
    secret = TOKEN.format("Zq")
    with everstep.open(tmp_path / "trail.db") as trail:
        run = trail.record("r", inputs={"x": []})
        run.step("s", set={"x": 1, "missing": 1})
        with pytest.raises(everstep.EverstepError) as told:
            refuse(run, secret)
    error: BaseException | None = told.value
    while error is not None:
        assert secret not in f"{error} {error!r} {vars(error)}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)

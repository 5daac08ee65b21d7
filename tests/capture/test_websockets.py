"""Conversations over websockets: in a replay a program hears what it heard, and is told when it says something else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from websockets.asyncio.client import connect as connect_awaited
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as connect_plain

import everstep
from everstep.capturing.seams import websockets as seam
from everstep.errors import DivergenceError, UnknownLayoutError, UnrecordableError
from everstep.model import Kind
from tests.capture.chat import Chat

NOBODY = "ws://127.0.0.1:1/"
Program = Callable[[str], Any]


def connect(url: str, **options: Any) -> Any:
    return connect_plain(url, legacy=True, **options)


def told(error: BaseException) -> Any:
    kinds = dict.fromkeys(kind.__qualname__ for kind in type(error).__mro__)  # one may stand for another of its name
    return [*kinds], str(error), getattr(getattr(error, "response", None), "status_code", None)


def outcome(call: Callable[[], Any]) -> Any:
    """What it gives, or what it raises."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is compared
        return told(error)


async def awaited(call: Awaitable[Any]) -> Any:
    """The same, awaited."""
    try:
        return await call
    except Exception as error:  # noqa: BLE001 - as above
        return told(error)


# The same conversations on each client.


def plain_talk(url: str, name: str) -> list[Any]:
    with connect(f"{url}/x?a=1", subprotocols=["chat"]) as socket:
        heard: list[Any] = [socket.subprotocol, socket.response.status_code, socket.state.name]
        for at in range(3):
            socket.send(f"{name} {at}")
            heard.append(socket.recv())
        socket.send(b"raw")
        heard.append(socket.recv())
    return [*heard, socket.close_code, socket.close_reason, socket.state.name]


def plain(url: str) -> Any:
    heard: list[Any] = [plain_talk(url, "one")]
    with ThreadPoolExecutor(3) as pool:
        heard += pool.map(lambda name: plain_talk(url, name), "abc")
    with connect(url) as socket:
        socket.send("burst 4")
        socket.send("close 4001 why")
        heard += [outcome(lambda: list(socket)), socket.close_code, socket.close_reason]
        heard += [outcome(lambda: socket.send("late")), outcome(socket.recv)]
    with connect(url) as socket:
        socket.send("drop")
        heard += [outcome(socket.recv), socket.close_code]
    with connect(url) as socket:
        socket.send("slow 0.5")
        heard += [outcome(lambda: socket.recv(timeout=0.03)), socket.recv(), socket.ping().wait(2)]
        socket.send("parts")
        heard.append(list(socket.recv_streaming()))
        socket.send(["a", "b"])
        heard += [socket.recv(decode=False), outcome(lambda: socket.send({"a": 1}))]
    return [*heard, outcome(lambda: connect(f"{url}/forbidden")), outcome(lambda: connect(NOBODY)), beside(url)]


def beside(url: str) -> Any:
    """One thread listens, the other speaks."""
    heard: list[Any] = []
    with connect(url) as socket:

        def listen() -> None:
            try:
                heard.extend(iter(socket.recv, None))
            except ConnectionClosed as error:
                heard.append(str(error))

        thread = threading.Thread(target=listen)
        thread.start()
        for at in range(3):
            socket.send(f"message {at}")
        socket.send("close 1000 bye")
        thread.join()
    return heard


def asynchronous(url: str) -> Any:
    heard: list[Any] = []

    async def talk(name: str) -> None:
        async with connect_awaited(f"{url}/x?a=1", subprotocols=["chat"]) as socket:  # type: ignore[list-item] # a str
            for at in range(3):
                await socket.send(f"{name} {at}")
                heard.append((name, await socket.recv()))
        heard.append((name, socket.close_code, socket.state.name))

    async def letters() -> AsyncIterator[str]:
        for letter in "xyz":
            yield letter

    async def main() -> Any:
        await asyncio.gather(*map(talk, "abcd"))
        async with connect_awaited(url) as socket:
            await socket.send("burst 4")
            await socket.send("close 4001 why")
            heard.append(await awaited(_listed(socket)))
            heard.extend([socket.close_code, await awaited(socket.send("late")), await awaited(socket.recv())])
        async with connect_awaited(url) as socket:
            await socket.send("slow 0.5")
            heard.append(await awaited(asyncio.wait_for(socket.recv(), 0.03)))
            heard.extend([await socket.recv(), await (await socket.ping()) >= 0])
            await socket.send("parts")
            heard.append([part async for part in socket.recv_streaming()])
            await socket.send(letters())
            heard.append(await socket.recv(decode=False))
            task = asyncio.create_task(awaited(socket.recv()))
            await asyncio.sleep(0.01)
            await socket.close(1001, "going")
            heard.append(await task)
        heard.extend([await awaited(connect_awaited(f"{url}/forbidden").connect())])
        return [*heard, await awaited(connect_awaited(NOBODY).connect())]

    return asyncio.run(main())


async def _listed(socket: Any) -> list[Any]:
    return [message async for message in socket]


def over_aiohttp(url: str) -> Any:
    url = url.replace("ws:", "http:")
    heard: list[Any] = []

    async def talk(session: aiohttp.ClientSession, name: str) -> None:
        async with session.ws_connect(f"{url}/x", protocols=["chat"]) as socket:
            for at in range(3):
                await socket.send_str(f"{name} {at}")
                heard.append((name, socket.protocol, (await socket.receive()).data))
            await socket.send_bytes(b"raw")
            heard.append(await socket.receive_bytes())
        heard.append((name, socket.closed, socket.close_code))

    async def main() -> Any:
        async with aiohttp.ClientSession() as session:
            await asyncio.gather(*(talk(session, name) for name in "abcd"))
            async with session.ws_connect(url, heartbeat=20) as socket:
                await socket.send_str("burst 4")
                await socket.send_str("close 4001 why")
                heard.append([message.data async for message in socket])
                heard.extend([socket.close_code, await awaited(socket.send_str("late")), (await socket.receive()).type])
            async with session.ws_connect(url) as socket:
                await socket.send_str("mute")
                heard.append(await awaited(socket.receive(timeout=0.03)))
            async with session.ws_connect(url) as socket:
                task = asyncio.create_task(socket.receive())
                await asyncio.sleep(0.01)
                await socket.close()
                heard.extend([(await task).type, socket.close_code])
            wrong = (f"{url}/forbidden", NOBODY.replace("ws:", "http:"))
            heard.extend([await awaited(session.ws_connect(each)) for each in wrong])
        return heard

    return asyncio.run(main())


@pytest.mark.parametrize("program", [plain, asynchronous, over_aiohttp])
def test_a_program_hears_in_every_replay_what_it_heard(program: Program, tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        with Chat() as chat:
            shape = _shape(program(chat.url))
            with everstep.capture(trail, "x"):
                recorded = program(chat.url)
        assert _shape(recorded) == shape
        for _ in range(3):
            with everstep.capture(trail, "x", mode="verify"):
                assert program(chat.url) == recorded


def _shape(heard: list[Any]) -> list[str]:
    """What is the same whenever it is said: the kinds of things."""
    return sorted(type(each).__name__ for each in heard)


@pytest.mark.torture
@pytest.mark.parametrize("program", [plain, asynchronous, over_aiohttp])
def test_that_holds_whenever_it_is_tried(program: Program, tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        for turn in range(20):
            with Chat() as chat, everstep.capture(trail, f"x{turn}"):
                recorded = program(chat.url)
            for _ in range(20):
                with everstep.capture(trail, f"x{turn}", mode="verify"):
                    assert program(chat.url) == recorded


def test_nothing_is_heard_before_what_it_answers_was_said(tmp_path: Path) -> None:
    def program(url: str) -> list[str]:
        order: list[str] = []
        with connect(url) as socket:

            def listen() -> None:
                for at in range(2):
                    socket.recv()
                    order.append(f"heard {at}")

            thread = threading.Thread(target=listen)
            thread.start()
            for at in range(2):
                threading.Event().wait(0.02)  # the other thread gets the time to be wrong
                order.append(f"said {at}")
                socket.send(f"message {at}")
            thread.join()
        return order

    with everstep.open(tmp_path / "trail.db") as trail:
        with Chat() as chat, everstep.capture(trail, "x"):
            recorded = program(chat.url)
        with everstep.capture(trail, "x", mode="verify"):
            replayed = program(chat.url)
    for order in recorded, replayed:
        assert sorted(order) == ["heard 0", "heard 1", "said 0", "said 1"]
        assert all(order.index(f"said {at}") < order.index(f"heard {at}") for at in range(2))


def test_a_conversation_is_one_step_that_shows_both_sides(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        with Chat() as chat, everstep.capture(trail, "x"):
            plain_talk(chat.url, "one")
        (step,) = [each for each in trail.steps("x") if each.kind is Kind.STEP]
        assert step.name == "websocket 127.0.0.1"
        assert [each["item"] for each in step.output["said"][:1]] == [{"text": "one 0"}]
        assert [each["after"] for each in step.output["heard"][:4]] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (["hello", "bye"], "message 2"),
        (["hello", "there", "bye"], "message 3"),
        (["hello"], "message 2"),
    ],
)
def test_other_words_are_a_divergence_that_is_named(said: list[str], cause: str, tmp_path: Path) -> None:
    def program(url: str, words: list[str]) -> None:
        with connect(url) as socket:
            for word in words:
                socket.send(f"mute {word}")

    with everstep.open(tmp_path / "trail.db") as trail:
        with Chat() as chat, everstep.capture(trail, "x"):
            program(chat.url, ["hello", "there"])
        with pytest.raises(DivergenceError, match=cause), everstep.capture(trail, "x", mode="verify"):
            program(chat.url, said)


def test_who_listens_for_more_than_was_said_is_told(tmp_path: Path) -> None:
    async def main(url: str, times: int) -> None:
        async with connect_awaited(url) as socket:
            await socket.send("hello")
            for _ in range(times):
                await socket.recv()

    with everstep.open(tmp_path / "trail.db") as trail:
        with Chat() as chat, everstep.capture(trail, "x"):
            asyncio.run(main(chat.url, 1))
        with pytest.raises(DivergenceError, match="to hear more"), everstep.capture(trail, "x", mode="verify"):
            asyncio.run(main(chat.url, 2))


def test_a_secret_that_is_said_is_not_kept(tmp_path: Path) -> None:
    key = "sk-proj-" + "Zq8x" * 12
    with everstep.open(tmp_path / "trail.db") as trail:
        with Chat() as chat, everstep.capture(trail, "x"), connect(chat.url) as socket:
            socket.send(f"mute {key}")
        with everstep.capture(trail, "x", mode="verify"), connect(chat.url) as socket:
            socket.send(f"mute {key}")
    assert key.encode() not in b"".join(path.read_bytes() for path in tmp_path.glob("trail.db*"))


def test_clients_that_cannot_be_recorded_are_refused(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="legacy"):
        from websockets.legacy import client as legacy  # noqa: PLC0415 - it warns when it is imported
    with everstep.open(tmp_path / "trail.db") as trail, Chat() as chat:

        async def main() -> None:
            async with legacy.connect(chat.url) as socket:
                await socket.send("hello")

        asyncio.run(main())  # nobody minds
        with pytest.raises(UnrecordableError, match=r"websockets\.asyncio"), everstep.capture(trail, "x"):
            asyncio.run(main())


def test_another_layout_of_the_library_is_refused_where_it_is_used(tmp_path: Path) -> None:
    class Connection:
        def __init__(self, url: str) -> None:
            self.url = url

    class Opening(Connection):
        pass

    def opens(url: str) -> Connection:
        return Connection(url)

    with everstep.open(tmp_path / "trail.db") as trail:
        for name, opening in (("sync", opens), ("asyncio", Opening)):
            other: Any = SimpleNamespace(
                __name__=f"websockets.{name}.client", connect=opening, ClientConnection=Connection
            )
            seam.patch(other)  # who only imports it is not disturbed
            assert opening(NOBODY).url == NOBODY
            with pytest.raises(UnknownLayoutError, match="recv"), everstep.capture(trail, name):
                opening(NOBODY)

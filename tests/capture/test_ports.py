"""Ports that a program leaves to the system are the same in a replay, as it tells them to others."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import everstep
from everstep.errors import DivergenceError


def found() -> int:
    """As most programs look for one."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def in_a_thread() -> int:
    ports: list[int] = []
    thread = threading.Thread(target=lambda: ports.append(found()))
    thread.start()
    thread.join()
    return ports[0]


def of_a_server() -> int:
    async def serve() -> int:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        async with server:
            return int(server.sockets[0].getsockname()[1])

    return asyncio.run(serve())


def by_the_sixth_version() -> int:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as sock:
        return int(sock.getsockname()[1])


def told(find: Callable[[], int]) -> list[str]:
    """Two of them, said to a program that is started."""
    ports = [str(find()), str(find())]
    subprocess.run([sys.executable, "-c", "", *ports], check=True)
    return ports


@pytest.mark.parametrize("find", [found, in_a_thread, of_a_server, by_the_sixth_version])
def test_a_port_that_was_left_open_is_the_same_in_a_replay(tmp_path: Path, find: Callable[[], int]) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "x"):
            recorded = told(find)
        with everstep.capture(trail, "x", mode="verify"):
            assert told(find) == recorded
        with everstep.capture(trail, "y"):
            others = told(find)
    assert others != recorded


def test_a_port_that_somebody_has_is_not_given(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "x"):
            recorded = told(found)
        with socket.create_server(("127.0.0.1", int(recorded[0]))):
            ports: list[str] = []
            with pytest.raises(DivergenceError), everstep.capture(trail, "x", mode="verify"):
                ports += [str(found()), str(found())]
                subprocess.run([sys.executable, "-c", "", *ports], check=True)
        assert ports[0] != recorded[0]
        assert ports[1] == recorded[1] or recorded[1] == recorded[0]


def test_a_port_whose_connections_are_still_closing_is_given(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "x"):
            recorded = told(found)
        address = "127.0.0.1", int(recorded[0])
        with socket.create_server(address) as server, socket.create_connection(address), server.accept()[0]:
            pass  # who listened closes first: the port stays taken for a while
        with everstep.capture(trail, "x", mode="verify"):
            assert told(found) == recorded


def test_a_socket_is_left_as_it_was_and_a_wrong_address_is_told_as_ever(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail, everstep.capture(trail, "x"):
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            assert not sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        with socket.socket() as sock, pytest.raises(OSError, match=r"Cannot assign|Can't assign"):
            sock.bind(("192.0.2.1", 0))
        with socket.socket() as sock, pytest.raises(TypeError):
            sock.bind(0)  # type: ignore[arg-type] # as a mistaken program does


@pytest.mark.parametrize("option", [socket.SO_REUSEADDR, socket.SO_REUSEPORT])
def test_no_two_sockets_get_one_port_whatever_they_would_share(tmp_path: Path, option: int) -> None:
    """As the system sees to it: of some hundred that are open two would draw the same number."""
    with everstep.open(tmp_path / "trail.db") as trail, everstep.capture(trail, "x"), ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(400)]
        for sock in sockets:
            sock.setsockopt(socket.SOL_SOCKET, option, 1)
            sock.bind(("127.0.0.1", 0))
        assert all(sock.getsockopt(socket.SOL_SOCKET, option) for sock in sockets)
        assert len({sock.getsockname()[1] for sock in sockets}) == len(sockets)


def test_a_port_of_which_somebody_would_have_his_share_is_not_free(tmp_path: Path) -> None:
    """A server that outlived its program is given half of the connections to the next, if both say SO_REUSEPORT."""
    with everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "x"), socket.create_server(("127.0.0.1", 0), reuse_port=True) as server:
            address = server.getsockname()
        with (
            socket.create_server(address, reuse_port=True),
            everstep.capture(trail, "x", mode="verify"),
            socket.create_server(("127.0.0.1", 0), reuse_port=True) as server,
        ):
            assert server.getsockname() != address

"""What cannot be recorded is told, or refused: it is never missed in silence."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psycopg
import pytest

import everstep
from everstep.capturing.seams import green, native
from everstep.capturing.seams import urllib3 as urllib3_seam
from everstep.errors import CaptureWarning, SealedError, UnknownLayoutError, UnrecordableError
from everstep.model import Status
from everstep.store import postgres_link


class Curl:
    """A client whose calls nobody sees."""

    def perform(self) -> str:
        return "went out"


def test_a_native_client_is_told_of_when_it_is_recorded_and_refused_in_a_replay(tmp_path: Path) -> None:
    native.patch(SimpleNamespace(__name__="curl_cffi.curl", Curl=Curl))  # type: ignore[arg-type] # as a module
    assert Curl().perform() == "went out"
    with everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "x"):
            with pytest.warns(CaptureWarning, match="by curl_cffi, which cannot be recorded"):
                Curl().perform()
            assert Curl().perform() == "went out"  # once is enough
        with pytest.raises(SealedError, match=r"test_refused\.py:\d+ would call the outside by curl_cffi"):
            swallowed(trail)
        with everstep.capture(trail, "x", mode="verify", seal="off"):
            assert Curl().perform() == "went out"


def test_a_database_that_is_reached_in_c_is_told_of_and_refused(tmp_path: Path) -> None:
    nowhere = "host=127.0.0.1 port=1 connect_timeout=2"

    def connect() -> None:
        for way in (psycopg.connect, psycopg.Connection.connect):
            with suppress(psycopg.OperationalError):
                way(nowhere)

    with everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "x"), pytest.warns(CaptureWarning, match="by psycopg, which cannot") as told:
            connect()
        assert len(told) == 1
        with (
            pytest.raises(SealedError, match=r"test_refused\.py:\d+ would call the outside by psycopg"),
            everstep.capture(trail, "x", mode="verify"),
            suppress(SealedError),
        ):
            connect()


@pytest.mark.parametrize("trail_url", ["postgres"], indirect=True)
def test_a_trail_on_a_server_is_reached_where_the_program_is_refused(
    tmp_path: Path, trail_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        for mode in ("record", "verify"):
            monkeypatch.setattr(postgres_link, "driver", type(postgres_link.driver)())  # as if it was not used before
            with everstep.capture(trail, "x", mode=mode), everstep.open(trail_url) as other:
                assert list(other.runs()) == []


def swallowed(trail: Any) -> None:
    with everstep.capture(trail, "x", mode="verify"), suppress(SealedError):
        Curl().perform()


def test_a_type_that_is_written_in_c_is_replaced(tmp_path: Path) -> None:
    names = ["Curl.perform", "Curl.perform_rb", "Curl.perform_rs", "CurlMulti.add_handle"]
    assert native._WAYS["pycurl"] == names
    module: Any = SimpleNamespace(__name__="curl_cffi.curl", Curl=_in_c())
    plain = module.Curl
    native.patch(module)
    assert issubclass(module.Curl, plain)
    assert module.Curl is not plain


def _in_c() -> Any:
    """A type whose methods cannot be set."""

    class Kind(type):
        def __setattr__(cls, name: str, value: Any) -> None:
            raise TypeError(f"cannot set {name!r} attribute of immutable type")

    class Fixed(metaclass=Kind):
        def perform(self) -> None: ...

    return Fixed


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gevent.monkey", ["patch_all", "patch_socket", "patch_thread", "patch_time"]),
        ("eventlet.patcher", ["monkey_patch"]),
    ],
)
def test_what_would_change_what_is_recorded_is_refused(tmp_path: Path, name: str, changes: list[str]) -> None:
    module: Any = SimpleNamespace(__name__=name, **{change: lambda: "changed" for change in changes})
    green.patch(module)
    for change in changes:
        assert getattr(module, change)() == "changed"
        with (
            everstep.open(tmp_path / "trail.db") as trail,
            pytest.raises(UnrecordableError, match=name.partition(".")[0]),
            everstep.capture(trail, change),
        ):
            getattr(module, change)()


def test_another_event_loop_than_that_of_asyncio_is_refused(tmp_path: Path) -> None:
    with (
        everstep.open(tmp_path / "trail.db") as trail,
        pytest.raises(UnrecordableError, match="trio"),
        everstep.capture(trail, "x"),
    ):
        httpx.AsyncClient().get("http://127.0.0.1:1/").send(None)  # as a loop does


@pytest.mark.parametrize(
    "look_up", [lambda: socket.gethostbyname("localhost"), socket.getfqdn, lambda: socket.getaddrinfo("localhost", 80)]
)
def test_a_name_that_the_program_looks_up_is_told_of_and_refused_with_a_way_out(
    tmp_path: Path, look_up: Callable[[], object]
) -> None:
    run_id = tmp_path.name  # a run is told once
    with everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, run_id):
            with pytest.warns(CaptureWarning, match=r"looks up .* at .*test_refused\.py:\d+.* not recorded") as told:
                look_up()
            look_up()
        assert len(told) == 1
        with pytest.raises(SealedError, match="Lookups of names are never recorded: take") as refused:
            replayed(trail, run_id, look_up)
        assert "--seal off" in str(refused.value)
        with everstep.capture(trail, run_id, mode="verify", seal="off"):
            look_up()


def test_whoever_listens_looks_nothing_up(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "x"):
            for host in ("127.0.0.1", "::1", None):
                socket.getaddrinfo(host, 80)  # of an address that is connected to, one is told then
        replayed(trail, "x", lambda: socket.getaddrinfo(None, 80, flags=socket.AI_PASSIVE))


def replayed(trail: Any, run_id: str, code: Callable[[], object]) -> None:
    with everstep.capture(trail, run_id, mode="verify"):
        code()


def test_a_library_that_another_took_the_place_of_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "urllib3_future-2.25.904.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: urllib3-future\nVersion: 2.25.904\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    future: Any = SimpleNamespace(__name__="urllib3", __version__="2.25.904")
    said = (
        r"urllib3 here is urllib3-future 2\.25\.904 \(installed by niquests\).* pip uninstall niquests urllib3-future"
    )
    with pytest.raises(UnknownLayoutError, match=said):
        urllib3_seam.patch(future)
    future.__version__ = "3.0"  # of urllib3 itself, beside what niquests left behind
    with pytest.raises(UnknownLayoutError, match="Use a version of it that is known"):
        urllib3_seam.patch(future)


class Client(Curl):
    """Another one, with a way of its own for each method."""

    request = get = Curl.perform


class Socket:
    """A socket of ZeroMQ."""

    def connect(self, address: str) -> str:
        return f"went to {address}"

    bind = connect


@pytest.mark.parametrize(
    ("module", "call"),
    [
        (SimpleNamespace(__name__="primp", Client=Client, get=Client().get), lambda module: module.Client().get()),
        (SimpleNamespace(__name__="primp", Client=Client, get=Client().get), lambda module: module.get()),
        (SimpleNamespace(__name__="zmq.sugar.socket", Socket=Socket), lambda _: Socket().connect("tcp://127.0.0.1:1")),
    ],
)
def test_clients_in_rust_and_zeromq_are_told_of_and_refused(
    tmp_path: Path, module: Any, call: Callable[[Any], object]
) -> None:
    native.patch(module)
    with everstep.open(tmp_path / "trail.db") as trail:
        client = module.__name__.partition(".")[0]
        with (
            everstep.capture(trail, tmp_path.name),
            pytest.warns(CaptureWarning, match=f"by {client}, which cannot be recorded"),
        ):
            call(module)
        with pytest.raises(SealedError, match=f"would call the outside by {client}"):
            replayed(trail, tmp_path.name, lambda: call(module))


def test_zeromq_within_the_process_is_nothing_to_tell_of(tmp_path: Path) -> None:
    native.patch(SimpleNamespace(__name__="zmq.sugar.socket", Socket=Socket))  # type: ignore[arg-type] # as a module
    with everstep.open(tmp_path / "trail.db") as trail, everstep.capture(trail, "x"):
        assert Socket().bind("inproc://here") == "went to inproc://here"


def test_prices_that_are_none_begin_no_run(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        with pytest.raises(ValueError, match="dear"), everstep.capture(trail, "run", prices={"gpt": "dear"}):  # type: ignore[dict-item] # on purpose
            pass
        with everstep.capture(trail, "run"):
            pass
        assert trail.run("run").status is Status.COMPLETED


class Interrupts:
    """A setting: Ctrl-C comes when it is looked at for the second time, and the run has begun."""

    looks = 0

    def __bool__(self) -> bool:
        self.looks += 1
        if self.looks == 2:
            raise KeyboardInterrupt
        return True


def test_a_run_that_is_interrupted_before_its_first_line_is_there_for_another(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        with pytest.raises(KeyboardInterrupt), everstep.capture(trail, "run", clock=Interrupts()):  # type: ignore[arg-type] # as good as one
            pass
        with everstep.capture(trail, "run"):
            pass
        assert trail.run("run").status is Status.COMPLETED

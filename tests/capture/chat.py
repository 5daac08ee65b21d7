"""A websocket server on the loopback interface of which no two answers are alike."""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
import uuid
from typing import Any, Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve
from websockets.typing import Subprotocol

_NAME = Subprotocol("chat")


class Chat:
    """Says what it is told, with a tag that it never used before, after a short random time.

    Some words are wishes: `burst 3`, `slow 0.1`, `mute`, `parts`, `drop`, and `close 4001 why`.
    """

    def __enter__(self) -> Self:
        self._life, self._count = uuid.uuid4().hex[:4], itertools.count(1)
        log = logging.getLogger("tests.capture.chat")
        log.disabled = True  # clients go when they like
        self._server = serve(
            self._talk, "127.0.0.1", 0, subprotocols=[_NAME], logger=log, process_request=self._check,
            select_subprotocol=lambda _, offered: _NAME if _NAME in offered else None,
        )  # fmt: skip
        self.url = f"ws://127.0.0.1:{self._server.socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()

    def _check(self, connection: Any, request: Any) -> Any:
        return connection.respond(403, "no\n") if request.path == "/forbidden" else None

    def _tag(self) -> str:
        return f"{self._life}-{next(self._count)}"

    def _talk(self, socket: Any) -> None:
        try:
            for said in socket:
                time.sleep(random.uniform(0, 0.003))
                if isinstance(said, bytes):
                    socket.send(said + self._tag().encode())
                else:
                    self._answer(socket, *said.partition(" ")[::2])
        except (ConnectionClosed, OSError):
            pass

    def _answer(self, socket: Any, word: str, rest: str) -> None:
        match word:
            case "burst":
                for at in range(int(rest)):
                    time.sleep(random.uniform(0, 0.002))
                    socket.send(f"{at} of {self._tag()}")
            case "slow":
                time.sleep(float(rest))
                socket.send(f"slow {self._tag()}")
            case "mute":
                pass
            case "parts":
                socket.send([f"part {at} of {self._tag()} " for at in range(3)])
            case "drop":
                socket.socket.close()
            case "close":
                code, _, why = rest.partition(" ")
                socket.close(int(code), f"{why} {self._tag()}")
            case _:
                socket.send(f"{self._tag()} {word} {rest}")

"""The contract of every store: order, durability, one writer, and copies only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from everstep.errors import ClosedError, EverstepError
from everstep.store.base import RunQuery, Store
from everstep.testing.appending import Appending
from everstep.testing.forks import Forks
from everstep.testing.leases import Leases
from everstep.testing.ownership import Ownership
from everstep.testing.posting import Posting
from everstep.testing.reading import Listing, Reading
from everstep.testing.rows import begin, history, new_run
from everstep.testing.submitting import Submitting


class StoreContract(Ownership, Leases, Appending, Submitting, Reading, Listing, Forks, Posting):
    """Subclass it, override the `store` fixture, `another` and `elsewhere`, inherit the tests."""

    def test_says_where_it_is(self, store: Store) -> None:
        assert store.where

    def test_a_closed_store_can_be_closed_again(self, store: Store) -> None:
        store.close()
        store.close()

    def test_a_closed_store_refuses_every_call(self, store: Store) -> None:
        writer = begin(store, rows=1)
        store.close()
        for name, call in closed_calls(writer).items():
            assert refused(call), name

    def test_rows_outlive_the_last_handle_as_declared(self, store: Store) -> None:
        """Promise 1."""
        written = begin(store).write(3)
        store.close()
        if self.durable:
            with self.second(store) as reopened:
                assert history(reopened) == written
        else:
            with pytest.raises(EverstepError):
                self.another(store).entries("run", 0, 2)


def closed_calls(writer: Any) -> dict[str, Callable[[], Any]]:
    """Every call of the protocol, on the store of a writer."""
    store, claim, append = writer.store, writer.claim, writer.draft(writer.rows())

    async def submit() -> None:
        await store.submit(append, asyncio.get_running_loop())

    async def submit_create() -> None:
        await store.submit_create(new_run("new"), asyncio.get_running_loop())

    def post() -> None:
        store.post(append)()

    return {
        "create": lambda: store.create(new_run("new")),
        "submit_create": lambda: asyncio.run(submit_create()),
        "claim": lambda: store.claim("run", "maker"),
        "renew": lambda: store.renew(claim),
        "append": lambda: store.append(append),
        "post": post,
        "request": lambda: store.request("run", "cancel"),
        "submit": lambda: asyncio.run(submit()),
        "run": lambda: store.run("run"),
        "requests": lambda: store.requests(["run"]),
        "runs": lambda: store.runs(RunQuery()),
        "entries": lambda: store.entries("run", 0, 0),
        "keyframe": lambda: store.keyframe("run", 0),
        "blob": lambda: store.blob(bytes(16)),
        "marked": lambda: store.marked(None, 0, 1),
    }


def refused(call: Callable[[], Any]) -> bool:
    """Whether the call says that the store is closed."""
    try:
        call()
    except ClosedError:
        return True
    return False

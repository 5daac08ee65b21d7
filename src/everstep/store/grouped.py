"""Stores in which everything that is written goes through the leader of a group commit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from everstep.errors import ClosedError, ReadOnlyError
from everstep.store.base import Append, Claim, NewRun, Settled
from everstep.store.commit import GroupCommit

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
W = TypeVar("W")  # what a piece of work is given to write with


class Grouped(Generic[W]):
    """What such stores have in common. A store sets these, and does the work of `_group`."""

    where: str
    read_only: bool
    _closed: bool
    _group: GroupCommit

    def create(self, new: NewRun) -> Claim:
        return self.post_create(new)()

    def post_create(self, new: NewRun) -> Callable[[], Claim]:
        """Take a new run in now, behind those taken in before; calling what it gives waits for it, as `create` does."""
        self._check_writable()
        return partial(self._group.finish, self._group.post(self._creation(new)))

    def submit_create(self, new: NewRun, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Claim]:
        self._check_writable()
        return self._group.submit(self._creation(new), loop)

    def _creation(self, new: NewRun) -> object:
        """The work of making a run."""
        raise NotImplementedError

    def append(self, append: Append) -> bool:
        self._check_writable()
        kept: bool = self._group.do(append)
        return kept

    def post(self, append: Append, settled: Settled | None = None) -> Callable[[], bool]:
        self._check_writable()
        return partial(self._group.finish, self._group.post(append, settled))

    def soon(self, work: Callable[[], None]) -> None:
        """Have something done in a moment, on a thread of the store's own, and before it is closed."""
        self._group.soon(work)

    def submit(
        self, append: Append, loop: asyncio.AbstractEventLoop, settled: Settled | None = None
    ) -> asyncio.Future[bool]:
        self._check_writable()
        return self._group.submit(append, loop, settled)

    def _write(self, work: Callable[[W], T]) -> T:
        self._check_writable()
        result: T = self._group.do(work)
        return result

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError(self.where)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(self.where)

"""The call of a node that has a cache: looked up before it, kept after it.

The key is a digest of the code and of what it is given. Wherever it cannot be told what these are, or the value could
not be given back as it was, the node runs as if it had no cache, and says so once.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import blake2b
from typing import Any
from weakref import WeakKeyDictionary

from everstep.codec.delta import SET
from everstep.codec.registry import register
from everstep.errors import (
    ChangedClassError,
    DamagedError,
    DamageWarning,
    EverstepError,
    GraphError,
    UncachedWarning,
    UnknownClassError,
    UnstorableError,
)
from everstep.graph.cache import Cache
from everstep.graph.calls import NodeCall
from everstep.graph.identity import Identity, UnidentifiedError
from everstep.graph.nodes import Decision, Node
from everstep.policy.redaction import PLACEHOLDER, Gate
from everstep.run import faults
from everstep.run.execution import Execution
from everstep.store.base import Caches
from everstep.store.cache import ValueCache

register(Decision)  # a route may return one, and another process must know it

_KEY = os.urandom(32)
_GATE = Gate(key=lambda: _KEY)  # without a trail: nothing of it leaves the process
_IN_PROCESS = ValueCache()
_told: WeakKeyDictionary[Node, set[str]] = WeakKeyDictionary()


class Lookup:
    """What is cached for one call of a node."""

    def __init__(self, run: Execution, call: NodeCall, cache: Cache, given: dict[str, Any]) -> None:
        self.value: Any = None
        self._run, self._call, self._given = run, call, given
        self._node, self._policy = call.call.node, cache
        self._gate = _GATE if run.trail is None else run.trail.gate
        self._key: bytes | None = None

    def up(self) -> bool:
        """Whether the value was found."""
        self._call.cached = False
        try:
            self._key = self._identify()
        except UnidentifiedError as error:
            self._key = None
            self._tell("key", f"{error}. Give its class an __everstep_digest__ method that tells what it stands for")
            return False
        except EverstepError as error:  # there is no key for the placeholders of secrets
            self._key = None
            self._tell("key", str(error))
            return False
        return self._find()

    def _identify(self) -> bytes:
        identity = Identity(self._gate)
        identity.callable(self._node.function)
        for name, value in self._given.items():
            identity.add(name, value, "its input")
        return identity.digest()

    def _find(self) -> bool:
        assert self._key is not None  # noqa: S101 - it is looked for by it
        try:
            data = self._store().get(self._key, self._policy.limits)
            if data is None:
                return False
            self.value = self._run.reach.decode(data, _no_piece)
        except (UnknownClassError, ChangedClassError):
            return False  # it was made by other code; what is made now takes its place
        except DamagedError as error:
            faults.warn(f"what is cached for node {self._node.name!r} cannot be read: {error}", DamageWarning)
            return False
        except EverstepError as error:
            self._tell("store", str(error))
            return False
        self._call.cached = True
        return True

    def keep(self, value: Any) -> None:
        """Keep what the node gave, if it can be given again as it is."""
        self.value = value
        if self._key is None:
            return
        try:
            if self._identify() != self._key:
                self._tell("changed", "it changes what it is given or closes over. Return what is new instead")
                return
            self._node.choose(value) if self._node.targets else self._node.by_name(value)
            self._put(self._key, self._gate.gate(value))
        except (GraphError, UnidentifiedError):
            return  # no outcome of the node: whoever takes it says so
        except UnstorableError as error:
            self._tell("value", f"what it gave cannot be stored: {error}")
        except EverstepError as error:
            self._tell("store", str(error))

    def _put(self, key: bytes, data: bytes) -> None:
        node = self._node
        if PLACEHOLDER in data or self._gate.named([(SET, name) for name in node.outputs]):
            self._tell("secret", "what it gave holds a secret. Read a secret in the node that uses it")
            return
        shelf = blake2b(node.name.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if not self._store().put(key, data, shelf, self._policy.limits):
            self._tell("size", f"what it gave takes more than the {self._policy.max_bytes:,} bytes of its max_bytes")

    def _store(self) -> ValueCache:
        trail = self._run.trail
        return trail.store.cache() if trail is not None and isinstance(trail.store, Caches) else _IN_PROCESS

    def _tell(self, kind: str, why: str) -> None:
        """Say once for each kind of reason that a node runs without its cache."""
        told = _told.setdefault(self._node, set())
        if kind not in told:
            told.add(kind)
            faults.warn(f"node {self._node.name!r} runs without its cache: {why}.", UncachedWarning)


def _no_piece(_: bytes) -> bytes:
    raise DamagedError("it refers to a piece, and nothing that is cached is kept in pieces")


def cached(look: Lookup, body: Callable[[], Any]) -> Any:
    """What is cached, or else what the call gives."""
    if not look.up():
        look.keep(body())
    return look.value


async def cached_awaited(
    look: Lookup, body: Callable[[], Awaitable[Any]], in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
) -> Any:
    """`cached`, for what is awaited. The event loop does not wait for the disk."""
    if not await in_thread(look.up):
        await in_thread(partial(look.keep, await body()))
    return look.value

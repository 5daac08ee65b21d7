"""What a writer knows of the state without reading it: enough to see whether changes fit, and to make keyframes."""

from __future__ import annotations

from typing import Any, TypeAlias

from everstep.codec import record
from everstep.codec.delta import APPEND, SET
from everstep.codec.encoding import is_list
from everstep.codec.keyframe import StateTree
from everstep.codec.values import Kept, view
from everstep.errors import StateError

KEYFRAME_BYTES = 128 * 1024  # of changes, after which the state is worth a keyframe
_AT_TOP = SET, APPEND  # operations of which a list of names tells whether they fit
_LISTS = frozenset(sign for sign in range(256) if is_list(bytes((sign,))))  # what the encodings of lists begin with
Taken: TypeAlias = tuple[list[Any], bytes]  # operations at the top whose values are encoded, and so is the output


class Shadow:
    """The writer's own idea of the state: folded only when a keyframe is due, so that a step pays for its change alone.

    What it must know at once is whether an operation fits. For top-level names that is which of them are lists; an
    operation that goes deeper is folded on the spot.
    """

    __slots__ = ("_tree", "bytes", "due", "lists", "recent")

    def __init__(self, tree: StateTree) -> None:
        self._tree = tree
        self.recent: list[bytes | Taken] = []  # payloads as they are stored, or what they do, not yet folded
        self.bytes = 0
        self.due = KEYFRAME_BYTES
        self.lists: dict[str, bool] | None = {}  # by top-level name, whether a list stands there; None: not known

    def admit(self, ops: list[list[Any]], output: Any) -> bool:
        """Whether the operations go deeper than top-level names. Raises StateError if one at the top does not fit."""
        if self.lists is None:
            self.fold()
            self.lists = self._tree.lists()
        lists = self.lists
        for op in ops:
            code, path = op[0], op[1]
            if type(path) is not str or code not in _AT_TOP:
                self.lists = None
                return True
            if code == SET:
                given = op[2] if len(op) > 2 else output
                lists[path] = given.data[0] in _LISTS if type(given) is Kept else type(given) is list
            elif not lists.get(path, True):
                raise StateError(f"state.{path}", "it is not a list, so nothing can be appended")
            elif len(op) > 2 and type(op[2]) is not list:
                raise StateError(f"state.{path}", f"the items are a {type(op[2]).__name__}", "Give them as a list.")
            else:
                lists[path] = True
        return False

    def fold(self) -> None:
        """Let the tree have what was not folded yet."""
        for each in self.recent:
            if isinstance(each, tuple):
                self._tree.take(*each)
            else:
                self._tree.apply(record.ops_of(view(each)))
        self.recent.clear()

    def freeze(self) -> Any:
        """A keyframe of the state as it is."""
        self.fold()
        return self._tree.freeze()

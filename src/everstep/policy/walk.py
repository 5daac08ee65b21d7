"""One level of a viewed value taken apart and put together again, types kept."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import Any

from everstep.codec.values import Generic

Replace = Callable[[Any], Any]
Under = Callable[[str, Any], Any]


def rebuild(node: Any, replace: Replace, under: Under) -> Any:
    """`node` with `replace` applied to what it holds, and `under` to what it holds by a name.

    Names are str keys, fields, the first of each two in a list of pairs, as headers and forms are kept, and an option
    in a list of words, as a command is. A leaf that holds no text is returned as it is.
    """
    if isinstance(node, dict):
        return _dict(node, replace, under)
    if isinstance(node, list | tuple | set | frozenset):
        return type(node)((_pairs if _is_pairs(node) else _words)(node, replace, under))
    if isinstance(node, deque):
        return deque(map(replace, node), node.maxlen)
    if isinstance(node, Generic):
        fields = {name: under(name, item) for name, item in node.fields.items()}
        return Generic(node.kind, node.name, node.version, fields, tuple(map(replace, node.others)))
    if isinstance(node, PurePath):
        return _path(node, replace)
    return _array(node, replace) if getattr(getattr(node, "dtype", None), "kind", "") in {"U", "S"} else node


def _dict(node: dict[Any, Any], replace: Replace, under: Under) -> dict[Any, Any]:
    made = node.copy()  # of the same class, with the same default factory
    made.clear()
    for key, item in node.items():
        name = key.fields.get("name") if isinstance(key, Generic) else key
        new = replace(key)
        # A dict is packed as it is only if its keys are exactly str.
        made[str.__str__(new) if isinstance(key, str) else new] = (
            under(name, item) if isinstance(name, str) else replace(item)
        )
    return made


def _is_pairs(node: Iterable[Any]) -> bool:
    return all(isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str | bytes) for item in node)


def _pairs(node: Iterable[Any], replace: Replace, under: Under) -> Iterable[Any]:
    for pair in node:
        name = pair[0].decode("latin-1") if isinstance(pair[0], bytes) else pair[0]
        yield type(pair)((replace(pair[0]), under(name, pair[1])))


def _words(node: Iterable[Any], replace: Replace, under: Under) -> Iterable[Any]:
    """Items; what follows an option such as `--password` stands under its name. In a set nothing follows another."""
    name, ordered = None, isinstance(node, list | tuple)
    for item in node:
        word = item if ordered and isinstance(item, str) else ""
        yield replace(item) if name is None or word.startswith("-") else under(name, item)
        name = word if word.startswith("--") else None


def _path(node: PurePath, replace: Replace) -> Any:
    text = str(node)
    cleaned = replace(text)
    if cleaned == text:
        return node
    return type(node)(cleaned) if type(cleaned) is str else cleaned


def _array(node: Any, replace: Replace) -> Any:
    """An array of text or bytes. Placeholders are longer than most, so it gets wider."""
    items = node.ravel().tolist()
    cleaned = [replace(item) for item in items]
    if cleaned == items:
        return node
    same = [item.encode() if isinstance(item, str) and node.dtype.kind == "S" else item for item in cleaned]
    return sys.modules["numpy"].array([*map(str, same)] if node.dtype.kind == "U" else same).reshape(node.shape)

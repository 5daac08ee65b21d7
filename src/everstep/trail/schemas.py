"""JSON schemas from Python types, and JSON schemas in words."""

from __future__ import annotations

import dataclasses
import json
import math
import types
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from everstep.codec.shown import cut

_SIMPLE: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"}, int: {"type": "integer"}, float: {"type": "number"}, str: {"type": "string"},
    list: {"type": "array"}, dict: {"type": "object"}, None: {"type": "null"}, type(None): {"type": "null"}, Any: {},
}  # fmt: skip
_WORDS = {
    "boolean": "true or false", "integer": "a whole number", "number": "a number", "string": "text", "array": "a list",
    "object": "an object", "null": "null",
}  # fmt: skip
_SHOWN = 12  # values or fields that are listed in words
_DEEP = 6  # levels of a schema that are told in words
_OTHERWISE = "Give a JSON schema as a dict."


class NotPlainError(Exception):
    """Something has no form in JSON, or no schema can be derived from it: where, and what was found there."""

    def __init__(self, path: str, found: str, way_out: str = "Use plain data: text, numbers, lists, dicts.") -> None:
        self.path, self.found, self.way_out = path, found, way_out
        super().__init__(f"{path} is {found}")


def shown(key: object) -> str:
    """One stage of a path."""
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r:.60}]"


def plain(value: Any, path: str) -> Any:
    """A copy of the value, when JSON can hold it as it is. Raises NotPlainError."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise NotPlainError(path, f"a dict with the key {key!r:.40}, which is no text")
        return {key: plain(item, path + shown(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item, f"{path}[{place}]") for place, item in enumerate(value)]
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise NotPlainError(path, "no finite number" if isinstance(value, float) else kind_of(value))


def nests(value: Any) -> int:
    """How many levels a value has. Counted without recursion: what is asked is whether recursing is safe."""
    levels, level = 0, [value]
    while level:
        levels += 1
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return levels


def kind_of(value: Any) -> str:
    """What sort of value it is, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    kinds = ((int, "a whole number"), (float, "a number"), (str, "text"), (list, "a list"), (dict, "an object"))
    return next((words for kind, words in kinds if isinstance(value, kind)), f"a {type(value).__name__}")


# From types.


def derived(given: Any) -> dict[str, Any]:
    """The JSON schema of a type; a JSON schema is copied. Raises NotPlainError."""
    if isinstance(given, dict):
        copy: dict[str, Any] = plain(given, "schema")
        return copy
    definitions: dict[str, Any] = {}
    made = _of(given, "schema", definitions, ())
    return {**made, "$defs": definitions} if definitions else made


def _of(kind: Any, path: str, definitions: dict[str, Any], inside: tuple[Any, ...]) -> dict[str, Any]:
    """The schema of a type inside others. What models define goes where their references look for it: to the root."""
    made = next((dict(made) for simple, made in _SIMPLE.items() if kind is simple), None)
    if made is None and get_origin(kind) is not None:
        made = _generic(kind, path, definitions, inside)
    elif made is None and isinstance(kind, type):
        made = _class(kind, path, definitions, inside)
    if made is None:
        raise NotPlainError(path, f"{kind!r:.80}, from which no schema can be derived", _OTHERWISE)
    return made


def _generic(kind: Any, path: str, definitions: dict[str, Any], inside: tuple[Any, ...]) -> dict[str, Any] | None:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _enum([one.value if isinstance(one, Enum) else one for one in arguments], path)
    if origin in {Union, types.UnionType}:
        return _union([_of(one, path, definitions, inside) for one in arguments])
    if origin is list:
        return {"type": "array", "items": _of(arguments[0], f"{path}[]", definitions, inside)}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": _of(arguments[1], f"{path}[]", definitions, inside)}
    return None


def _class(kind: Any, path: str, definitions: dict[str, Any], inside: tuple[Any, ...]) -> dict[str, Any] | None:
    if issubclass(kind, Enum):
        return _enum([one.value for one in kind], path)
    if callable(getattr(kind, "model_json_schema", None)):
        return _model(kind, path, definitions)
    return _dataclass(kind, path, definitions, inside) if dataclasses.is_dataclass(kind) else None


def _enum(values: list[Any], path: str) -> dict[str, Any]:
    return {"enum": plain(values, path)}


def _union(parts: list[dict[str, Any]]) -> dict[str, Any]:
    if all(part.keys() == {"type"} for part in parts):
        return {"type": [part["type"] for part in parts]}
    return {"anyOf": parts}


def _model(kind: Any, path: str, definitions: dict[str, Any]) -> dict[str, Any]:
    try:
        made: dict[str, Any] = plain(kind.model_json_schema(), path)
    except NotPlainError:
        raise
    except Exception as error:  # it is the model's own code that makes it
        raise NotPlainError(path, f"a model without a JSON schema ({type(error).__name__})", _OTHERWISE) from error
    for name, definition in made.pop("$defs", {}).items():
        if definitions.setdefault(name, definition) != definition:
            raise NotPlainError(path, f"made of two different classes named {name!r}", _OTHERWISE)
    return made


def _dataclass(kind: Any, path: str, definitions: dict[str, Any], inside: tuple[Any, ...]) -> dict[str, Any]:
    if kind in inside:
        raise NotPlainError(path, f"a {kind.__name__}, which holds itself", _OTHERWISE)
    try:
        hints = get_type_hints(kind)
    except Exception as error:  # a hint is evaluated, and may raise anything
        raise NotPlainError(path, f"a {kind.__name__}, whose fields name unknown types", _OTHERWISE) from error
    fields = [field for field in dataclasses.fields(kind) if field.init]
    needed = [
        field.name for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]  # fmt: skip
    properties = {
        field.name: _of(hints[field.name], f"{path}.{field.name}", definitions, (*inside, kind)) for field in fields
    }
    made = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**made, "required": needed} if needed else made


# In words.


def described(schema: Any, root: dict[str, Any] | None = None, depth: int = 0) -> str:
    """What a schema allows, in words; what it says beyond the shape is left to the errors."""
    root = schema if root is None else root
    if not isinstance(schema, dict) or depth > _DEEP:
        return "what the schema says"
    if isinstance(schema.get("$ref"), str):
        return described(_followed(schema["$ref"], root), root, depth + 1)
    if "const" in schema:
        return _text(schema["const"])
    for rule in ("enum", "anyOf", "oneOf", "type"):
        if rule in schema:
            parts = schema[rule] if isinstance(schema[rule], list) else [schema[rule]]
            return _choice(rule, parts, schema, root, depth)
    return "any value" if not schema else "what the schema says: " + _text(schema)


def _choice(rule: str, parts: list[Any], schema: dict[str, Any], root: dict[str, Any], depth: int) -> str:
    if rule == "enum":
        words = [_text(part) for part in parts[:_SHOWN]] + ["..."] * (len(parts) > _SHOWN)
        return words[0] if len(parts) == 1 else f"one of {', '.join(words)}"
    if rule == "type":
        return " or ".join(_shape(part, schema, root, depth) for part in parts[:_SHOWN])
    return " or ".join(dict.fromkeys(described(part, root, depth + 1) for part in parts[:_SHOWN]))


def _shape(kind: Any, schema: dict[str, Any], root: dict[str, Any], depth: int) -> str:
    if kind == "array" and isinstance(schema.get("items"), dict) and depth < _DEEP:
        return f"a list, each {described(schema['items'], root, depth + 1)}"
    properties, needed = schema.get("properties"), schema.get("required", [])
    needed = needed if isinstance(needed, list) else []  # as all of it, it may come from a hostile file
    if kind == "object" and isinstance(properties, dict) and properties and depth < _DEEP:
        fields = [
            f"{name} ({described(part, root, depth + 1)}{'' if name in needed else '; may be left out'})"
            for name, part in list(properties.items())[:_SHOWN]
        ] + ["..."] * (len(properties) > _SHOWN)
        return f"an object with {', '.join(fields)}"
    if not isinstance(kind, str):
        return "something else"
    return _WORDS.get(kind, "something else") + (_bounds(schema) if kind in {"integer", "number"} else "")


def _bounds(schema: dict[str, Any]) -> str:
    """Between which bounds a number must be."""
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        return f" from {_text(least)} to {_text(most)}"
    return f" from {_text(least)} on" if least is not None else f" up to {_text(most)}" if most is not None else ""


def _followed(reference: str, root: Any) -> Any:
    for stage in reference.removeprefix("#").split("/")[1:]:
        root = root.get(stage.replace("~1", "/").replace("~0", "~")) if isinstance(root, dict) else None
    return root


def _text(value: Any) -> str:
    return cut(json.dumps(value, ensure_ascii=False, default=str), 120)

"""The classes whose values can be kept, by name.

A class is known once one of its values was encoded (enums, dataclasses, named tuples, pydantic models) or
once it was given to `register`. Nothing is ever imported because stored bytes name it.

A registered class of any other kind is kept by its plain attributes (`__dict__` and `__slots__`), like a
dataclass. There is no pair of dump and load functions beside it, on purpose: attributes need no second
function that must be kept in step with the first, upcasters work on them as on any fields, and they can be
read without the class. A class that hides state from Python (a subclass of dict, a C type) is refused.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from everstep.codec.homes import home_of
from everstep.errors import ChangedClassError, DamagedError, UnknownClassError, UnstorableError

T = TypeVar("T")
Upcast = Callable[[dict[str, Any]], dict[str, Any]]

_WORD = object.__basicsize__ // 2  # an object is a count and a type: two words


class Refused(Exception):  # noqa: N818 - never leaves the codec: it becomes an UnstorableError with a path
    """A value has no faithful form. `trail` grows from the inside out while it passes the containers."""

    def __init__(self, reason: str, way_out: str = "") -> None:
        super().__init__(reason)
        self.reason, self.way_out = reason, way_out
        self.trail: list[str] = []
        self.passed: list[object] = []


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """What is known of one class: its stored name and version, and where its instances keep their state."""

    cls: type
    name: str
    kind: str
    version: int
    upcast: Mapping[int, Upcast]
    fields: tuple[str, ...]  # the declared ones; a class of kind "object" declares none
    slots: tuple[str, ...]
    caches: frozenset[str]  # functools.cached_property: computed again on demand, so not part of the value


_by_class: dict[type, Known] = {}
_by_name: dict[str, Known] = {}
_lock = threading.Lock()


def register(
    cls: type[T], *, name: str | None = None, version: int = 1, upcast: Mapping[int, Upcast] | None = None
) -> type[T]:
    """Make `cls` known, so that its values can be stored and given back. Returns `cls`: it works as a decorator.

    `name` is what is stored for it (default `module:qualname`); give the old one after a rename. Raise `version`
    when its fields change, with `upcast={1: f}`, where `f` takes the fields of a version 1 value as a dict and
    returns those of version 2. Defining a class again (a reload, a notebook cell) replaces the old definition.
    """
    steps = dict(upcast or {})
    if version < 1 or not all(0 < step < version for step in steps):
        raise ValueError(f"versions count from 1, and upcast has keys from 1 to version - 1; got {version}, {steps}")
    try:
        known = _describe(cls, _kind(cls) or "object", name, version, steps)
    except Refused as refused:
        raise UnstorableError(cls.__qualname__, refused.reason, refused.way_out) from None
    with _lock:
        other = _by_name.get(known.name)
        if other is not None and other.cls is not cls:
            if _default_name(other.cls) != _default_name(cls):
                raise UnstorableError(cls.__qualname__, _clash(known.name, other.cls), _RENAME)
            _by_class.pop(other.cls, None)
        _by_class[cls] = _by_name[known.name] = known
    return cls


def known_for(cls: type) -> Known | None:
    """What is known of a class whose value is being encoded; None if it must be registered first."""
    known = _by_class.get(cls)
    if known is not None:
        return known
    kind = _kind(cls)
    if kind is None:
        return None
    known = _describe(cls, kind, None, 1, {})
    with _lock:
        other = _by_name.setdefault(known.name, known)
        if other.cls is not cls:
            raise Refused(_clash(known.name, other.cls), _RENAME)
        return _by_class.setdefault(cls, other)


_RENAME = "Give one of them a name of its own with everstep.register(cls, name=...)."


def _clash(name: str, other: type) -> str:
    return f"its class and another one ({other!r}) are both named {name!r}"


def _default_name(cls: type) -> str:
    return f"{home_of(cls)}:{cls.__qualname__}"


def _kind(cls: type) -> str | None:
    """How values of `cls` are kept without being asked to, if they are."""
    if issubclass(cls, BaseException):
        return None
    if issubclass(cls, enum.Enum):
        return "enum"
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return "namedtuple"
    # Looked up, not imported: if no pydantic model class exists yet, `cls` is not one.
    model = getattr(sys.modules.get("pydantic.main"), "BaseModel", None)
    if model is not None and issubclass(cls, model) and hasattr(model, "__pydantic_fields_set__"):
        return "pydantic"
    return "dataclass" if dataclasses.is_dataclass(cls) else None


def _describe(cls: type, kind: str, name: str | None, version: int, upcast: Mapping[int, Upcast]) -> Known:
    if issubclass(cls, BaseException):
        raise Refused(f"{cls.__qualname__} is an exception, and exceptions are not values", "Keep its message instead.")
    fields: tuple[str, ...] = ()
    if kind == "namedtuple":
        fields = cls._fields  # type: ignore[attr-defined]  # `_kind` has looked
    elif kind == "pydantic":
        fields = tuple(cls.model_fields)  # type: ignore[attr-defined]  # pydantic is optional
    elif kind == "dataclass":
        fields = tuple(field.name for field in dataclasses.fields(cls))  # type: ignore[arg-type]  # `_kind` has looked
    slots = _slots(cls)
    if kind in ("dataclass", "object") and _hides_state(cls, len(slots)):
        reason = f"{cls.__qualname__} keeps state that its attributes do not show (it derives from a built-in type)"
        raise Refused(reason, "Hold the built-in value in an attribute, or convert it to plain data.")
    spaces = [vars(base) for base in cls.__mro__]
    caches = frozenset(n for space in spaces for n, v in space.items() if isinstance(v, functools.cached_property))
    return Known(cls, name or _default_name(cls), kind, version, upcast, fields, slots, caches)


def _slots(cls: type) -> tuple[str, ...]:
    names: list[str] = []
    for base in cls.__mro__:
        declared = base.__dict__.get("__slots__", ())
        for slot in (declared,) if isinstance(declared, str) else declared:
            private = slot.startswith("__") and not slot.endswith("__")
            name = f"_{base.__name__.lstrip('_')}{slot}" if private else slot
            if name not in ("__dict__", "__weakref__"):
                names.append(name)
    return tuple(dict.fromkeys(names))


def _hides_state(cls: type, slots: int) -> bool:
    """Whether instances are larger than what `__dict__`, `__slots__` and weak references explain."""
    explained = object.__basicsize__ + _WORD * (slots + (cls.__dictoffset__ > 0) + (cls.__weakrefoffset__ > 0))
    return cls.__itemsize__ != 0 or cls.__basicsize__ > explained


def state_of(known: Known, value: Any) -> tuple[dict[str, Any], list[Any]]:
    """The fields of a value, and what else it carries: attributes beside them, and what pydantic notes."""
    if known.kind == "enum":
        return _enum_state(value), []
    if known.kind == "namedtuple":
        fields = dict(zip(known.fields, value, strict=True))
    elif known.kind == "object":
        return _attributes(known, value), []
    else:
        fields = {name: _get(value, name) for name in known.fields}
    others = _attributes(known, value)
    if known.kind == "pydantic":
        noted = sorted(value.__pydantic_fields_set__)
        return fields, [others, noted, value.__pydantic_extra__, getattr(value, "__pydantic_private__", None)]
    return fields, [others] if others else []


def _get(value: Any, name: str) -> Any:
    try:
        return getattr(value, name)
    except AttributeError:
        raise Refused(f"the field {name!r} of this {type(value).__qualname__} was never set", "Set it first.") from None


def _enum_state(value: Any) -> dict[str, Any]:
    if type(value).__members__.get(value.name) is value:
        return {"name": value.name}
    if isinstance(value, enum.Flag):
        return {"value": value.value}
    raise Refused(f"{value!r} is not a member of its enum")


def _attributes(known: Known, value: Any) -> dict[str, Any]:
    """The attributes that are no declared fields. Pydantic's own slots are its notes, kept apart."""
    skip = known.caches.union(known.fields)
    found = {}
    if known.kind != "pydantic":
        found = {name: getattr(value, name) for name in known.slots if name not in skip and hasattr(value, name)}
    found.update((k, v) for k, v in getattr(value, "__dict__", {}).items() if k not in skip)
    return found


def restore(kind: str, content: Any) -> Any:
    """The value that `[name, version, fields, *others]` describes, made without running its class's code."""
    name, version, fields, others = check_content(content)
    known = _by_name.get(name)
    if known is None:
        raise UnknownClassError(name)
    if known.kind != kind:
        raise ChangedClassError(name, f"it was a {kind} and is a {known.kind} now")
    stored = frozenset(fields)
    fields = _upcast(known, version, fields)
    if kind == "enum":
        return _member(known, fields)
    if kind != "object" and set(fields) != set(known.fields):
        missing = sorted(set(known.fields) - set(fields))
        raise ChangedClassError(name, f"missing fields {missing}, unexpected {sorted(set(fields) - set(known.fields))}")
    if kind == "namedtuple":
        made: Any = tuple.__new__(known.cls, [fields[field] for field in known.fields])
    else:
        made = object.__new__(known.cls)
    if kind == "pydantic":
        return _fill_model(made, fields, stored, others)
    if kind == "dataclass":
        for field in known.fields:
            object.__setattr__(made, field, fields[field])
    _set_attributes(known, made, fields if kind == "object" else others[0] if others else {})
    return made


def check_content(content: Any) -> tuple[str, int, dict[str, Any], list[Any]]:
    """The four parts of a stored instance, or DamagedError."""
    if type(content) is list and len(content) > 2:
        name, version, fields, *others = content
        if isinstance(name, str) and isinstance(version, int) and isinstance(fields, dict):
            return name, version, fields, others
    raise DamagedError("a stored instance does not have the parts of one")


def _upcast(known: Known, version: int, fields: dict[str, Any]) -> dict[str, Any]:
    if version > known.version:
        raise ChangedClassError(known.name, f"it was stored as version {version}, the class is version {known.version}")
    for step in range(version, known.version):
        if step not in known.upcast:
            raise ChangedClassError(known.name, f"it was stored as version {version} and no upcaster leaves {step}")
        try:
            fields = dict(known.upcast[step](dict(fields)))
        except Exception as error:  # the user's function: whatever it raises, the value does not fit the class
            raise ChangedClassError(known.name, f"its upcaster from version {step} failed with {error!r}") from error
    return fields


def _member(known: Known, fields: dict[str, Any]) -> Any:
    cls: Any = known.cls
    match fields:
        case {"name": str(name)} if name in cls.__members__:
            return cls.__members__[name]
        case {"value": int(value)} if issubclass(cls, enum.Flag):
            try:
                flags = cls(value)
            except ValueError:
                flags = None
            # A flag class may drop unknown bits or turn into an int instead of failing: neither is what was stored.
            if type(flags) is cls and flags.value == value:
                return flags
    raise ChangedClassError(known.name, f"it has no member {fields.get('name', fields.get('value'))!r}")


def _fill_model(made: Any, fields: dict[str, Any], stored: frozenset[str], others: list[Any]) -> Any:
    match others:
        case [dict(attributes), list(noted), dict() | None as extra, dict() | None as private]:
            pass
        case _:
            raise DamagedError("a stored pydantic model does not have the parts of one")
    # What an upcaster added or renamed counts as set: it came from the stored value.
    names = set(noted) - (stored - set(fields)) | (set(fields) - stored)
    unknown = sorted(set(private or ()) - set(type(made).__private_attributes__))
    if unknown:
        raise ChangedClassError(_by_class[type(made)].name, f"unexpected private attributes {unknown}")
    object.__setattr__(made, "__dict__", {**fields, **attributes})
    object.__setattr__(made, "__pydantic_fields_set__", names)
    object.__setattr__(made, "__pydantic_extra__", extra)
    object.__setattr__(made, "__pydantic_private__", private)
    return made


def _set_attributes(known: Known, made: Any, attributes: dict[str, Any]) -> None:
    space = getattr(made, "__dict__", None)
    for name, item in attributes.items():
        if name in known.slots:
            object.__setattr__(made, name, item)
        elif space is not None:
            space[name] = item
        else:
            raise ChangedClassError(known.name, f"it has no place for the attribute {name!r}")

"""Which code it is: a digest of a function with all that can be seen to make it what it is.

Not of its source: the file may have been changed since it was read, one line may hold two functions, and the same text
means something else around other values. So it is taken of what the interpreter runs, with

- the functions that it calls by their names, and what these are made of in turn,
- the constants that it reads by their names: what can be stored and is of a type that can be hashed,
- what it closes over, as it is at the moment,
- what a method, a partial or an object that can be called is bound to.

What is reached through an attribute, of a module or an object, is not seen, nor are lists and dicts of its module.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache, partial
from hashlib import blake2b
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from everstep.codec.values import encode
from everstep.errors import UnstorableError
from everstep.policy.redaction import Gate
from everstep.run.arguments import name_of

_BUILT_IN = (BuiltinFunctionType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType)
_READS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))
_SETS = frozenset(("STORE_GLOBAL", "DELETE_GLOBAL"))
_SETS_OUTER = frozenset(("STORE_DEREF", "DELETE_DEREF"))
_VERSION = f"{sys.implementation.cache_tag} 1"  # byte code means something else to another interpreter


class UnidentifiedError(Exception):
    """It cannot be told what something is made of. The text says what."""


class Identity:
    """A digest that grows with what is added to it. What must not be kept stands in it as a keyed placeholder."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._hash = blake2b(_VERSION.encode(), digest_size=32)
        self._functions: list[FunctionType] = []  # in the order they were met
        self._numbers: dict[int, int] = {}  # by id, the place of each among them: functions may call each other
        self._named: deque[FunctionType] = deque()  # met by their names, and not taken apart yet
        self._strict = True

    def digest(self) -> bytes:
        """The digest of all that was added."""
        self._strict = False  # what is found by a name is looked at as far as it can be
        while self._named:
            self._take_apart(self._named.popleft())
        return self._hash.digest()

    def add(self, name: str, value: Any, of: str = "its") -> None:
        """Add a value under a name; where it has no stored form, the code that it is. Raises UnidentifiedError."""
        try:
            self._write(name, self._gate.gate({name: value}))
        except UnstorableError as refused:
            if self._add_code(name, value):
                return
            if self._strict:
                raise UnidentifiedError(f"{of} {name!r} cannot be told from another: {refused.reason}") from None
            self._write(name, name_of(type(value)).encode())

    def _write(self, name: str, data: bytes) -> None:
        for part in (name.encode("utf-8", "surrogatepass"), data):
            self._hash.update(len(part).to_bytes(8, "big"))
            self._hash.update(part)

    def _add_code(self, name: str, value: Any) -> bool:
        """Add what a thing is made of; False if that cannot be told."""
        own = getattr(type(value), "__everstep_digest__", None)
        wrapped = _wrapped(value)
        if wrapped is not None:
            self._write(name, name_of(type(value)).encode())
            self._function(wrapped)
        elif isinstance(value, MethodType):
            self.add("function", value.__func__)
            self.add("self", value.__self__)
        elif isinstance(value, partial):
            self.add("function", value.func)
            for part, bound in (*enumerate(value.args), *value.keywords.items()):
                self.add(str(part), bound, "its argument")
        elif isinstance(value, (*_BUILT_IN, ModuleType, type)):
            return self._add_name(name, value)
        elif own is not None:
            self.add(name, [name_of(type(value)), own(value)])
        else:
            return False
        return True

    def _add_name(self, name: str, value: Any) -> bool:
        owner = getattr(value, "__self__", None)
        if owner is not None and not isinstance(owner, type | ModuleType):
            self.add(name, owner)
        full = value.__name__ if isinstance(value, ModuleType) else name_of(value)
        self._write(name, full.encode())
        return "<locals>" not in full  # a class that a function makes is another with every call

    def callable(self, called: Any) -> None:
        """Add what is called. Raises UnidentifiedError."""
        if isinstance(called, type):
            raise UnidentifiedError("it is a class, and what a class does cannot be told")
        if not isinstance(called, (FunctionType, MethodType, partial, *_BUILT_IN)):
            self.add("function", type(called).__call__)
        self.add("self", called)

    def _function(self, function: FunctionType) -> None:
        if self._is_new(function):
            self._take_apart(function)

    def _is_new(self, function: FunctionType) -> bool:
        """Add the number of a function. Whether it is met for the first time."""
        number = self._numbers.setdefault(id(function), len(self._functions))
        self._write("number", str(number).encode())
        if number < len(self._functions):
            return False
        self._functions.append(function)
        return True

    def _take_apart(self, function: FunctionType) -> None:
        code = function.__code__
        shape, reads, sets = _taken_apart(code)
        self._write("code", shape)
        if function is not self._functions[0]:  # that one is given all that it takes
            self.add("defaults", [function.__defaults__, function.__kwdefaults__])
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if name not in sets:
                self._add_cell(name, cell)
        for name in reads:
            if name in function.__globals__:
                self._add_global(name, function.__globals__[name])

    def _add_cell(self, name: str, cell: Any) -> None:
        try:
            value = cell.cell_contents
        except ValueError:  # nothing is there yet
            return
        self.add(name, value, "its outer")

    def _add_global(self, name: str, value: Any) -> None:
        """Add a constant or a function; the rest of a module is not looked at."""
        wrapped = _wrapped(value)
        if wrapped is not None:
            self._write(name, name_of(type(value)).encode())
            if self._is_new(wrapped):
                self._named.append(wrapped)
        elif type(value).__hash__ is not None:
            with suppress(UnstorableError):
                self._write(name, self._gate.gate({name: value}))


def _wrapped(value: Any) -> FunctionType | None:
    """The function that a value is, or that it was made of with a decorator."""
    found = value if isinstance(value, FunctionType) else inspect.getattr_static(value, "__wrapped__", None)
    return found if isinstance(found, FunctionType) else None


@lru_cache(maxsize=4096)
def _taken_apart(code: CodeType) -> tuple[bytes, tuple[str, ...], frozenset[str]]:
    """A digest of a code, the global names that it reads and does not set, and the outer names that it sets."""
    reads, sets = set[str](), set[str]()
    for each in _with_inner(code):
        for instruction in dis.get_instructions(each):
            if instruction.opname in _READS:
                reads.add(instruction.argval)
            elif instruction.opname in _SETS:
                sets.add(instruction.argval)
    return blake2b(encode(_shape(code))).digest(), tuple(sorted(reads - sets)), frozenset(_sets_outer(code))


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in _inner(code):
        yield from _with_inner(inner)


def _inner(code: CodeType) -> list[CodeType]:
    return [const for const in code.co_consts if isinstance(const, CodeType)]


def _sets_outer(code: CodeType) -> set[str]:
    """The names that a code closes over and sets: what it counts with, not what it is made of."""
    own = {each.argval for each in dis.get_instructions(code) if each.opname in _SETS_OUTER}
    return own.union(*map(_sets_outer, _inner(code))) & set(code.co_freevars)


def _shape(code: CodeType) -> list[Any]:
    """The code without its name and its place, as plain data."""
    consts = [_shape(const) if isinstance(const, CodeType) else (_constant(const),) for const in code.co_consts]
    return [
        code.co_code, code.co_exceptiontable, consts, code.co_names, code.co_varnames, code.co_cellvars,
        code.co_freevars, code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount,
    ]  # fmt: skip


def _constant(const: Any) -> Any:
    if isinstance(const, tuple):
        return tuple(map(_constant, const))
    if isinstance(const, str) and not const.isascii():  # half a character has no stored form
        return [const.encode("utf-8", "surrogatepass")]
    return ["..."] if const is ... else const  # no constant is a list

"""What a step is given, under the names of its parameters, and the digest that tells whether it changed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from everstep.codec.encoding import LIMIT
from everstep.codec.homes import home_of
from everstep.codec.values import view
from everstep.errors import EverstepError, ParametersDifferError, UnstorableError
from everstep.model import Kind
from everstep.policy.redaction import Gate, only_secrets_differ
from everstep.trail.compare import MISSING, Change, changes
from everstep.trail.late import Late
from everstep.trail.trail import Trail

_INPUTS = Late("everstep.trail.inputs")
IMMUTABLE = frozenset((str, int, float, bool, type(None), bytes, complex))
_NAMED = (
    FunctionType, BuiltinFunctionType, MethodType, MethodWrapperType, MethodDescriptorType, WrapperDescriptorType, type
)  # fmt: skip
_BUILT_IN = (dict, list, tuple, set, frozenset, str, bytes, int, float)
_BOXES = (list, tuple, dict, functools.partial)
_SECRETS = (
    " Only secrets differ: another one was given, or the key that placeholders are made with is not the one of the "
    "recording (EVERSTEP_KEY_FILE)."
)
_SIMPLE = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Parameters:
    """Binds arguments to the names of a function's parameters, defaults applied: `f(1)` and `f(x=1)` are the same."""

    def __init__(self, function: Callable[..., Any], ignore: Sequence[str], whose: str) -> None:
        self._whose = whose
        try:
            self.signature = self._signature = inspect.signature(function)
        except ValueError:
            raise TypeError(
                f"{whose}: Python does not tell what {function!r:.60} takes. Call it in a function of your own."
            ) from None
        if isinstance(ignore, str):
            raise TypeError(f"ignore={ignore!r}: give a list of names, as in ignore=[{ignore!r}]")
        self._ignore = frozenset(ignore)
        unknown = self._ignore - set(self._signature.parameters)
        if unknown:
            raise TypeError(f"{whose} has no parameter {', '.join(sorted(unknown))} that could be ignored")
        parameters = list(self._signature.parameters.values())
        self._simple = all(each.kind in _SIMPLE for each in parameters) and not ignore
        self._names = tuple(each.name for each in parameters)
        self._positional = sum(each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for each in parameters)
        self._all = self._positional if self._simple and self._positional == len(parameters) else -1
        self._defaults = {each.name: each.default for each in parameters if each.default is not each.empty}

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, in the order of the parameters. Raises TypeError as a call would."""
        if len(args) == self._all and not kwargs:
            return dict(zip(self._names, args))  # noqa: B905 - as many: to say so takes half as long again
        if self._simple and len(args) <= self._positional:
            given = dict(zip(self._names, args, strict=False))
            taken = 0
            for name in self._names[len(args) :]:
                if name in kwargs:
                    given[name] = kwargs[name]
                    taken += 1
                elif name in self._defaults:
                    given[name] = self._defaults[name]
                else:
                    break
            else:
                if taken == len(kwargs):
                    return given
        return self._bind_slowly(args, kwargs)

    def spread(self, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments by name as a call takes them: the opposite of `bind`."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        skipped = False  # what follows would be taken for it, if it were given by its place
        for name, parameter in self._signature.parameters.items():
            if name not in values:
                skipped = True
                continue
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                args.extend(values[name])
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                kwargs.update(values[name])
            elif parameter.kind is inspect.Parameter.KEYWORD_ONLY or (skipped and parameter.kind in _SIMPLE):
                kwargs[name] = values[name]
            else:
                args.append(values[name])
        return tuple(args), kwargs

    def check_recorded(self, run_id: str, recorded: Iterable[str]) -> None:
        """Raise ParametersDifferError if a run has no value for a parameter, or perhaps under another name.

        One that is gone with nothing new beside it is not missed.
        """
        new = [
            name
            for name, parameter in self._signature.parameters.items()
            if name not in recorded and parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
        ]
        if new and (not {*recorded} <= {*self._names} or not {*new} <= {*self._defaults}):
            raise ParametersDifferError(run_id, self._whose, tuple(recorded), self._names)

    def check_forked(self, run_id: str, changed: Iterable[str]) -> None:
        """Raise UnknownInputError if a fork changed something that is no parameter."""
        out = f"The fork {run_id!r} is to change it: fork again without, or go on with the code that takes it."
        _INPUTS.refuse_unknown(run_id, self._whose, changed, self._names, out)

    def _bind_slowly(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(self._said(error, args, kwargs)) from None
        bound.apply_defaults()
        found = {}
        for name, value in bound.arguments.items():
            if name in self._ignore:
                continue
            if self._signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                value = dict(sorted(value.items()))  # noqa: PLW2901 - the order of a call's keywords means nothing
            found[name] = value
        return found

    def _said(self, error: TypeError, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """What is wrong with a call: by names, because values may be secrets."""
        placed = [f"{len(args)} positional argument{'s' if len(args) > 1 else ''}"] if args else []
        given = ", ".join([*placed, *(f"{name!r}" for name in kwargs)]) or "nothing"
        were = "were" if len(args) + len(kwargs) > 1 else "was"
        return f"{self._whose}: {error}. It takes {', '.join(self._names) or 'no arguments'}; {given} {were} given."


class Inputs:
    """The arguments of one call as they will be stored, taken before the call."""

    __slots__ = ("data", "digest", "fixed", "named", "values")

    def __init__(self, gate: Gate, name: str, values: dict[str, Any], kind: str = "step") -> None:
        self.fixed = IMMUTABLE.issuperset(map(type, values.values()))  # nothing in them can change
        self.values = values
        self.named: list[str] = []  # those that something stands for
        try:
            self.data = gate.gate(values)
        except UnstorableError:
            whose = f"{kind} {name!r}"
            self.values = {each: self._storable(gate, whose, each, value) for each, value in values.items()}
            try:
                self.data = gate.gate(self.values)
            except UnstorableError as refused:  # each is as deep as can be stored, and they stand one level deeper
                raise UnstorableError(f"the arguments of {whose}", refused.reason, refused.way_out) from None
        self.digest = blake2b(self.data, digest_size=16).digest()

    def _storable(self, gate: Gate, whose: str, name: str, value: Any) -> Any:
        argument = f"argument {name!r} of {whose}"
        try:
            stored = _stand_in(gate, value, "value", by_class=name == "self")
        except UnstorableError as refused:
            instead = (
                f"Leave it out with @step(ignore=[{name!r}])" if whose.startswith("step") else "Make it in the workflow"
            )
            way_out = f"{instead}, register its class with everstep.register, or give it an __everstep_digest__ method."
            raise UnstorableError(
                refused.path.replace("value", argument, 1),
                refused.reason,
                way_out if _is_of_its_class(refused) else refused.way_out,
            ) from None
        except RecursionError as deep:  # it has functions on every level, so each was looked into for more of them
            reason = f"it contains itself, or is nested deeper than {LIMIT} levels"
            raise UnstorableError(argument, reason, "Flatten it: refer to the other by a name or id.") from deep
        if stored is not value:
            self.named.append(name)
        return stored

    def changed(self, gate: Gate) -> str | None:
        """The name of an argument that was changed since, None if all are as they were."""
        if self.fixed or gate.gate(self.values) == self.data:
            return None
        before = view(self.data)
        return next((name for name, value in self.values.items() if gate.gate(value) != gate.gate(before[name])), "?")


def told_changes(trail: Trail, run_id: str, seq: int, given: Inputs) -> str:
    """What differs from the arguments that a recorded step had, in a sentence; nothing if it cannot be told."""
    try:
        row = trail.step(run_id, seq, view=True)
        kept = {"set": row.values} if row.kind is Kind.SAVE else row.inputs
        parts = changes(dict(kept or {}), view(given.data))
    except EverstepError:
        return ""
    return in_words(parts) + unseen(parts)


def unseen(parts: Sequence[Change]) -> str:
    """What differs though the two sides do not show it, in a sentence that follows another; mostly nothing."""
    if not parts:
        return " The values are the same, and the order of keys in them differs."
    return _SECRETS if all(only_secrets_differ(part.old, part.new) for part in parts) else ""


def in_words(parts: Sequence[Change]) -> str:
    """What differs, in a sentence that follows another."""
    return f" Changed: {'; '.join(map(_told, parts[:3]))}." if parts else ""


def _told(part: Change) -> str:
    said = str(part)[2:].removeprefix("state.")
    return f"{said} (it is new)" if part.old is MISSING else f"{said} (it is gone)" if part.new is MISSING else said


def _stand_in(gate: Gate, value: Any, path: str, *, by_class: bool = False) -> Any:
    """The value, or what stands for it where it has no stored form: never its address."""
    try:
        gate.gate(value)
    except UnstorableError as refused:
        own = getattr(type(value), "__everstep_digest__", None)
        if own is not None:
            return own(value)
        if not _is_of_its_class(refused):  # too deep, a cycle, half a character: nothing can stand for that
            raise UnstorableError(path + refused.path.removeprefix("value"), refused.reason, refused.way_out) from None
        if type(value) in _BOXES:
            return _in_parts(gate, value, path)
        if isinstance(value, _NAMED):
            owner = getattr(value, "__self__", None)
            bound = owner is not None and not isinstance(owner, type | ModuleType)
            return [name_of(value), _stand_in(gate, owner, path, by_class=True)] if bound else name_of(value)
        if by_class:
            return name_of(type(value))
        raise UnstorableError(path, refused.reason, _instead_of_registering(value) or refused.way_out) from None
    return value


def _is_of_its_class(refused: UnstorableError) -> bool:
    """Whether a value is refused because of its class: then it may be known by something else."""
    return "everstep.register" in refused.way_out


def _instead_of_registering(value: Any) -> str:
    """The way out for a value whose class cannot be registered; nothing if it can."""
    if isinstance(value, BaseException):
        return "Give its text instead: str(error)."
    plain = next((each.__name__ for each in _BUILT_IN if isinstance(value, each)), None)
    return "" if plain is None else f"Give a plain {plain}: a class that derives from {plain} cannot be registered."


def _in_parts(gate: Gate, value: Any, path: str) -> Any:
    if isinstance(value, dict):
        return {key: _stand_in(gate, item, f"{path}[{key!r}]") for key, item in value.items()}
    if isinstance(value, functools.partial):
        return [_stand_in(gate, part, path) for part in (value.func, value.args, value.keywords)]
    return type(value)(_stand_in(gate, item, f"{path}[{at}]") for at, item in enumerate(value))


def name_of(value: Any) -> str:
    """Where a function or class stands: its module and its name there."""
    return f"{home_of(value)}:{value.__qualname__}"

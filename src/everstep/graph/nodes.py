"""What a graph is made of: nodes that compute, routes and gates that choose, interrupts that ask a person."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import Any, Literal, overload

from everstep.errors import GraphError
from everstep.graph.cache import Cache
from everstep.model import END
from everstep.run.lanes import here
from everstep.run.retry import Retry
from everstep.run.steps import Step, Unknown, body_of, short_name
from everstep.run.waiting import pause

NodeKind = Literal["node", "route", "gate", "interrupt", "graph"]
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a route or gate chose, and why. A route may return one to say the reason."""

    target: Any  # a name, END, or a list of names; for a gate, whether it is true
    reason: str = ""


class Node:
    """A function with the names of what it takes and gives. Called, it is the plain function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        kind: NodeKind = "node",
        name: str | None = None,
        outputs: Sequence[str] = (),
        inputs: Mapping[str, str] | None = None,
        targets: Sequence[str] = (),
        many: bool = False,
        default: str | None = None,
        retry: Retry | None = None,
        timeout: float | None = None,
        external: bool = False,
        unknown: Unknown = "ask",
        cache: Cache | bool = False,
    ) -> None:
        if not callable(function) or isinstance(function, staticmethod):
            raise TypeError(f"{function!r:.60} is no function, and a node is made of one; @staticmethod goes above it")
        update_wrapper(self, function)
        self.function = function
        self.kind = kind
        self.name = name or short_name(function)
        self.outputs = tuple(outputs)
        self.targets = tuple(targets)
        self.many = many
        self.default = default
        self.cache = Cache() if cache is True else cache or None
        body = body_of(function)
        self.is_stream = inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body)
        self.is_async = inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body)
        self.inputs, self.defaults, self.types = self._read_parameters(inputs or {})
        self._check()
        if self.cache is not None:
            self._check_cache(external=external)
        self.step: Step[..., Any] = Step(
            _collecting(function, self.name) if self.is_stream else function, name=self.name, output=None, append=False,
            external=external, unknown=unknown, retry=retry, timeout=timeout, ignore=(),
        )  # fmt: skip

    def _read_parameters(self, renamed: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
        """The value that each parameter takes, the defaults, and the types that are declared, all by parameter."""
        parameters = self._signature().parameters
        unnamed = [each.name for each in parameters.values() if each.kind not in _NAMED]
        if unnamed:
            raise GraphError(
                f"node {self.name!r}", f"takes {unnamed[0]!r}, which is not given by name",
                "Name every parameter: values are passed by the names of the parameters.",
            )  # fmt: skip
        unknown = sorted(set(renamed) - set(parameters))
        if unknown:
            raise GraphError(
                f"node {self.name!r}", f"has no parameter {unknown[0]!r}",
                f"Its parameters are {_listed(parameters)}; `inputs` says which value each of them takes.",
            )  # fmt: skip
        try:
            hints = inspect.get_annotations(_annotated(self.function), eval_str=True)
        except (NameError, TypeError, AttributeError, SyntaxError):  # names that exist for type checkers only
            hints = {}
        return (
            {name: renamed.get(name, name) for name in parameters},
            {each.name: each.default for each in parameters.values() if each.default is not each.empty},
            {name: hint for name, hint in hints.items() if name in parameters},
        )

    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    def _check(self) -> None:
        hidden = next((name for name in self.outputs if not _is_name(name)), None)
        if hidden is not None:
            raise GraphError(
                f"node {self.name!r}", f"gives {hidden!r}, which is no name for a value",
                "Use a name as for a variable that does not start with an underscore.",
            )  # fmt: skip
        if len(set(self.outputs)) < len(self.outputs):
            raise GraphError(f"node {self.name!r}", "gives one value twice", "Name each output once.")
        if not self.name or self.name == END or "/" in self.name:
            raise GraphError(f"node {self.name!r}", "has a name that cannot be used", "Give it another with name=.")
        if self.default is not None and self.default not in self.targets:
            raise GraphError(
                f"route {self.name!r}", f"falls back on {self.default!r}, which is not one of its targets",
                f"Add it to targets, or take one of {_listed(self.targets)}.",
            )  # fmt: skip

    def _check_cache(self, *, external: bool) -> None:
        why = None
        if self.kind in {"interrupt", "graph"}:
            why = "asks a person" if self.kind == "interrupt" else "is a run of its own"
        elif external or not (self.outputs or self.targets):
            why = "is external: what it does must happen" if external else "gives nothing that could be kept"
        if why is not None:
            raise GraphError(f"{self.kind} {self.name!r}", f"cannot have a cache: it {why}", "Leave cache= out.")

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """What the function gives."""
        return self.function(*args, **kwargs)

    def renamed(self, name: str | None = None, *, inputs: Mapping[str, str] | None = None, output: Any = None) -> Node:
        """The same node under another name, with other values: for using one function twice in a graph."""
        step = self.step
        return Node(
            self.function, kind=self.kind, name=name or self.name, inputs={**self.inputs, **(inputs or {})},
            outputs=self.outputs if output is None else names(output), targets=self.targets, many=self.many,
            default=self.default, retry=step.retry, timeout=step.timeout, external=step.external,
            unknown=step.unknown, cache=self.cache or False,
        )  # fmt: skip

    def by_name(self, value: Any) -> dict[str, Any]:
        """What the function returned, by the names of the outputs. Raises GraphError if it does not fit."""
        outputs = self.outputs
        if len(outputs) == 1:
            return {outputs[0]: value}
        if not outputs:
            return {}
        if isinstance(value, Mapping) and set(value) == set(outputs):
            return {name: value[name] for name in outputs}
        if isinstance(value, tuple) and len(value) == len(outputs):
            return dict(zip(outputs, value, strict=True))
        raise GraphError(
            f"node {self.name!r}", f"returned {_described(value)} for its outputs {_listed(outputs)}",
            "Return a tuple with one value for each, in this order, or a dict with these keys.",
        )  # fmt: skip

    def choose(self, value: Any) -> Decision:
        """What a route or gate returned, as a decision. Raises GraphError if it names no target."""
        reason = ""
        if isinstance(value, Decision):
            value, reason = value.target, value.reason
        if self.kind == "gate":
            chosen = self.targets[0 if value else 1]
            return Decision(chosen, reason or ("true" if value else "false"))
        if value is None:
            return Decision(self.default, reason or ("default" if self.default is not None else "none"))
        wanted = list(value) if self.many and isinstance(value, list | tuple | set | frozenset) else [value]
        for target in wanted:
            if not isinstance(target, str) or target not in self.targets:
                several = isinstance(target, list | tuple | set | frozenset)
                raise GraphError(
                    f"route {self.name!r}", f"chose {target!r:.60}, which is not one of its targets",
                    "Declare it with many=True to choose several." if several
                    else f"Return one of {_listed(self.targets)}, or add it to targets.",
                )  # fmt: skip
        return Decision(sorted(wanted) if self.many else wanted[0], reason or "returned")

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name!r}>"


class Interrupt(Node):
    """A node that asks a person. Its function gives the question; the answer is what the node gives."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        schema: Any = None,
        options: list[Any] | None = None,
        deadline: Any = None,
        **detail: Any,
    ) -> None:
        self.schema, self.options, self.deadline = schema, options, deadline
        super().__init__(function, kind="interrupt", **detail)
        if len(self.outputs) != 1:
            raise GraphError(f"interrupt {self.name!r}", "has no output", "Say where its answer goes with output=.")

    def ask(self, prompt: Any) -> Any:
        """Ask, and give the answer; to be awaited on an event loop."""
        return pause(prompt, schema=self.schema, options=self.options, deadline=self.deadline)

    def renamed(
        self, name: str | None = None, *, inputs: Mapping[str, str] | None = None, output: Any = None
    ) -> Interrupt:
        """The same question under another name, about other values."""
        return Interrupt(
            self.function, name=name or self.name, inputs={**self.inputs, **(inputs or {})},
            outputs=self.outputs if output is None else names(output), schema=self.schema, options=self.options,
            deadline=self.deadline,
        )  # fmt: skip


def names(output: str | Sequence[str] | None) -> tuple[str, ...]:
    """The names of outputs, given as one or as several."""
    if output is None:
        return ()
    return (output,) if isinstance(output, str) else tuple(output)


def _collecting(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function that gives what a generator yields, as a list, and tells of each item at once."""
    if inspect.isasyncgenfunction(body_of(function)):

        async def collect_awaited(*args: Any, **kwargs: Any) -> list[Any]:
            return [_told(name, chunk) async for chunk in function(*args, **kwargs)]

        return update_wrapper(collect_awaited, function)

    def collect(*args: Any, **kwargs: Any) -> list[Any]:
        return [_told(name, chunk) for chunk in function(*args, **kwargs)]

    return update_wrapper(collect, function)


def _told(name: str, chunk: Any) -> Any:
    lane = here()
    if lane is not None:
        lane.run.tell_chunk(name, chunk)
    return chunk


def _annotated(function: Any) -> Any:
    body = body_of(function)
    return getattr(body, "__func__", body)


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and not name.startswith("_")


def _described(value: Any) -> str:
    size = f" of {len(value)}" if isinstance(value, tuple | list | Mapping) else ""
    return f"a {type(value).__name__}{size}"


def _listed(found: Any) -> str:
    return ", ".join("END" if each == END else repr(each) for each in found) or "none"


# Decorators.


@overload
def node(function: Callable[..., Any], /) -> Node: ...
@overload
def node(
    *,
    output: str | Sequence[str] | None = ...,
    name: str | None = ...,
    inputs: Mapping[str, str] | None = ...,
    retry: Retry | None = ...,
    timeout: float | None = ...,
    external: bool = ...,
    unknown: Unknown = ...,
    cache: Cache | bool = ...,
) -> Callable[[Callable[..., Any]], Node]: ...
def node(
    function: Callable[..., Any] | None = None,
    /,
    *,
    output: str | Sequence[str] | None = None,
    name: str | None = None,
    inputs: Mapping[str, str] | None = None,
    retry: Retry | None = None,
    timeout: float | None = None,
    external: bool = False,
    unknown: Unknown = "ask",
    cache: Cache | bool = False,
) -> Node | Callable[[Callable[..., Any]], Node]:
    """Make a function a node. It takes the values that its parameters are named after, and gives `output`.

    Several outputs are a tuple of names. `inputs` lets a parameter take a value of another name. A generator gives
    the list of what it yields. `retry`, `timeout`, `external` and `unknown` are those of a step; `cache` looks for
    what the same code gave for the same inputs, in this run or another.
    """
    make = partial(
        Node, name=name, inputs=inputs, outputs=names(output), retry=retry, timeout=timeout, external=external,
        unknown=unknown, cache=cache,
    )  # fmt: skip
    return make if function is None else make(function)


def route(
    *,
    targets: Sequence[str],
    default: str | None = None,
    many: bool = False,
    name: str | None = None,
    inputs: Mapping[str, str] | None = None,
    cache: Cache | bool = False,
) -> Callable[[Callable[..., Any]], Node]:
    """Make a function a route: it returns the name of the node to run next, or END.

    With `many` it may return a list of names. When it returns None, `default` is taken, or nothing. Return a Decision
    to say why.
    """
    return partial(
        Node, kind="route", name=name, inputs=inputs, targets=tuple(targets), many=many, default=default, cache=cache
    )


def gate(
    *,
    when_true: str,
    when_false: str,
    name: str | None = None,
    inputs: Mapping[str, str] | None = None,
    cache: Cache | bool = False,
) -> Callable[[Callable[..., Any]], Node]:
    """Make a function a gate: what it returns, true or false, chooses between two nodes. END is one, too."""
    return partial(Node, kind="gate", name=name, inputs=inputs, targets=(when_true, when_false), cache=cache)


def interrupt(
    *,
    output: str,
    schema: Any = None,
    options: list[Any] | None = None,
    deadline: Any = None,
    name: str | None = None,
    inputs: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., Any]], Interrupt]:
    """Make a function a question to a person: what it returns is asked, and the answer becomes `output`.

    The answer is checked against `schema` and `options`, as with `everstep.pause`. No process waits for it.
    """
    return partial(
        Interrupt, outputs=(output,), schema=schema, options=options, deadline=deadline, name=name, inputs=inputs
    )

"""The workflow: a function that can be run durably, on its own or as a child of another run."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial, update_wrapper
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from everstep.codec.homes import home_of
from everstep.errors import MapDiffersError
from everstep.model import Run
from everstep.run.arguments import Parameters
from everstep.run.lanes import here
from everstep.run.steps import body_of, short_name
from everstep.run.surroundings import surroundings
from everstep.trail.late import Late
from everstep.trail.trail import Trail
from everstep.trail.versions import CODE, MAP, PYTHON

if TYPE_CHECKING:
    from everstep.trail.replayed import ReplayReport

P = ParamSpec("P")
R = TypeVar("R")
_REPLAYING = Late("everstep.run.replaying")


class Workflow(Generic[P, R]):
    """A function whose steps are kept. Called in a run it is a child run; outside of one it is the plain function."""

    is_map = False  # a run of it is one over many items
    gives_state = False  # its result is the state, and need not be stored beside it
    keeps_cancelled = True  # a step of it that is cancelled was cancelled by its code: whoever stops a run is heard of

    def __init__(self, function: Callable[P, R], name: str | None) -> None:
        if not callable(function) or isinstance(function, staticmethod):
            raise TypeError(
                f"{function!r:.60} is no function, and only a function can be a workflow; @staticmethod goes above "
                "@workflow"
            )
        body = body_of(function)
        if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
            raise TypeError(f"{function!r:.60} is a generator: a workflow returns, and a step may be a stream")
        update_wrapper(self, function)
        self.name = name or short_name(function)
        self.is_async = inspect.iscoroutinefunction(body)
        self.parameters = Parameters(function, (), f"workflow {self.name!r}")
        if "." in short_name(function) and next(iter(self.parameters.signature.parameters), "") in {"self", "cls"}:
            raise TypeError(
                f"{short_name(function)!r} is a method, and a workflow must be a function: whoever resumes a run has "
                "its inputs and not the object. Take what it needs as arguments; its steps may be methods."
            )
        self._init_workflow(function)

    def _init_workflow(self, function: Callable[P, R]) -> None:
        self.function = function
        self._child: Any = None
        self._code_digest: str | None = None

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function gives; in a run, or gave."""
        lane = here()
        if lane is None:
            return self.function(*args, **kwargs)
        return self.as_child(lane.run.as_child)(*args, **kwargs)  # type: ignore[no-any-return] # what the function gives

    def as_child(self, make: Callable[[Any], Any] | None) -> Any:
        """The step that it is in a run."""
        if self._child is None and make is not None:
            self._child = make(self)
        return self._child

    def replay(
        self, trail: Trail, run: Run, mode: str, inputs: Mapping[str, Any] | None, rerun: Collection[str]
    ) -> ReplayReport:
        """Go through a recorded run with this code, as `trail.replay` asks for it."""
        report: ReplayReport = _REPLAYING.replay(trail, run, self, mode, inputs, rerun)
        return report

    def functions(self) -> list[Callable[..., Any]]:
        """The functions whose classes can be found when values are read."""
        return [self.function]

    def check_kind(self, run_id: str, about: Mapping[str, Any]) -> None:
        """Raise MapDiffersError if a run is one over many items and this is not, or the other way round."""
        if bool(about.get(MAP)) is not self.is_map:
            raise MapDiffersError(run_id, is_map=not self.is_map)

    def check_recorded(self, run_id: str, inputs: Mapping[str, Any]) -> None:
        """Raise ParametersDifferError if a run was given other inputs than this takes. A graph's are no parameters."""
        if not (self.gives_state or self.is_map):
            self.parameters.check_recorded(run_id, inputs)

    def changed_since(self, about: Mapping[str, Any]) -> frozenset[str]:
        """The names of steps that were others when a run began, as far as that can be told."""
        del about
        return frozenset()

    def check_structure(self, run_id: str, about: Mapping[str, Any]) -> None:
        """Raise if a run was begun with something that this cannot go on with: the code of a function may change."""

    @property
    def is_read(self) -> bool:
        """Whether its fingerprint is known without a look at files."""
        return self._code_digest is not None

    def fingerprint(self) -> dict[str, Any]:
        """What its results may depend on beside its inputs: its code, its program, and the versions of what runs it."""
        if self._code_digest is None:  # asked once: the file may change while this code stays what it is
            self._code_digest = self._code()
        python = ".".join(map(str, sys.version_info[:3]))
        return {CODE: self._code_digest, PYTHON: python, **surroundings(self.functions())}

    def _code(self) -> str:
        return code_of(self.function)

    def __everstep_digest__(self) -> str:
        """What stands for it as an argument, like for any function: its name."""
        return f"{home_of(self.function)}:{self.name}"

    def __repr__(self) -> str:
        return f"<workflow {self.name!r}>"


def code_of(function: Callable[..., Any]) -> str:
    """A digest of the text of a function."""
    try:
        text = inspect.getsource(function).encode()
    except (OSError, TypeError):  # typed in, or generated
        text = function.__code__.co_code if hasattr(function, "__code__") else b""
    return blake2b(text, digest_size=8).hexdigest()


@overload
def workflow(function: Callable[P, R], /) -> Workflow[P, R]: ...
@overload
def workflow(*, name: str | None = None) -> Callable[[Callable[P, R]], Workflow[P, R]]: ...
def workflow(
    function: Callable[P, R] | None = None, /, *, name: str | None = None
) -> Workflow[P, R] | Callable[[Callable[P, R]], Workflow[P, R]]:
    """Make a function a workflow. Runs are known by its name: keep it, with `name`, when the function is renamed."""
    make = partial(Workflow, name=name)
    return make if function is None else make(function)

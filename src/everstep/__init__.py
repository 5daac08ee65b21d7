"""Everstep keeps every step an AI agent takes, once and durably.

trail = everstep.open("trail.db")
with trail.record("r-1", workflow="research", inputs={"topic": "fusion"}) as run:
    run.step("plan", output="three parts", output_to="plan")
trail.state("r-1")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everstep.codec.record import StepRecord as StepRecord
    from everstep.codec.registry import register as register
    from everstep.errors import DamageWarning as DamageWarning
    from everstep.errors import EverstepError as EverstepError
    from everstep.model import Checkpoint as Checkpoint
    from everstep.model import CheckpointKind as CheckpointKind
    from everstep.model import Kind as Kind
    from everstep.model import Redacted as Redacted
    from everstep.model import Run as Run
    from everstep.model import Secret as Secret
    from everstep.model import Status as Status
    from everstep.policy.rules import Rule as Rule
    from everstep.trail.recorder import AsyncRecorder as AsyncRecorder
    from everstep.trail.recorder import Recorder as Recorder
    from everstep.trail.trail import Trail as Trail
    from everstep.trail.trail import open as open  # noqa: A004 - everstep.open, as in io.open
    from everstep.trail.twin import AsyncTrail as AsyncTrail

_HOMES = {
    "AsyncRecorder": "everstep.trail.recorder",
    "AsyncTrail": "everstep.trail.twin",
    "Checkpoint": "everstep.model",
    "CheckpointKind": "everstep.model",
    "DamageWarning": "everstep.errors",
    "EverstepError": "everstep.errors",
    "Kind": "everstep.model",
    "Recorder": "everstep.trail.recorder",
    "Redacted": "everstep.model",
    "Rule": "everstep.policy.rules",
    "Run": "everstep.model",
    "Secret": "everstep.model",
    "Status": "everstep.model",
    "StepRecord": "everstep.codec.record",
    "Trail": "everstep.trail.trail",
    "open": "everstep.trail.trail",
    "register": "everstep.codec.registry",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605 - one list of names, not two


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used: `import everstep` alone costs next to nothing."""
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'everstep' has no attribute {name!r}") from None
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

"""Everstep keeps every step an AI agent takes, once and durably.

@everstep.step
def ask(question: str) -> str: ...

@everstep.workflow
def research(topic: str) -> str:
    return ask(f"Tell me about {topic}")

everstep.Runner(everstep.open("trail.db")).run(research, "fusion", id="r-1")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everstep.capturing.session import capture as capture
    from everstep.codec.record import StepRecord as StepRecord
    from everstep.codec.registry import register as register
    from everstep.errors import DamageWarning as DamageWarning
    from everstep.errors import EverstepError as EverstepError
    from everstep.graph.cache import Cache as Cache
    from everstep.graph.graph import Graph as Graph
    from everstep.graph.nodes import Decision as Decision
    from everstep.graph.nodes import gate as gate
    from everstep.graph.nodes import interrupt as interrupt
    from everstep.graph.nodes import node as node
    from everstep.graph.nodes import route as route
    from everstep.model import END as END
    from everstep.model import Checkpoint as Checkpoint
    from everstep.model import CheckpointKind as CheckpointKind
    from everstep.model import Kind as Kind
    from everstep.model import Redacted as Redacted
    from everstep.model import Run as Run
    from everstep.model import Secret as Secret
    from everstep.model import Status as Status
    from everstep.models.leaf import AsyncModelClient as AsyncModelClient
    from everstep.models.openai import OpenAIClient as OpenAIClient
    from everstep.models.reply import ModelClient as ModelClient
    from everstep.models.reply import Reply as Reply
    from everstep.models.scripted import ScriptedClient as ScriptedClient
    from everstep.policy.rules import Rule as Rule
    from everstep.run.context import current as current
    from everstep.run.log import NodeRecord as NodeRecord
    from everstep.run.log import NodeStats as NodeStats
    from everstep.run.log import RunLog as RunLog
    from everstep.run.mapped import MapResult as MapResult
    from everstep.run.result import PauseInfo as PauseInfo
    from everstep.run.result import RunResult as RunResult
    from everstep.run.retry import Retry as Retry
    from everstep.run.runner import AsyncRunner as AsyncRunner
    from everstep.run.runner import Runner as Runner
    from everstep.run.spawning import adopt_loop as adopt_loop
    from everstep.run.spawning import submit as submit
    from everstep.run.steps import step as step
    from everstep.run.waiting import pause as pause
    from everstep.run.waiting import sleep as sleep
    from everstep.run.waiting import unordered as unordered
    from everstep.run.workflows import workflow as workflow
    from everstep.trail.checkpointer import CheckpointPolicy as CheckpointPolicy
    from everstep.trail.checkpointer import SqliteCheckpointer as SqliteCheckpointer
    from everstep.trail.events import Event as Event
    from everstep.trail.recorder import AsyncRecorder as AsyncRecorder
    from everstep.trail.recorder import Recorder as Recorder
    from everstep.trail.replayed import ReplayReport as ReplayReport
    from everstep.trail.trail import Trail as Trail
    from everstep.trail.trail import open as open  # noqa: A004 - everstep.open, as in io.open
    from everstep.trail.twin import AsyncTrail as AsyncTrail

_HOMES = {
    "AsyncModelClient": "everstep.models.leaf",
    "AsyncRecorder": "everstep.trail.recorder",
    "AsyncRunner": "everstep.run.runner",
    "AsyncTrail": "everstep.trail.twin",
    "Cache": "everstep.graph.cache",
    "Checkpoint": "everstep.model",
    "CheckpointKind": "everstep.model",
    "CheckpointPolicy": "everstep.trail.checkpointer",
    "DamageWarning": "everstep.errors",
    "Decision": "everstep.graph.nodes",
    "END": "everstep.model",
    "Event": "everstep.trail.events",
    "EverstepError": "everstep.errors",
    "Graph": "everstep.graph.graph",
    "Kind": "everstep.model",
    "MapResult": "everstep.run.mapped",
    "ModelClient": "everstep.models.reply",
    "NodeRecord": "everstep.run.log",
    "NodeStats": "everstep.run.log",
    "OpenAIClient": "everstep.models.openai",
    "PauseInfo": "everstep.run.result",
    "Recorder": "everstep.trail.recorder",
    "Redacted": "everstep.model",
    "ReplayReport": "everstep.trail.replayed",
    "Reply": "everstep.models.reply",
    "Retry": "everstep.run.retry",
    "Rule": "everstep.policy.rules",
    "Run": "everstep.model",
    "RunLog": "everstep.run.log",
    "RunResult": "everstep.run.result",
    "Runner": "everstep.run.runner",
    "ScriptedClient": "everstep.models.scripted",
    "Secret": "everstep.model",
    "SqliteCheckpointer": "everstep.trail.checkpointer",
    "Status": "everstep.model",
    "StepRecord": "everstep.codec.record",
    "Trail": "everstep.trail.trail",
    "adopt_loop": "everstep.run.spawning",
    "capture": "everstep.capturing.session",
    "current": "everstep.run.context",
    "gate": "everstep.graph.nodes",
    "interrupt": "everstep.graph.nodes",
    "node": "everstep.graph.nodes",
    "open": "everstep.trail.trail",
    "pause": "everstep.run.waiting",
    "register": "everstep.codec.registry",
    "route": "everstep.graph.nodes",
    "sleep": "everstep.run.waiting",
    "step": "everstep.run.steps",
    "submit": "everstep.run.spawning",
    "unordered": "everstep.run.waiting",
    "workflow": "everstep.run.workflows",
}
# Not `open`: a star would put it in the place of Python's own.
__all__ = sorted(_HOMES.keys() - {"open"})  # noqa: PLE0605 - one list of names, not two


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
    return sorted(_HOMES)

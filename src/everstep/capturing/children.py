"""Python processes that a program starts, captured too: runs of their own, below the run of the program.

Whoever starts a process puts two things into its environment: a variable that says where its run is, and a folder in
front of PYTHONPATH whose `sitecustomize` looks for it. Any Python below finds both, however deep in scripts and
launchers it is started, and becomes what `everstep record` would have made of it.

The id of its run follows from the place of the call that started the process. So a process that is started again,
because nobody knows what became of it, goes on with the runs of the first one: what was answered is not asked again.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from everstep import actual
from everstep.capturing.becoming import FOLDER, PATH, VARIABLE, is_certain
from everstep.errors import RunNotFoundError
from everstep.model import STATUSES, Status
from everstep.run.asked import Ask
from everstep.run.lanes import CURRENT, OUTSIDE, Scope
from everstep.store.base import ALL, RunQuery
from everstep.trail.naming import SQLITE
from everstep.trail.owner import is_gone

_TEMPORARY = "TMPDIR"


class Children:
    """What the processes of a program are told."""

    def __init__(self, run: Any, trail: str, how: Mapping[str, Any]) -> None:
        self._run, self._store = run, run.trail.store
        # Not by tempfile, which draws by chance: the program would draw something else than in a replay.
        folder = Path(os.environ.get(_TEMPORARY) or Path(os.sep, "tmp"), f"everstep-{actual.token(8)}")
        self._said = {"trail": _anywhere(trail), "parent": run.run_id, "claims": str(folder), "how": dict(how)}

    def told(self, scope: Scope, given: Mapping[Any, Any] | None) -> dict[str, str]:
        """The environment for the process that a step starts, from the one that the program gives it, or has."""
        environment = os.environ if given is None else given
        told = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
        said = {"id": self._run.child_id(scope), "starter": os.getpid(), "start": actual.token(4)}
        told[VARIABLE] = json.dumps({**self._said, **said})
        told[PATH] = os.pathsep.join(filter(None, (FOLDER, told.get(PATH))))
        return told

    def goes_on(self, ask: Ask, request: Mapping[str, Any]) -> bool:
        """Whether the process that a step began is a run that can go on where it was, or that had not begun.

        Then it is safe to start it again, though not while the first one is still at work.
        """
        scope = Scope(ask.lane, ask.name, ask.index, 1)
        scope.ask = ask
        try:
            run = self._store.run(self._run.child_id(scope))
        except RunNotFoundError:
            return is_certain(request)
        return run.owner is None or is_gone(run.owner) or STATUSES[run.status] is not Status.ACTIVE

    def waiting(self, scope: Scope) -> list[tuple[str, int]]:
        """The runs below a step that wait for an answer, with the place where they do."""
        run_id = self._run.child_id(scope)
        paused = self._store.runs(RunQuery(status=STATUSES.index(Status.PAUSED), parent=self._run.run_id, limit=ALL))
        return [(run.id, run.seq) for run in paused if f"{run.id}/".startswith(f"{run_id}/")]

    def close(self) -> None:
        """Nothing more is started."""
        shutil.rmtree(self._said["claims"], ignore_errors=True)


def environment(given: Mapping[Any, Any] | None) -> Mapping[Any, Any] | None:
    """The environment of a process, for whoever is about to start it, inside of the call that it is."""
    lane = CURRENT.get()
    children = None if lane is None or lane is OUTSIDE else lane.run.captured.children
    return given if lane is None or children is None else children.told(lane.scope, given)


def exported(command: Any) -> Any:
    """The same for a command of a shell that takes no environment: it sets its own."""
    told = environment(None)
    if told is None:
        return command
    words = [f"{name}={shlex.quote(told[name])}" for name in (VARIABLE, PATH)]
    return f"export {' '.join(words)}; {os.fsdecode(command)}"


def _anywhere(trail: str) -> str:
    """The name of a trail that is good in every folder."""
    if trail.startswith(SQLITE):
        trail = unquote(trail.removeprefix(SQLITE))
    return trail if "://" in trail else str(Path(trail).expanduser().absolute())

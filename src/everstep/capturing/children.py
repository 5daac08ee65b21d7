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
import sys
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from everstep import actual
from everstep.capturing.command import ENTRY, HASHES, Launch, split
from everstep.capturing.command import VARIABLE as CAPTURE
from everstep.errors import CaptureError
from everstep.run.lanes import CURRENT, OUTSIDE, Scope

VARIABLE = "EVERSTEP_CHILD"
FOLDER = str(Path(__file__).parent / "child")
_PATH = "PYTHONPATH"
_SQLITE = "sqlite:///"


class Children:
    """What the processes of a program are told."""

    def __init__(self, run: Any, trail: str, how: Mapping[str, Any]) -> None:
        self._run = run
        # Not by tempfile, which draws by chance: the program would draw something else than in a replay.
        folder = Path(os.environ.get("TMPDIR") or Path(os.sep, "tmp"), f"everstep-{actual.token(8)}")
        self._said = {"trail": _anywhere(trail), "parent": run.run_id, "claims": str(folder), "how": dict(how)}

    def told(self, scope: Scope, given: Mapping[Any, Any] | None) -> dict[str, str]:
        """The environment for the process that a step starts, from the one that the program gives it, or has."""
        environment = os.environ if given is None else given
        told = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
        said = {"id": self._run.child_id(scope), "starter": os.getpid(), "start": actual.token(4)}
        told[VARIABLE] = json.dumps({**self._said, **said})
        told[_PATH] = os.pathsep.join(filter(None, (FOLDER, told.get(_PATH))))
        return told

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
    words = [f"{name}={shlex.quote(told[name])}" for name in (VARIABLE, _PATH)]
    return f"export {' '.join(words)}; {os.fsdecode(command)}"


def _anywhere(trail: str) -> str:
    """The name of a trail that is good in every folder."""
    if trail.startswith(_SQLITE):
        trail = unquote(trail.removeprefix(_SQLITE))
    return trail if "://" in trail else str(Path(trail).expanduser().absolute())


# In the process.


def become() -> None:
    """Become the program that this Python was to run, captured. Returns, with a line, if it cannot be."""
    said = json.loads(os.environ[VARIABLE])
    words = list(sys.orig_argv[1:])
    try:
        options, target = split(sys.executable, words)
        _check_file(target)
    except CaptureError as error:
        sys.stderr.write(f"everstep: a Python process of run {said['parent']!r} is not recorded: {error}\n")
        return
    told = {**said["how"], "trail": said["trail"], "parent": said["parent"], "id": _id(said, target)}
    told |= {"children": True, "words": [sys.orig_argv[0], *words], "quiet": True}
    environment = _without(os.environ)
    environment |= {CAPTURE: json.dumps(told), "PYTHONHASHSEED": HASHES}
    Launch(sys.executable, options, target).start(ENTRY, environment)


def _check_file(target: list[str]) -> None:
    if target[0] not in {"-m", "-c"} and not Path(target[0]).is_file():
        raise CaptureError(f"{target[0]} is no file.")


def _without(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment as the program would have it."""
    left = {name: value for name, value in environment.items() if name not in {VARIABLE, _PATH}}
    path = [part for part in environment.get(_PATH, "").split(os.pathsep) if part and part != FOLDER]
    return {**left, _PATH: os.pathsep.join(path)} if path else left


def _id(said: Mapping[str, Any], target: list[str]) -> str:
    """The id of the run: that of the step, for the process itself; for those below, by what they run.

    Which of several that run the same one is, is decided by the order in which they begin.
    """
    if os.getppid() == said["starter"]:
        return str(said["id"])
    name = Path(target[1] if target[0] == "-m" else target[0]).name.replace("%", "%25")
    digest = blake2b(json.dumps(target).encode(), digest_size=4).hexdigest()
    count = 0
    while not _claimed(Path(said["claims"], f"{said['start']}-{digest}-{count}")):
        count += 1
    return f"{said['id']}/{name}:{digest}#{count}"


def _claimed(place: Path) -> bool:
    try:
        place.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        return False
    return True

"""In a Python process that a captured program started: it becomes that program's child run.

See `everstep.capturing.children`. Loaded into such processes before they are captured, so it loads little itself.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from everstep.capturing.command import ENTRY, HASHES, PYTHON, Launch, split
from everstep.capturing.command import VARIABLE as CAPTURE
from everstep.errors import CaptureError

VARIABLE = "EVERSTEP_CHILD"
PATH = "PYTHONPATH"
FOLDER = str(Path(__file__).parent / "child")


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


def is_certain(request: Mapping[str, Any]) -> bool:
    """Whether a process that was asked for so is captured for sure, and so does nothing before its run is there."""
    words = request["args"]
    if {"shell", "executable", "cwd"} & request.keys() or words[0] != PYTHON:  # of another Python nobody knows
        return False
    try:
        options, target = split(words[0], words[1:])
        _check_file(target)
    except CaptureError:
        return False
    return not any("S" in option for option in options)  # without `site` there is nothing of ours


def _check_file(target: list[str]) -> None:
    if target[0] not in {"-m", "-c"} and not any(map(Path.is_file, (Path(target[0]), Path(target[0], "__main__.py")))):
        raise CaptureError(f"{target[0]} is no file, and no folder with a __main__.py.")


def _without(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment as the program would have it."""
    left = {name: value for name, value in environment.items() if name not in {VARIABLE, PATH}}
    path = [part for part in environment.get(PATH, "").split(os.pathsep) if part and part != FOLDER]
    return {**left, PATH: os.pathsep.join(path)} if path else left


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

"""How a command ends: the exit codes, and which error gives which."""

from __future__ import annotations

import re
import shlex

from everstep import errors

OK, ERROR, USAGE, NOT_FOUND, DIFFERENT, CONFLICT, DAMAGED, WAITING, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 7, 130

# The first that fits counts.
_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (errors.RunNotFoundError, NOT_FOUND),
    (errors.StepNotFoundError, NOT_FOUND),
    (errors.PrunedError, NOT_FOUND),
    (errors.ErasedError, NOT_FOUND),
    (errors.DivergenceError, DIFFERENT),
    (errors.WorkflowDiffersError, DIFFERENT),
    (errors.ParametersDifferError, DIFFERENT),
    (errors.OwnedError, CONFLICT),
    (errors.StaleWriterError, CONFLICT),
    (errors.ConflictError, CONFLICT),
    (errors.RunExistsError, CONFLICT),
    (errors.RunFinishedError, CONFLICT),
    (errors.NotWaitingError, CONFLICT),
    (errors.LockedError, CONFLICT),
    (errors.DamagedError, DAMAGED),
    (errors.UnknownOutcomeError, WAITING),
)
# What the library calls by its Python names, in the words of this command line.
_WORDS = {
    "trail.answer(run_id, value), or trail.answer(run_id, retry=True). "
    '@step(external=True, unknown="retry") repeats it with the same idempotency key.': (
        "`everstep answer RUN VALUE`, or `everstep answer RUN --retry`."
    ),
    "; or say clock=False.": "",
    "trail.runs() lists what there is": "`everstep runs` lists what there is",
    "Run `trail.verify()`": "Run `everstep verify`",
    "Record to it again, or fork it, to go on": "`everstep resume RUN` goes on with it",
    "Record to it to continue it, or choose another id": (
        "`everstep show RUN` tells how it stands and what can be done; or choose another id"
    ),
    "Leave the inputs out to continue it, or fork it to try the new ones": (
        "Give the program the words it was recorded with (see `everstep show RUN`), or record it with others as a new "
        "run"
    ),
}
_OF_RUN = re.compile(r"(`everstep \w+) RUN\b")


def code_of(error: BaseException) -> int:
    """The exit code of an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ERROR)


def words_of(error: BaseException) -> str:
    """What an error says, to somebody at a command line."""
    text = str(error) or type(error).__name__
    for python, here in _WORDS.items():
        text = text.replace(python, here)
    run_id = getattr(error, "run_id", None)
    return text if run_id is None else _OF_RUN.sub(lambda found: f"{found[1]} {shlex.quote(run_id)}", text)

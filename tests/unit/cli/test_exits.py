from __future__ import annotations

import pytest

from everstep import errors
from everstep.cli import exits


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.RunNotFoundError("r"), 3),
        (errors.StepNotFoundError("r", 9, 3), 3),
        (errors.PrunedError("r", 1, 5), 3),
        (errors.ErasedError("r", 1), 3),
        (errors.DivergenceError("removed"), 4),
        (errors.WorkflowDiffersError("r", "a", "b"), 4),
        (errors.OwnedError("r", "host:1:x", 3.0), 5),
        (errors.StaleWriterError("r", 1, 2), 5),
        (errors.ConflictError("r", 1, 2), 5),
        (errors.RunFinishedError("r", "completed"), 5),
        (errors.NotWaitingError("r", "it is completed"), 5),
        (errors.LockedError("trail.db", 10), 5),
        (errors.DamagedError("a row"), 6),
        (errors.NewerFormatError(9), 6),
        (errors.UnknownOutcomeError("r", "pay", 3), 7),
        (errors.NotATrailError("x", "a folder"), 1),
        (errors.UnreadableError("x", "no", "Do."), 1),
        (ValueError("x"), 1),
    ],
)
def test_every_kind_of_trouble_has_its_code(error: Exception, code: int) -> None:
    assert exits.code_of(error) == code


def test_errors_speak_of_commands_and_not_of_python() -> None:
    assert "`everstep runs` lists" in exits.words_of(errors.RunNotFoundError("r"))
    assert "`everstep verify`" in exits.words_of(errors.DamagedError("a row"))
    assert "`everstep show 'a run'` tells" in exits.words_of(errors.RunExistsError("a run"))
    assert "recorded with (see `everstep show r`)" in exits.words_of(errors.InputsDifferError("r"))
    assert exits.words_of(ValueError()) == "ValueError"

"""The contract is worth what it catches: every rule has a store that breaks it, and every broken store is caught."""

from __future__ import annotations

import warnings

import pytest

from everstep.testing import RetentionContract
from tests.contract.mutants import appending, erasing, forking, letting_go, owning, posting, reading
from tests.contract.mutants.registry import CAUGHT, Mutant
from tests.contract.test_memory import TestMemoryStore as Contract

__all__ = ["appending", "erasing", "forking", "letting_go", "owning", "posting", "reading"]  # imported to be registered


def fails(mutant: Mutant, test: str) -> bool:
    """Whether a store fails a test of the contract."""
    store = mutant()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a broken store may leave futures and tasks behind
            getattr(Contract(), f"test_{test}")(store)
    except RecursionError:
        raise  # the mutant's own fault: it proves nothing
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - a broken store may raise anything
        return True
    return False


@pytest.mark.parametrize("mutant", CAUGHT, ids=lambda mutant: mutant.__name__)
def test_the_contract_catches(mutant: Mutant) -> None:
    assert [test for test in CAUGHT[mutant] if not fails(mutant, test)] == []


def test_every_rule_of_the_contract_has_a_store_that_breaks_it() -> None:
    rules = {name.removeprefix("test_") for name in dir(RetentionContract) if name.startswith("test_")}
    assert rules - {test for tests in CAUGHT.values() for test in tests} == set()

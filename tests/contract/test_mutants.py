"""The contract is worth what it catches: every rule has a store that breaks it, and every broken store is caught."""

from __future__ import annotations

import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from everstep.testing import RetentionContract
from tests.contract.mutants import appending, erasing, forking, leasing, letting_go, owning, posting, reading
from tests.contract.mutants.leasing import AMONG_PROCESSES, ContractOnFile
from tests.contract.mutants.registry import CAUGHT, Mutant
from tests.contract.test_memory import TestMemoryStore as Contract

__all__ = [
    "appending",
    "erasing",
    "forking",
    "leasing",
    "letting_go",
    "owning",
    "posting",
    "reading",
]  # imported to be registered


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what a broken store never does nobody waits long."""
    monkeypatch.setattr("everstep.testing.posting._SOON", 1.0)


def fails(contract: Any, store: Any, test: str) -> bool:
    """Whether a store fails a test of the contract."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a broken store may leave futures and tasks behind
            getattr(contract, f"test_{test}")(store)
    except RecursionError:
        raise  # the mutant's own fault: it proves nothing
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - a broken store may raise anything
        return True
    return False


@pytest.mark.parametrize("mutant", CAUGHT, ids=lambda mutant: mutant.__name__)
def test_the_contract_catches(mutant: Mutant) -> None:
    assert [test for test in CAUGHT[mutant] if not fails(Contract(), mutant(), test)] == []


@pytest.mark.parametrize("mutant", AMONG_PROCESSES, ids=lambda mutant: mutant.__name__)
def test_the_contract_catches_with_real_processes(mutant: type[leasing.Mutant], tmp_path: Path) -> None:
    for number, test in enumerate(AMONG_PROCESSES[mutant]):
        with closing(mutant(str(tmp_path / f"{number}.db"))) as store:
            assert fails(ContractOnFile(mutant), store, test), test


def test_every_rule_of_the_contract_has_a_store_that_breaks_it() -> None:
    rules = {name.removeprefix("test_") for name in dir(RetentionContract) if name.startswith("test_")}
    assert rules - {test for tests in CAUGHT.values() for test in tests} == set()

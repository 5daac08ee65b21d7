"""Which versions ran a run: what is said of that when it begins, read and compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CODE, SOURCES, PYTHON, PACKAGES = "code", "sources", "python", "packages"  # in what is said of a run
MAP = "map"  # the same: it is one over many items
NODES = "nodes"  # the same, of a graph: a digest for each node, and for each value that is bound
CAPTURED = "captured"  # the same: it is one of a program (`everstep.capturing.command` writes it)
CLOCK = "clock"  # the same: it sees a clock of its own
_LONG = 200  # characters that no name with a version has
_FEW = 8  # versions that are told in a line


@dataclass(frozen=True, slots=True)
class Version:
    """A package, or Python, in two versions."""

    name: str
    old: str
    new: str

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold of it."""
        return {"name": self.name, "old": self.old, "new": self.new}

    def __str__(self) -> str:
        return f"{self.name} {self.old} -> {self.new}"


def changed_versions(was: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[Version, ...]:
    """Python, and the packages that are known on both sides, where their versions differ."""
    before, today = (dict(_by_name(about)) for about in (was, now))
    return tuple(
        Version(name, before[name], version) for name, version in today.items() if before.get(name, version) != version
    )


def listed(versions: Sequence[Version]) -> str:
    """Versions in a line; of many, some."""
    more = f", {len(versions) - _FEW} more" if len(versions) > _FEW else ""
    return ", ".join(map(str, versions[:_FEW])) + more


def differs(was: Mapping[str, Any], now: Mapping[str, Any], name: str) -> bool:
    """Whether something that is known on both sides differs."""
    before, today = was.get(name), now.get(name)
    return before is not None and today is not None and before != today


def is_same_program(was: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether all that is known of the code is as it was; false where its text is not known."""
    return now.get(SOURCES) is not None and all(was.get(name) == now[name] for name in now.keys() - {PYTHON, PACKAGES})


def _by_name(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Versions by name, Python's first. A record may come from anywhere: what is no version is passed over."""
    python, packages = about.get(PYTHON), about.get(PACKAGES)
    said = [] if python is None else [f"Python {python}"]
    for each in said + (packages if type(packages) is list else []):
        if type(each) is str and len(each) < _LONG:
            name, _, version = each.rpartition(" ")
            yield name, version

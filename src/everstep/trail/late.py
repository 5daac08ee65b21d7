"""Modules that are loaded when something of them is first used: a command that only reads does not pay for them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Late:
    """A module that is loaded late. asyncio alone takes a quarter of the time in which a command lists runs."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value

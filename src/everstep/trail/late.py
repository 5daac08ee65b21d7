"""Modules that are loaded when something of them is first used: a command that only reads does not pay for them."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any


class Late:
    """A module that is loaded late. asyncio alone takes a quarter of the time in which a command lists runs."""

    __slots__ = ("__dict__", "_module")

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        module = import_module(self._module)
        self.__dict__ = module.__dict__  # from now on it has what the module has, whatever others put there
        return getattr(module, name)


if TYPE_CHECKING:
    import asyncio as asyncio  # noqa: PLC0414 - others take it from here
else:
    asyncio = Late("asyncio")


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs here; None where none does, as where nobody has loaded asyncio."""
    loaded = sys.modules.get("asyncio")
    try:
        return None if loaded is None else loaded._get_running_loop()  # noqa: SLF001 - the public one raises where there is none, at ten times the price
    except AttributeError:  # half of it is loaded
        return None

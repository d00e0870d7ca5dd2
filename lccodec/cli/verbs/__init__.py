"""The verbs of the command ``lccodec``: thin functions, one module for each kind of verb.

A module is loaded for its verbs, or to show what they do: what all of them need takes longer than
most of them.

Exit codes: 0 fine, 1 problems found (in data, a chain or storage), 2 usage.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping
from typing import Final

import click

from ..program import program

__all__ = ["program"]

_MODULES: Final = {
    "conversion": ("convert",),
    "demonstration": ("demo",),
    "inspection": ("info", "show", "diff", "check"),
    "keeping": ("rollback", "rolled-back", "fork", "prune", "compact", "pin", "unpin"),
    "listing": ("ls",),
    "mending": ("protect", "repair", "mirror", "seal"),
    "reporting": ("report",),
    "saving": ("save", "plan", "restore", "average"),
    "sharing": ("bundle", "unbundle", "publish", "pull"),
}


class _Verbs(MutableMapping[str, click.Command]):
    """The verbs by name. Each is loaded when it is first asked for, and adds itself."""

    def __init__(self) -> None:
        self._modules = {name: module for module, names in _MODULES.items() for name in names}
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name in self._modules and name not in self._loaded:
            importlib.import_module(f".{self._modules[name]}", __name__)
        return self._loaded[name]

    def __setitem__(self, name: str, verb: click.Command) -> None:
        self._loaded[name] = verb

    def __delitem__(self, name: str) -> None:
        del self._modules[name], self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


program.commands = _Verbs()

"""Mirrors of a chain in directories, and whether they hold what the chain does."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lccodec import Chain
from lccodec.chain.life.rollback import rollback
from lccodec.chain.mend.mirror import Mirror, MirrorUpkeep
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.system import SYSTEM, System

from .damage import Files, files_in


def mirror_of(run: Path, mirror: Path, system: System = SYSTEM, **care: Any) -> Mirror:
    """The mirror of a chain."""
    return Mirror(DirectoryStore(run), DirectoryStore(mirror, system), MirrorUpkeep(rollback, **care))


def chain_files(directory: Path) -> Files:
    """The bytes of checkpoints and the exact file, without what is beside them."""
    return {name: data for name, data in files_in(directory).items() if "/" not in name and name[0] != "."}


def wait_for(chain: Chain) -> None:
    """Wait until the threads of the mirrors of a chain have nothing to do."""
    for copier in chain._mirrors._copiers:
        copier.rounds.wait()


class Watched(DirectoryStore):
    """A directory that notes which thread does what to it, and waits for leave where it is told."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.calls: list[tuple[str, int]] = []
        self.arrived: list[str] = []
        self.leave: Callable[[], object] = lambda: None

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not callable(found) or name.startswith("_"):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append((name, threading.get_ident()))
            if name == "receive":
                self.leave()
                self.arrived.append(arguments[0])
            return found(*arguments, **named)

        return call if isinstance(getattr(type(self), name, None), type(mirror_of)) else found

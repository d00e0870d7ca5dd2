"""The methods of `Chain` against damage: parity, repair and salvage.

What only some chains need is loaded by the method that calls it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ...container.disk.system import checked_path
from ...errors import ArgumentError
from ..bounds import Bounds
from ..mend.parity_folder import directory_of
from ..mend.protect import Protection, parse_redundancy, protect, unprotect
from ..mirror.behind import Mirrors
from ..read.history import History
from ..save.writer import Writer
from ..store.directory import DirectoryStore
from ..store.store import WritableStore

if TYPE_CHECKING:
    from ..mend.repair import Repair, Salvage


class Mending(History):
    """What a `Chain` can do against damage."""

    _mirrors: Mirrors
    _store: WritableStore
    _writer: Writer

    def protect(self, redundancy: str | int) -> Protection:
        """Make parity files beside the chain, from which `repair` mends damaged and lost files.

        `redundancy` is a share of the bytes, such as ``"5%"``, or a number of files of each 64 that
        may be lost whole. Files that are protected already are left alone. Errors are those of
        `lccodec.chain.mend.protect.protect`; an `ArgumentError` for another redundancy.
        """
        return protect(directory_of(self._store), parse_redundancy(redundancy))

    def unprotect(self) -> int:
        """Remove all parity files; return the bytes that this frees."""
        return unprotect(directory_of(self._store))

    def repair(
        self, *, dry_run: bool = False, max_bytes: int | None = None, max_deltas: int | None = None
    ) -> Repair:
        """Mend the files that are damaged or missing, bit for bit: from parity, then from mirrors.

        If the newest checkpoint is lost still, it is written anew, as a keyframe of the exact file.
        A lost exact file is written anew from a checkpoint that has lost nothing.
        What cannot be mended stays as it is, and is named. With `dry_run`, nothing is changed. From
        a checkpoint that asks for more than `max_bytes` or `max_deltas` nothing is written anew.
        Errors are those of `lccodec.chain.mend.repair.repair`.
        """
        from ..mend.repair import repair

        mirrors, bounds = self._mirrors.to_read(), Bounds(max_bytes, max_deltas)
        if dry_run:
            return repair(self._store, dry_run=True, mirrors=mirrors, bounds=bounds)
        with self._writer.at_rest() as claim:
            found = repair(self._store, claim=claim, mirrors=mirrors, bounds=bounds)
        self._mirrors.look_again()
        return found

    def salvage(self, directory: str | os.PathLike[str]) -> Salvage:
        """Save what can still be read, each step and each array, to a new chain in `directory`.

        The new chain loses nothing of it. The result lists what is gone.
        """
        from ..mend.repair import salvage

        target = DirectoryStore(checked_path(directory))
        if target.names():
            raise ArgumentError(f"salvage() needs a new or empty directory; {target.path} is not empty")
        made: Any = type(self)
        with self._writer.at_rest(), made(target.path, "lossless", newest="history") as other:
            return salvage(self._store, other.save)

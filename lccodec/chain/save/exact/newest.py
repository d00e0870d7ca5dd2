"""The one owner of a chain's exact file: when a save writes it, and when it goes.

It is committed first, then the history's checkpoint, whose manifest names the root of the exact
file. So a run that was killed goes on from the newest state that is on the disk, bit for bit, and a
save that cannot be kept in one of the two is kept in the other.

Source: SPEC 9 (LCC-EXA-04, LCC-EXA-05).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from ....constants import EXACT_NAME
from ....container.manifest import Manifest
from ....container.tree import Flat
from ....errors import ChainError, DataError, LccodecError, StorageError, reason_of, warn
from ...read.newest import ExactFile, open_exact
from ...store.store import OvertakenError, WritableStore
from ..plan import SavePlan
from ..reference import Tail
from .write import ExactRoot, write_exact


class Newest:
    """The exact file of a chain, as its saves write it.

    Parameters
    ----------
    store
        Where the chain is kept.
    asked
        Whether the user has asked for the file. Otherwise it is written where something may be
        lost, and where it is there already.
    every
        Every how many saves it is written.
    """

    def __init__(self, store: WritableStore, asked: bool, every: int) -> None:
        self._store = store
        self._asked = asked
        self._every = every
        self._checked = False  # whether the file to replace is an exact file

    def write(
        self,
        plan: SavePlan,
        flat: Flat,
        checkpoint: Manifest,
        parent: Tail | None,
        check: Callable[[Path], object],
    ) -> tuple[ExactRoot | None, str | None]:
        """Write the exact file of a checkpoint that is to come, if it is needed.

        `check` is called before it gets its name; an `OvertakenError` of it is raised.

        What a save of some arrays leaves out is in the exact file of its `parent`. Without that
        file nothing is written: the parent may have lost something. If it is not written at each
        save, it waits for a save of all arrays.

        Returns
        -------
        tuple
            What was committed, or ``None`` if nothing was; and what went wrong, or ``None``.
        """
        foreign = not self._checked and self._is_foreign()
        there = self._store.has(EXACT_NAME) and not foreign
        if not (self._asked or there or any(quantizer.lossy for quantizer in plan.quantizers)):
            return None, None
        if foreign:
            path = self._store.path / EXACT_NAME
            return None, f"{path} is not an exact file, and stays: no exact file is written"
        self._checked = True
        some = parent is not None and any(c.inherited for c in plan.candidates)
        if there and ((some and self._every > 1) or not self._is_due(checkpoint.step)):
            return None, None
        try:
            with ExitStack() as opened:
                before = None
                if parent is not None and some:
                    before = opened.enter_context(self._exact_of(parent))
                return write_exact(self._store, plan, flat, checkpoint, before, check), None
        except OvertakenError:
            raise
        except (LccodecError, OSError, MemoryError) as error:
            return None, f"writing its exact file failed: {reason_of(error)}"

    def _exact_of(self, parent: Tail) -> ExactFile:
        """Open the exact file of a checkpoint; raise ``ChainError`` if it is not there."""
        if parent.manifest.exact is not None and self._store.has(EXACT_NAME):
            file = open_exact(self._store, strict=True)
            if file.links[-1].reader.root == parent.manifest.exact:
                return file
            file.close()
        raise ChainError(f"step {parent.step}, which has the arrays that only= leaves out, has no exact file")

    def _is_due(self, step: int | None) -> bool:
        """Return whether a save writes the file, counted by the steps since the last.

        A step that only the file has is saved anew: its checkpoint must name what is there.
        """
        if self._every == 1:
            return True
        exact = self._store.exact_step()
        if exact is None or exact == step:
            return True
        return sum(later > exact for later in self._store.checkpoints()) >= self._every - 1

    def remove(self, step: int) -> None:
        """Remove an exact file of an earlier step than the one that was saved without it."""
        if not self._store.has(EXACT_NAME) or self._is_foreign():
            return
        try:
            self._store.remove([EXACT_NAME])
        except StorageError as error:
            warn(f"step {step} is saved, but removing an older exact file failed: {reason_of(error)}")

    def _is_foreign(self) -> bool:
        """Return whether a file that has the name is a sound file of another kind."""
        if not self._store.has(EXACT_NAME):
            return False
        try:
            with self._store.open(EXACT_NAME) as reader:
                return not reader.manifest.is_exact
        except (DataError, StorageError):
            return False

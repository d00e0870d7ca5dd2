"""The methods of `Chain` beside saving and restoring.

They wait for saves in the background, and remove checkpoints from a chain or copy them to another.
Each of the latter calls a function of its own module while no save of the same `Chain` runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...arguments import integer
from ...container.disk.address import checked_place
from ...errors import ArgumentError
from ...policy.hindsight import gains
from ...policy.policy import Policy
from ...policy.presets import resolve_policy
from ...policy.record import Kept
from ...quantizers.base import Quantizer
from ...table import Overview, Shown
from ..adapter import Adapter
from ..mend.behind import ParityBehind
from ..mirror.behind import Mirrors
from ..mirror.bring import MirrorState
from ..mirror.stand_in import Found, read_whole
from ..overview import chain_overview
from ..progress import Progress, Tell, check_progress, telling
from ..save.settings import WorkerOptions, check_hindsight, check_lossy
from ..save.writer import Writer
from ..store.opening import writable_store
from ..store.parents import Ancestry
from ..store.store import Store, WritableStore
from .keep import Keep
from .mending import Mending
from .pins import pin, pin_exact, unpin
from .prune import Pruning, prune
from .rollback import rollback
from .set_aside import RolledBack, delete_rolled_back, list_rolled_back, undo_rollback

if TYPE_CHECKING:  # loaded by the methods that call it
    from .compact import Compaction


class Lifetime(Shown, Mending):
    """What a `Chain` can do besides saving and restoring."""

    keyframe_every: int
    _writer: Writer
    _parity: ParityBehind

    def __init__(
        self,
        directory: str | os.PathLike[str],
        adapter: Adapter | None,
        options: WorkerOptions,
    ) -> None:
        restorers = None
        if options.workers is not None:
            from ..save.background import restorers_of

            restorers = restorers_of(options)
        super().__init__(directory, adapter, restorers)
        self._options = options
        self._ancestry = Ancestry(self._store)
        self._mirrors = Mirrors(self._store, ())

    @property
    def workers(self) -> int | None:
        """The number of workers, as given."""
        return self._options.workers

    @property
    def newest(self) -> Kept:
        """``"exact"`` if saves also keep the newest state exactly, else ``"history"``."""
        return self._writer.settings.record.newest

    def _resumes(self) -> None:
        self._writer.settings.restored()

    @property
    def _view(self) -> Store:
        return self._mirrors.instead or self._store

    def _whole(self, read: Callable[[Store, bool], Found]) -> Found:
        return read_whole(self._view, read, self._mirrors.to_read)

    def _overview(self) -> Overview:
        policy, *_ = self._writer.settings.given
        found = chain_overview(self._view, None if policy is None else policy.name, self.failure)
        if states := self.mirrors:
            found = replace(found, facts={**found.facts, "mirror": "; ".join(map(str, states))})
        return found

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no save runs in the background, for at most `timeout` seconds.

        Returns whether all saves are finished. Raises the error of a save that failed.
        """
        return self._writer.wait(timeout)

    @property
    def pending(self) -> list[int]:
        """The steps of the saves in the background that are not done, in their order."""
        return self._writer.pending

    @property
    def mirrors(self) -> list[MirrorState]:
        """How far each mirror is behind, as far as is known: nothing is asked of it."""
        return self._mirrors.states()

    @property
    def failure(self) -> BaseException | None:
        """The error of a save in the background that failed, until a call raises it."""
        return self._writer.failure

    def abort(self) -> None:
        """Abort all saves in the background that are not finished.

        Files that are already on disk stay: the exact file of such a save is a step of the chain.
        """
        self._writer.abort()

    def release_lock(self) -> None:
        """Release the lock on the directory, so that another process may save to it.

        Saves in the background are finished first. The next save of this `Chain` takes the lock
        again. Closing the chain releases the lock, too.
        """
        self._writer.release_lock()

    def rollback(self, step: int, *, delete: bool = False) -> RolledBack:
        """Take all later steps out of the chain, which then continues from `step`.

        They are set aside in ``.rolled-back`` in the directory, or removed with `delete`, together
        with an exact file of a later step; the next save writes a new one. Errors are those of
        `lccodec.chain.life.rollback.rollback`.
        """
        with self._mirrors.rolling_back(step), self._writer.at_rest() as claim:
            gone = rollback(self._store, step, delete=delete, claim=claim)
            self._writer.settings.forget_saves()
        return gone

    @property
    def rolled_back(self) -> list[RolledBack]:
        """What rollbacks have set aside, oldest first."""
        return list_rolled_back(self._store)

    def undo_rollback(self, name: str | None = None) -> RolledBack:
        """Put the steps that a rollback set aside back into the chain, by default the last ones.

        Errors are those of `lccodec.chain.life.set_aside.undo_rollback`.
        """
        with self._writer.at_rest() as claim:
            self._writer.settings.forget_saves()
            found = undo_rollback(self._store, name, claim=claim)
        self._mirrors()
        return found

    def delete_rolled_back(self, name: str | None = None, *, pinned: bool = False) -> list[RolledBack]:
        """Delete the steps that a rollback set aside, by default those of all rollbacks.

        Pinned steps are refused, unless `pinned` is set. Errors are those of
        `lccodec.chain.life.set_aside.delete_rolled_back`.
        """
        return delete_rolled_back(self._store, name, pinned=pinned)

    def fork(self, directory: str | os.PathLike[str], step: int) -> list[int]:
        """Start a new chain in a directory or a bucket from a step of this one; return its steps.

        Errors are those of `lccodec.chain.life.fork.fork`.
        """
        from .fork import fork

        with closing(writable_store(checked_place(directory))) as target:
            return fork(self._store, target, step)

    def prune(
        self, keep: Keep, *, rewrite: bool = False, dry_run: bool = False, progress: Progress = False
    ) -> Pruning:
        """Remove the checkpoints that `keep` does not keep and that no kept checkpoint needs.

        The newest step and pinned steps stay. With `rewrite`, kept checkpoints are rewritten with
        the same state, so that they need only kept ones. With `dry_run`, nothing is changed.
        `progress` is as for `restore`, counted in checkpoints. Errors are those of
        `lccodec.chain.life.prune.prune`.
        """
        check_progress(progress)
        options: dict[str, Any] = {"rewrite": rewrite, "dry_run": dry_run, "ancestry": self._ancestry}
        options["mirrored"] = self._mirrors.needed_steps()
        with (
            self._writer.at_rest() if rewrite and not dry_run else self._writer.turn,
            telling(progress, "prune", "checkpoints") as tell,
        ):
            found = prune(self._store, keep, tell=tell, **options)
        if rewrite and not dry_run:
            self._mirrors()
        return found

    def compact(
        self,
        policy: str | Policy | None = None,
        *,
        keyframe_every: int | None = None,
        directory: str | os.PathLike[str] | None = None,
        hindsight: int = 0,
        dry_run: bool = False,
        progress: Progress = False,
    ) -> Compaction:
        """Rewrite a finished run, to take fewer bytes or so that restores replay fewer deltas.

        Without a policy every state stays as it is, bit for bit. With one, states are encoded
        again, and the result says what that loses. No process may save meanwhile. See
        `lccodec.chain.life.compact.compact`, also for errors.

        Parameters
        ----------
        policy
            The policy to encode the states with. It needs `directory`.
        keyframe_every
            Maximum number of deltas that a restore replays. By default as for saves.
        directory
            A new directory or address. By default the files of this chain are replaced, one by one.
        hindsight
            Encode the states again in groups of so many checkpoints, those within a group against
            both of its ends: several times smaller at the same quality. It needs `directory`, and
            takes the recorded policy by default. What a policy stores without loss stays so.
        dry_run
            Return what would change, and change nothing. Not with a policy or `hindsight`.
        progress
            As for `restore`, counted in checkpoints.

        Raises
        ------
        ArgumentError
            For a policy or `hindsight` without `directory` or with `dry_run`, or if the directory
            is not empty.
        """
        from .compact import compact
        from .fork import duplicate_chain

        every = self.keyframe_every if keyframe_every is None else integer("keyframe_every", keyframe_every)
        check_progress(progress)
        target = None if directory is None else writable_store(checked_place(directory))
        with (
            nullcontext() if target is None else closing(target),
            self._writer.at_rest() as claim,
            telling(progress, "compact", "checkpoints") as tell,
        ):
            if policy is not None or hindsight:
                return self._code_anew(policy, every, target, dry_run, hindsight, tell)
            if target is not None and not dry_run:
                duplicate_chain(self._store, target)
                return compact(target, every, tell=tell)
            found = compact(self._store, every, dry_run=dry_run, claim=claim, tell=tell)
        if not dry_run:
            self._mirrors()
        return found

    def _code_anew(
        self,
        policy: str | Policy | None,
        every: int,
        target: WritableStore | None,
        dry_run: bool,
        hindsight: int,
        tell: Tell,
    ) -> Compaction:
        from .compact import code_anew
        from .hindsight import code_with_hindsight

        called = "compact(hindsight=...)" if hindsight else "compact(policy=...)"
        if target is None or dry_run:
            raise ArgumentError(f"{called} needs directory= and does not support dry_run")
        if target.names():
            raise ArgumentError(f"{called} needs a new or empty directory; {target.path} is not empty")
        chosen = self._writer.settings.record.policy if policy is None else resolve_policy(policy)
        if hindsight:
            group = check_hindsight(hindsight)
            check_lossy(chosen)
        if hindsight and gains(chosen):
            return code_with_hindsight(self._store, target, chosen, group, every, tell=tell)
        made: Any = type(self)
        with made(target.path, chosen, keyframe_every=every, newest="history") as other:

            def save(*given: Any, again: Mapping[str, Quantizer], **named: Any) -> int:
                other._writer.settings.again = again
                size: int = other.save(*given, **named)
                return size

            return code_anew(self._store, target, chosen, save, tell)

    def pin(self, step: int, *, exact: bool = False) -> None:
        """Pin a step: no prune of any process removes it, or the steps that it needs.

        With `exact`, it also stays bit for bit as it is now: the newest step is written anew from
        the exact file, as a keyframe. Errors are those of `lccodec.chain.life.pins.pin`, and of
        `pin_exact` there.
        """
        if not exact:
            pin(self._store, step)
            return
        with self._writer.at_rest() as claim:
            self._parity.wait()  # it reads the file that is written anew
            pin_exact(self._store, step, claim)
        self._mirrors()

    def unpin(self, step: int) -> bool:
        """Remove the pin of a step; return whether there was one."""
        return unpin(self._store, step)

    @property
    def pins(self) -> list[int]:
        """The pinned steps, in rising order."""
        return self._store.pins()

"""The chain of an adapter: its options, and its saves to the paths of the framework.

A framework keeps each checkpoint under its own path, deletes old ones when it likes, and copies or
uploads what is there. So a path holds a whole checkpoint file, which is exact and needs no other.
With a chain it is a second name of the chain's exact file. A later save replaces that file and
never changes it. So what has a name stays, whatever becomes of the chain, and whenever a run is
killed. It takes no bytes while it is the newest, and those of a raw state from then on.

Where only the history is kept (``newest="history"``), the path holds a link: a checkpoint without
arrays, whose metadata name the directory of the chain (relative to the link), the step and its root
hash. No prune removes the step of a link (:mod:`lccodec.chain.life.prune`).

In the background a call copies the state, and workers do the rest (`Chain.save_async`). The path
gets its file when the checkpoint is on the disk, and then everything is done that must wait for it.
No save begins before that: it replaces the exact file, of which the path is to be a second name.

Steps of the chain are those of the trainer. If the trainer has gone back, the chain does too.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Final, TypedDict

from ..chain.behind import Change
from ..chain.chain import Chain
from ..chain.life.prune import (
    Keep,
    KeepBehind,
    add_link,
    check_keep,
    linked_steps,
    name_again,
    name_exact,
)
from ..chain.read.checkpoint import (
    OpenCheckpoint,
    open_exact_of,
    open_file,
    open_step,
)
from ..chain.read.links import LINK_KEY
from ..chain.save.partial import check_only
from ..chain.save.plan import KEYFRAME_EVERY
from ..chain.save.settings import check_hindsight, log
from ..chain.save.single_file import save_file
from ..chain.store.directory import DirectoryStore, writable_store
from ..chain.store.lineage import Ancestry
from ..chain.store.store import checkpoint_name
from ..constants import MAX_STEP
from ..container.system import checked_path
from ..container.tree import Adapter, array_names, from_framework
from ..errors import (
    ArgumentError,
    ChainError,
    DataError,
    FormatError,
    StorageError,
    keeping_warnings,
    warn,
)
from ..parallel import Line
from ..policy.policy import Policy
from ..policy.presets import resolve_policy
from ..policy.record import NewestMode, check_newest
from ..policy.roles import Assignment, check_matches
from ..table import printable

#: The name of the checkpoint in a folder of Hugging Face's libraries that was packed.
PACKED: Final = "lccodec.lcc.h5"


def save_linked(
    state: Any,
    path: str | os.PathLike[str],
    metadata: dict[str, str],
    chain: Chain | None,
    roles: Mapping[str, Assignment] | None = None,
    step: int | None = None,
    only: Sequence[str] | None = None,
) -> None:
    """Write a state to a lossless file; with a chain, to a step of it, and then to the file.

    An existing file is replaced after the state is on the disk. `step` is the trainer's (see
    `chain_step`); `roles` and `only` are as for `Chain.save`. Errors are those of `Chain.save` and
    `write_link`.
    """
    if chain is None:
        save_file(state, path, metadata)
        return
    step = chain_step(step, chain.latest)
    chain.save(step, state, metadata, roles=roles, only=only)
    write_link(chain, step, checked_path(path))


def chain_step(wanted: int | None, latest: int | None) -> int:
    """Return the step of the chain for a state: the trainer's, if the chain can take it.

    A chain only grows. Another state gets the step after the latest, and a warning of the log says
    so.
    """
    following = 0 if latest is None else latest + 1
    if wanted is None:
        return following
    if following <= wanted <= MAX_STEP:
        return wanted
    log(
        logging.WARNING,
        "the trainer's step %d is step %d of the chain, whose latest is %s",
        wanted,
        following,
        latest,
    )
    return following


def write_link(chain: Chain, step: int, path: Path) -> int:
    """Give the newest step of a chain its name at a path; return the bytes of a whole file there.

    Of a chain that keeps only its history, it is a link of 0 bytes. A ``ChainError`` says that the
    exact state is not there any more, as its file could not be written.
    """
    store = DirectoryStore(Path(chain.directory))
    if chain.newest == "history":
        with store.open(store.name_of(step)) as reader:
            root = reader.root.hex()
        directory = Path(os.path.relpath(chain.directory, path.parent)).as_posix()
        add_link(store, step, path, {LINK_KEY: json.dumps({"chain": directory, "step": step, "root": root})})
        return 0
    if not name_exact(store, step, path):
        with open_step(store, step) as file:
            if any(array.lossy for array in file.info().arrays):
                raise ChainError(
                    f"{path}: step {step} of {store.path} is saved, but its exact state is not there"
                )
            save_file(file.state(dtype="bits"), path, file.metadata())
    return path.stat().st_size


def open_linked(path: str | os.PathLike[str]) -> OpenCheckpoint:
    """Open a file of `save_linked`: the state itself, or the checkpoint that a link names.

    A ``ChainError`` says that the linked one is missing or has another root hash.
    """
    path = checked_path(path)
    file = open_file(path)
    text = file.metadata().get(LINK_KEY)
    if text is None:
        return file
    file.close()
    checkpoint, root = read_link(path, text)
    if not checkpoint.parent.is_dir():
        raise ChainError(
            f"{path} is a link to {os.path.normpath(checkpoint)}, which is missing: only the link was"
            " copied or moved, and the state is in that chain"
        )
    return open_named(checkpoint, root, path)


def read_link(path: Path, text: str) -> tuple[Path, str]:
    """Return the checkpoint that a link at `path` names, by its text, and the checkpoint's root."""
    try:
        link = json.loads(text)
        directory, step, root = path.parent / link["chain"], int(link["step"]), str(link["root"])
    except (ValueError, OverflowError, TypeError, KeyError, RecursionError) as error:
        raise FormatError(LINK_KEY, str(path), "not a link to a checkpoint of a chain") from error
    return directory / checkpoint_name(step), root


def open_named(path: Path, root: str, by: str | os.PathLike[str]) -> OpenCheckpoint:
    """Open a checkpoint whose root hash another file gives; errors call that file `by`.

    The exact file beside it goes before, if it is of that checkpoint. The root may be that of the
    exact file: when it was noted, only that file had the step.
    """
    if (exact := open_exact_of(path, root)) is not None:
        return exact
    try:
        file = open_file(path)
    except StorageError as error:
        if os.path.exists(path):  # noqa: PTH110 - Path.exists raises for a name that is too long
            raise
        raise ChainError(f"{by}: {path} holds a part of it and is missing") from error
    reader = file.links[-1].reader
    if root not in {known.hex() for known in (*reader.roots, reader.manifest.exact or b"")}:
        file.close()
        raise ChainError(f"{by}: {path} is not the file that was saved with it, but a file of another run")
    return file


_LOOK_SECONDS: Final = 0.01  # between looks whether a save is still to get its file

_open: weakref.WeakSet[LinkSaver] = weakref.WeakSet()


class OtherOptions(TypedDict, total=False):
    """The types of the options that adapters take by keyword and hand on to `ChainOptions`."""

    keyframe_every: int
    workers: int | None
    newest: NewestMode | None
    background: bool
    keep: Keep | None
    hindsight: int
    only: Sequence[str] | None


@dataclass(frozen=True)
class ChainOptions:
    """Where and how an adapter stores a chain of deltas: the parameters of all that have one.

    Parameters
    ----------
    chain
        The directory of the chain. The first save makes it. Without it each checkpoint is a
        lossless file that stands alone; DCP then keeps the chains in the directory of the
        checkpoint.
    policy
        A preset (a name in `lccodec.POLICIES`) or a `Policy`, as for `Chain`. The default is exact.
        A lossy policy needs a chain.
    keyframe_every
        The largest number of deltas that a restore may replay, as for `Chain`.
    workers
        The number of worker processes that code, as for `Chain`; by default this process does.
    newest
        What a chain keeps beside its history, as for `Chain`. With ``"exact"``, the default, a path
        of the framework holds a whole file, which is exact and needs no chain. With ``"history"``
        it is a link to a step of the chain, as that was saved: up to the policy.
    background
        Whether a save copies the state, returns, and lets workers do the rest, as
        `Chain.save_async` does. It waits for the one before. The failure of a save is raised by the
        next save or load, or at the end of training; then that save is not begun. DCP has its own
        option for that: `dcp.async_save`.
    keep
        Which steps of the chain stay, as for `Chain`. Older ones go when a later save begins, or at
        the end: the path of the checkpoint before is on the disk then.
    hindsight
        As for `Chain`: how many checkpoints are in a group, of which those within are coded again.
    only
        Names or patterns of the arrays that change, such as ``["*lora*"]``, as for `Chain.save`:
        the first save stores all arrays, later ones of the same object only these. All others must
        not change. Of several processes, one that has no such array saves all that it has. It
        cannot be used with `hindsight`.

    Raises
    ------
    ArgumentError
        For an unknown policy; for an option that needs a chain without one; or for a chain that is
        not a local path.
    """

    chain: str | os.PathLike[str] | None = None
    policy: str | Policy = "lossless"
    keyframe_every: int = KEYFRAME_EVERY
    workers: int | None = None
    newest: NewestMode | None = None
    background: bool = False
    keep: Keep | None = None
    hindsight: int = 0
    only: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.chain is not None:
            object.__setattr__(self, "chain", checked_path(self.chain))
        policy = resolve_policy(self.policy)
        if self.chain is None and policy != resolve_policy("lossless"):
            raise ArgumentError(
                f"policy {policy.name!r} codes deltas, which need chain=, the directory of a chain"
            )
        if not isinstance(self.background, bool):
            raise ArgumentError(f"background must be True or False; got {self.background!r}")
        for option, is_given in (
            ("newest='exact'", check_newest(self.newest) == "exact"),
            ("background=True", self.background),
            ("keep=", check_keep(self.keep) is not None),
            ("hindsight=", check_hindsight(self.hindsight)),
        ):
            if is_given and self.chain is None:
                raise ArgumentError(
                    f"{option} needs chain=, the directory of a chain; without it every checkpoint is exact"
                )
        object.__setattr__(self, "only", check_only(self.only))
        if self.only is not None and (self.chain is None or self.hindsight):
            raise ArgumentError("only= needs chain=, the directory of a chain, and no hindsight=")

    def only_of(
        self, names: Callable[[], Iterable[str]], *, alone: bool, has_all: bool
    ) -> Sequence[str] | None:
        """Return which arrays a process saves; ``None`` for all, until the chain has all.

        If it is not alone, a pattern may fit none of its arrays. A save of all tells what no array
        is named.
        """
        if self.only is None or (alone and has_all):
            return self.only
        own = list(names())
        if has_all:
            kept = [
                pattern
                for pattern in self.only
                if pattern in own or any(fnmatchcase(n, pattern) for n in own)
            ]
            return kept or None
        if alone:
            check_matches("only", self.only, own)
        return None

    def open(self, part: str = "", adapter: Adapter | None = None) -> Chain:
        """Open the chain, or that of one process in a subdirectory. There must be one."""
        return self.open_in(Path(self.chain or "", part), adapter, "exact")

    def open_in(
        self, directory: Path, adapter: Adapter | None = None, newest: NewestMode | None = None
    ) -> Chain:
        """Open a chain with these options in the given directory; `newest` if that is not given."""
        return Chain(
            directory,
            self.policy,
            keyframe_every=self.keyframe_every,
            workers=self.workers,
            adapter=adapter,
            newest=self.newest or newest,
            hindsight=self.hindsight,
        )


class Begun:
    """A save in the background, to a step of a chain, whose path has no file yet."""

    def __init__(self, chain: Chain, step: int, future: Future[int | None]) -> None:
        self.chain, self.step, self.future = chain, step, future
        self.is_over = False  # an event has a lock, which a caller that is interrupted may have

    def link(self, path: Path) -> None:
        """Wait for the checkpoint, then write the file. The failure of the save is raised here."""
        try:
            self.future.result()
            write_link(self.chain, self.step, path)
        except BaseException as error:
            if self.chain.failure is error:
                with suppress(type(error)):  # so that no later call raises it again
                    self.chain.wait(0)
            raise
        finally:
            self.is_over = True


class LinkSaver:
    """Saves states of `adapter`, by default of NumPy, to paths. The first save opens the chain.

    The chain is in the subdirectory `part`, if it is that of one process.
    """

    def __init__(self, options: ChainOptions, adapter: Adapter | None = None, part: str = "") -> None:
        self._options, self._adapter, self._part = options, adapter, part
        self._chain: Chain | None = None
        self._ancestry: Ancestry | None = None  # of the chain, once it is thinned out
        self._last: Future[int | None] | None = None
        self._begun: weakref.ref[Begun] | None = None  # whose file the caller of `begin` writes
        self._saved: tuple[int, int] | None = None  # the trainer's last step, and that of the chain
        self._resumed: int | None = None  # the trainer's step that was loaded last
        self._is_told = False  # what a path costs
        self._has_all = False  # whether all arrays were saved before
        self._line = Line()  # writes links, and does what waits for them
        self._failed: deque[BaseException] = deque()  # failures of these, until they are raised
        self._warnings: deque[str] = deque()  # and their warnings, until they are given
        self._skips = False  # whether what comes next is left out, as something before it has failed
        self.process = os.getpid()
        _open.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a copy, as in a process that a trainer starts, open the chain anew."""
        return LinkSaver, (self._options, self._adapter, self._part)

    def save(
        self,
        state: Any,
        path: Path,
        metadata: Mapping[str, str] | None = None,
        roles: Mapping[str, Assignment] | None = None,
        then: Callable[[], object] | None = None,
        step: int | None = None,
        names: Iterable[str] | None = None,
    ) -> None:
        """Save a state to a step of the chain, and then to a file; call `then` when it is there.

        `step` is the trainer's: what was saved last under it gets another name, and an older one
        rolls the chain back. `names` are those of the arrays, if other processes save others. In
        the background, the failure of an earlier save is raised and nothing is saved.
        """
        strings = dict(metadata or {})
        if self._options.chain is None:
            if self._adapter is not None:
                state, strings = self._adapter.to_numpy(state, strings)
            save_file(state, path, strings)
        elif self._is_again(step, state, strings, path):
            pass
        elif self._options.background:
            begun, self._begun = self.begin(state, strings, roles, step, names), None
            self._submit(partial(self._link, begun, path, then))
            return
        else:
            chain, number = self._prepared(step)
            # Behind a save that fails, all arrays are saved.
            only, self._has_all = self._only(state, names), False
            chain.save(number, state, strings, roles=roles, only=only)
            self._saved = self._saved if step is None else (step, number)
            self._has_all = True
            self._tell(write_link(chain, number, path))
        if then is not None:
            then()

    def begin(
        self,
        state: Any,
        metadata: Mapping[str, str] | None,
        roles: Mapping[str, Assignment] | None,
        step: int | None = None,
        names: Iterable[str] | None = None,
    ) -> Begun:
        """Save a state in the background. The caller writes the file, by `Begun.link`."""
        if self._options.chain is None:
            raise ArgumentError("a save in the background needs a chain")
        self._line.wait()  # until the exact file has the name of the save before, in whatever way
        while self._begun is not None and (begun := self._begun()) and not begun.is_over:
            del begun
            time.sleep(_LOOK_SECONDS)
        chain, number = self._prepared(step)
        only = self._only(state, names)
        self._last = chain.save_async(number, state, metadata, roles=roles, only=only)
        self._has_all = True
        self._saved = self._saved if step is None else (step, number)
        begun = Begun(chain, number, self._last)
        self._begun = weakref.ref(begun)
        return begun

    def follow(self, limit: int | None) -> None:
        """Keep no more steps than a framework keeps paths, unless the history is wanted."""
        options = self._options
        wanted = options.keep or options.hindsight or options.newest == "history"
        if not limit or options.chain is None or wanted:
            return
        if len(DirectoryStore(Path(options.chain, self._part)).steps()) <= 2 * limit:
            every = min(options.keyframe_every, limit - 1)  # or kept steps would need many others
            self._options = replace(options, keep=Keep(latest=limit), keyframe_every=every)

    def resumed(self, step: int | None) -> None:
        """Learn the trainer's step that was loaded: it may go on from there."""
        self._resumed, self._saved = step, None

    def _prepared(self, wanted: int | None) -> tuple[Chain, int]:
        """Return the chain, and the step of it for a state that is saved now."""
        chain = self._opened()
        self._raise_failure()
        self._thin_out()
        latest = chain.latest
        went_back = self._saved is None or (wanted or 0) < self._saved[0]
        if wanted is not None and latest is not None and wanted <= latest and went_back:
            self._go_back(chain, wanted)
        return chain, chain_step(wanted, chain.latest)

    def _go_back(self, chain: Chain, wanted: int) -> None:
        """Set aside the steps of a branch that the trainer has left, so that its steps are free."""
        before = [step for step in chain.steps if step < wanted]
        if self._resumed is not None:
            before = [step for step in before if step <= self._resumed] or before
        gone = {step for step in chain.steps if not before or step > before[-1]}
        store = writable_store(chain.directory)
        if not before or gone & {*chain.pins, *linked_steps(store)}:
            return  # nothing may go, so the state is numbered on
        self._has_all, self._ancestry = False, None
        with suppress(DataError, ChainError, StorageError):  # a save that can be kept is kept
            chain.rollback(before[-1])
            log(
                logging.WARNING,
                "%s: the trainer went back to step %d: the chain goes on from step %d, and steps %s are set"
                " aside (Chain.undo_rollback)",
                *(chain.directory, wanted, before[-1], ", ".join(map(str, sorted(gone)))),
            )

    def _is_again(self, wanted: int | None, state: Any, metadata: dict[str, str], path: Path) -> bool:
        """Give a state a second path if it is the newest step, under this step of the trainer."""
        if wanted is None:
            return False
        self.settle()  # a failure is raised by the save that follows
        chain = self._opened()
        saved = self._saved or (chain.latest, chain.latest)
        if wanted != saved[0] or chain.failure is not None or self._failed:
            return False
        flat, strings, _ = from_framework(self._adapter, state, metadata, None)
        return name_again(DirectoryStore(Path(chain.directory)), saved[1] or 0, path, flat, strings)

    def _tell(self, size: int) -> None:
        """Tell once what it costs to keep paths of older states."""
        if size and not self._is_told:
            self._is_told = True
            log(
                logging.INFO,
                "%s: each path holds a whole and exact checkpoint. The newest shares its bytes with the"
                " chain; each older one that is kept takes %s bytes. With newest='history' paths are links",
                *(self._options.chain, f"{size:,}"),
            )

    def _only(self, state: Any, names: Iterable[str] | None) -> Sequence[str] | None:
        """Return which arrays are saved: all, also behind a save that has failed.

        The state may have got other arrays.
        """
        last = self._last
        failed = last is not None and last.done() and (last.cancelled() or last.exception() is not None)

        def own() -> Iterable[str]:
            if names is not None:
                return names
            return array_names(
                from_framework(self._adapter, state, None, None, wanted=lambda _: False)[0].tree
            )

        return self._options.only_of(own, alone=names is None, has_all=self._has_all and not failed)

    def after(self, action: Callable[[], object]) -> None:
        """Call a function when all saves that are begun are on the disk; at once if none runs.

        While a failure is still to be raised it is not called: what a new checkpoint replaces
        stays.
        """
        self._leave_parent()
        if self._failed or (self._chain is not None and self._chain.failure is not None):
            return
        if self._line.waiting:
            self._submit(action, skips=True)
        else:
            action()

    def settle(self) -> None:
        """Wait until no save runs. Failures are kept for the next call."""
        self._leave_parent()
        self._line.wait()
        while self._warnings:
            warn(self._warnings.popleft())

    def wait(self) -> None:
        """Wait until no save runs; raise the failure of one that failed."""
        self.settle()
        if self._chain is not None:
            self._chain.wait()
        self._raise_failure()

    def close(self) -> None:
        """Wait, and end the workers; raise a save's failure. The next save opens the chain anew."""
        self.settle()
        self._thin_out()
        try:
            if self._chain is not None:
                self._chain.close()
        finally:
            self._chain, self._has_all = None, False
            self._raise_failure()

    def _leave_parent(self) -> None:
        """After a fork, forget all that runs: it is the parent's, and never ends here."""
        if self.process != os.getpid():
            self.process, self._chain, self._last, self._has_all = os.getpid(), None, None, False
            self._begun = None
            self._failed.clear()
            self._warnings.clear()

    def _opened(self) -> Chain:
        self._leave_parent()
        if self._chain is None:
            self._chain = self._options.open(self._part, self._adapter)
        return self._chain

    def _thin_out(self) -> None:
        """Remove what is not kept of what was saved before: its paths are on the disk."""
        chain, keep = self._chain, self._options.keep
        if chain is not None and keep is not None and chain.steps:
            store = writable_store(chain.directory)
            self._ancestry = self._ancestry or Ancestry(store)
            KeepBehind(store, keep, self._ancestry).after(Change(added=chain.steps[-1:]))

    def _link(self, begun: Begun, path: Path, then: Callable[[], object] | None) -> None:
        """Write the file of a checkpoint once it is saved. The chain keeps a save's failure."""
        wait_for([begun.future])
        if begun.future.cancelled() or begun.future.exception() is not None:
            raise CancelledError
        if not path.parent.is_dir():  # frameworks delete old checkpoints, folder and all
            log(logging.WARNING, "%s: the folder was deleted before its checkpoint was saved", path)
            return
        self._tell(write_link(begun.chain, begun.step, path))
        if then is not None:
            then()

    def _submit(self, action: Callable[[], object], *, skips: bool = False) -> None:
        """Do something after all that was submitted; with `skips`, unless that has failed."""

        def act() -> None:
            if skips and self._skips:
                return
            try:
                with keeping_warnings(self._warnings):
                    action()
                self._skips = False
            except BaseException as error:  # it is raised by a later call
                self._skips = True
                self._failed.append(error)

        self._line.add(act)

    def _raise_failure(self) -> None:
        while self._failed:
            error = self._failed.popleft()
            if not isinstance(error, CancelledError):  # the chain raises that of a save
                raise error


@atexit.register
def _at_exit() -> None:
    """Wait for all saves at the end of the program, and tell what went wrong."""
    for saver in list(_open):
        if saver.process != os.getpid():
            continue
        try:
            saver.close()
        except Exception as error:
            lines = f"lccodec: {error}", *getattr(error, "__notes__", ())
            print(printable("\n  ".join(lines), indented=True), file=sys.stderr)

"""Where the files of a chain are kept, and what their names say: steps, the exact file, pins.

A `Store` is a directory, a bundle, or what else keeps files by name: a subclass implements the
abstract members, and all else follows from them. Only a `WritableStore` can be saved to.

The name of a checkpoint is its step in at least twelve digits, and a suffix (LCC-CHN-01). Other
files are never touched.

Source: SPEC 9.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, closing
from typing import Final, Protocol, Self

from ...constants import CHECKPOINT_SUFFIX, EXACT_NAME, MAX_STEP, PIN_SUFFIX
from ...container.checkpoint import CheckpointReader, CheckpointWriter, first_steps, read_trailer
from ...container.folder import is_temporary
from ...container.source import Source
from ...container.system import SYSTEM, Place, System
from ...errors import ArgumentError, ChainError, FormatError, LccodecError, as_integer
from .claim import Claim

#: Beside the checkpoints, what a writer keeps for itself: `lccodec.chain.save.hash_reference`.
HASHES_FOLDER: Final = ".hashes"

_STEP: Final = "([0-9]{12}|[1-9][0-9]{12,15})"
_CHECKPOINT: Final = re.compile(_STEP + re.escape(CHECKPOINT_SUFFIX))
_PIN: Final = re.compile(_STEP + re.escape(PIN_SUFFIX))


def checkpoint_name(step: int) -> str:
    """Return the name of the checkpoint of a step (LCC-CHN-01)."""
    return f"{step:012d}{CHECKPOINT_SUFFIX}"


def pin_name(step: int) -> str:
    """Return the name of the pin of a step (LCC-CHN-07)."""
    return f"{step:012d}{PIN_SUFFIX}"


def checkpoints_among(names: Iterable[str]) -> dict[int, str]:
    """Return the checkpoints among names, by rising step."""
    found = dict[int, str]()
    for name in names:
        if match := _CHECKPOINT.fullmatch(name):
            found[int(match[1])] = name
    return dict(sorted(found.items()))


def files_among(names: Iterable[str]) -> list[str]:
    """Return the files of a chain among names: checkpoints by rising step, then the exact file."""
    there = {*names}
    return [*checkpoints_among(there).values(), *({EXACT_NAME} & there)]


def is_checkpoint(name: str) -> bool:
    """Return whether a name is that of a checkpoint of the history."""
    return _CHECKPOINT.fullmatch(name) is not None


def pins_among(names: Iterable[str]) -> list[int]:
    """Return the steps that have a pin among names, rising."""
    return sorted(int(match[1]) for name in names if (match := _PIN.fullmatch(name)))


def is_of_chain(name: str) -> bool:
    """Return whether lccodec gives files that name."""
    patterns = (_CHECKPOINT, _PIN)
    return name == EXACT_NAME or is_temporary(name) or any(each.fullmatch(name) for each in patterns)


def check_name(name: str, step: int | None) -> None:
    """Raise ``FormatError`` if a chain's file is not named after the step it holds (LCC-CHN-01)."""
    if (match := _CHECKPOINT.fullmatch(name)) and int(match[1]) != step:
        raise FormatError("LCC-CHN-01", name, f"holds step {step}")


def step_index(step: object) -> int:
    """Return a step as an int; raise ``ArgumentError`` if it is no integer, NumPy's or other."""
    index = as_integer(step)
    if index is None:
        raise ArgumentError(f"a step must be an integer; got {step!r}")
    return index


_MAX_NAMES_SHOWN: Final = 5  # in one message


class Store(ABC):
    """The files of a chain, to be read; a context manager.

    Messages call the store by its `path`, and a file of it by this path and the file's own name.
    Where it is `far`, each call takes long, so that what will be read is better told before
    (`ahead`). If it is `shared`, other processes see the same files. A directory on a disk
    `has_folders`: parity, hashes and links can lie beside its files.
    """

    far = False
    shared = True
    has_folders = False
    system: System = SYSTEM  # what makes files on this machine of what is read here

    def __init__(self, path: Place) -> None:
        self.path = path
        self._prefix = str(path / "_")[:-1]

    def place(self, name: str) -> str:
        """Return what messages call a file. It is its path, where files have one."""
        return self._prefix + name  # pathlib takes as long as opening a file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027 - most stores hold nothing open
        """Release what is held open. Closing again does nothing."""

    def afresh(self) -> Self:
        """Return the store as it is read where nothing was read before.

        Whoever checks what is stored reads from this one: what a cache holds may be whole where the
        store is damaged. A store without a cache is this one itself.
        """
        return self

    def snapshot(self) -> Store:
        """Return the store as it is now, so that several questions take one listing.

        Where a listing is quick, this is the store itself, which changes.
        """
        return self

    def ahead(self, names: Iterable[str]) -> None:  # noqa: B027 - most stores are near
        """Take note that files will be opened, with all that they need, to fetch them together."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all files; none if the store does not exist yet."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Return whether there is a file of that name."""

    @abstractmethod
    def source(self, name: str) -> Source:
        """Open a file for reads of ranges; the error for a missing one has the number ENOENT."""

    @abstractmethod
    def size(self, names: Iterable[str]) -> int:
        """Return the bytes that files take together; raise ``StorageError`` if one is missing."""

    @abstractmethod
    def identity(self, name: str) -> tuple[int, ...]:
        """Return what tells a file from another that takes its name; errors are as for `source`."""

    def has_folder(self, name: str) -> bool:  # noqa: ARG002 - most stores have files alone
        """Return whether a folder of that name lies beside the files; a file is none."""
        return False

    def is_at(self, place: Place) -> bool:
        """Return whether it is the store of a place."""
        return self.path == place

    def open(self, name: str) -> CheckpointReader:
        """Open a checkpoint file or the exact file, or raise what is wrong with it."""
        return CheckpointReader(self.source(name), self.place(name))

    def root(self, name: str) -> tuple[bytes, int]:
        """Return the root that a checkpoint file declares, and its bytes. Nothing is verified."""
        with closing(self.source(name)) as source:
            return read_trailer(source, self.place(name)).root, source.size

    def checkpoints(self) -> dict[int, str]:
        """Return the names of the history's checkpoints, by rising step."""
        return checkpoints_among(self.names())

    def exact_step(self) -> int | None:
        """Return the step of the exact file; ``None`` without one. Nothing is verified.

        It is asked for at every save, so only the start of the manifest is read.
        """
        try:
            with closing(self.source(EXACT_NAME)) as source:
                return next(iter(first_steps(source, of_exact=True)), None)
        except LccodecError:
            return None

    def steps(self) -> dict[int, str]:
        """Return the name of the file of every step, by rising step.

        That is the checkpoint, or the exact file of a step that the history does not have: a crash
        may leave it as the only file of that step.
        """
        listed = self.snapshot()
        names = listed.names()
        found = checkpoints_among(names)
        if EXACT_NAME in names and (step := listed.exact_step()) is not None and step not in found:
            found[step] = EXACT_NAME
        return dict(sorted(found.items()))

    def name_of(self, step: int) -> str:
        """Return the name of the file of a step as `steps`; of its checkpoint if there is none."""
        name, listed = checkpoint_name(step), self.snapshot()
        return EXACT_NAME if not listed.has(name) and listed.exact_step() == step else name

    def unfinished_step(self) -> int | None:
        """Return the newest step if only the exact file has it; ``None`` otherwise.

        The save of that step was cut short, or its checkpoint could not be written.
        """
        listed = self.snapshot()
        newest, exact = max(listed.checkpoints(), default=-1), listed.exact_step()
        return exact if exact is not None and exact > newest else None

    def next_step(self, step: object, running: Iterable[int] = ()) -> tuple[int, int | None]:
        """Return a step as an int; raise ``ArgumentError`` if it does not come after all others.

        `running` are the steps of saves that are not done. A step that only the exact file has,
        because its save was cut short, may be saved again. If it comes before the step instead, it
        is returned, too; otherwise ``None`` is.
        """
        listed = self.snapshot()
        there, begun, exact = list(listed.checkpoints()), list(running), listed.exact_step()
        unfinished = None
        if exact is not None and exact not in there:
            is_newest = not there or exact > there[-1]
            if not (is_newest and exact not in begun and step_index(step) == exact):  # or it is saved again
                there = sorted([*there, exact])
                unfinished = exact if is_newest else None
        return check_next(step, [*there, *begun], self.path), unfinished

    def parents_of(self, name: str) -> tuple[int, ...]:
        """Return the steps that a checkpoint names as its parents'. Nothing is verified."""
        try:
            with closing(self.source(name)) as source:
                return first_steps(source, of_exact=False)
        except LccodecError:
            return ()

    def pins(self) -> list[int]:
        """Return the pinned steps, rising."""
        return pins_among(self.names())

    def chains(self) -> dict[Place, list[int]]:
        """Return the chains below the place with their steps; not those that cannot be listed."""
        return {}

    def nothing(self) -> str:
        """Return that there is no checkpoint, and which chains there are instead."""
        names = [str(place).removeprefix(f"{self.path}/") for place in self.chains()]
        shown = ", ".join(names[:_MAX_NAMES_SHOWN]) + (", ..." if names[_MAX_NAMES_SHOWN:] else "")
        return f"{self.path} holds no checkpoint" + (f", but these chains: {shown}" if names else "")


class OvertakenError(ChainError):
    """Another writer has committed first: a save must not be started again."""


class LockedStore(Protocol):
    """A store while its lock is held: the one who may pin and remove files."""

    def add(self, name: str) -> None:
        """Make an empty file, if there is no file of that name."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, and bring that to stable storage. One may be gone already."""

    def sync(self) -> None:
        """Bring what was added to stable storage."""


class Shelf(Protocol):
    """What rollbacks have set aside of a store. Whoever changes it holds the lock of the store."""

    def names(self) -> list[tuple[str, int]]:
        """Return the name of each, and the step that was rolled back to; the oldest first."""

    def chain(self, name: str) -> WritableStore:
        """Return the chain that was set aside under a name."""

    def add(self, step: int, files: Sequence[str], pins: Iterable[int]) -> str:
        """Set files and pins of the store aside; return the name when all is durable."""

    def pin(self, name: str, pins: Iterable[int]) -> None:
        """Pin steps that were set aside, and bring that to stable storage."""

    def is_same(self, name: str, file: str) -> bool:
        """Return whether a file of the store is the one that was set aside."""

    def put_back(self, name: str, file: str, *, overwrite: bool = False) -> None:
        """Put a file that was set aside into the store."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove what was set aside under names, and what an earlier call has left unfinished."""


#: Of what a rollback has set aside: its number, and the step that it went to (LCC-CHN-08).
_ROLLBACK_NAME: Final = re.compile(r"([0-9]{4,})-to-([0-9]{1,16})")


def parse_name(name: str) -> tuple[int, int] | None:
    """Return the number of a rollback and the step that it went to; ``None`` for other names."""
    match = _ROLLBACK_NAME.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


def next_name(names: Iterable[str], step: int) -> str:
    """Return the name of a further rollback to a step."""
    numbers = [parsed[0] for name in names if (parsed := parse_name(name)) is not None]
    return f"{max(numbers, default=0) + 1:04d}-to-{step}"


def in_order(names: Iterable[str]) -> list[tuple[str, int]]:
    """Return names of rollbacks with the steps that they went to, the oldest first."""
    found = [(parsed, name) for name in names if (parsed := parse_name(name)) is not None]
    return [(name, step) for (_, step), name in sorted(found)]


class WritableStore(Store):
    """The files of a chain that can be saved to."""

    def call_between(self, between: Callable[[], object]) -> None:
        """Let a function be called while a call to the store takes long, by the same thread."""

    @abstractmethod
    def make(self) -> None:
        """Make the store, if it does not exist; raise ``StorageError`` if that is not possible."""

    @abstractmethod
    def writer(self, name: str, *, overwrite: bool = False) -> CheckpointWriter:
        """Return the writer of a file that is there whole or not at all.

        With `overwrite` it replaces a file of that name; otherwise such a file is an error.
        """

    @abstractmethod
    def receive(
        self, name: str, source: Source, check: Callable[[CheckpointReader], object], *, overwrite: bool
    ) -> None:
        """Store a file bit for bit as another store has it, whole or not at all.

        Before it has its name, it is read as it is stored here, and `check` is called with it: what
        that raises, ends the call. Raises ``DataError`` if what is stored here is not a checkpoint
        file, ``ArgumentError`` or ``ChainError`` if there is a file of that name, unless
        `overwrite` is set.
        """

    def adopt(self, store: Store, names: Sequence[str]) -> Sequence[str]:  # noqa: ARG002 - of no use here
        """Give files of another store second names here, one by one; return those to be copied."""
        return names

    @abstractmethod
    def written(self, name: str) -> float:
        """Return when a file was written, in seconds since 1970. Errors are as for `source`."""

    @abstractmethod
    def remove(self, names: Iterable[str]) -> None:
        """Remove files that nothing needs. One may be gone already."""

    @abstractmethod
    def locked(self) -> AbstractContextManager[LockedStore]:
        """Wait for the lock and hold it: one process at a time pins or removes files."""

    @abstractmethod
    def locked_if_free(self) -> AbstractContextManager[LockedStore | None]:
        """Hold the lock as `locked`; yield ``None`` if another process has it."""

    @abstractmethod
    def shelf(self) -> Shelf:
        """Return what rollbacks have set aside."""

    @abstractmethod
    def remove_stale(self) -> None:
        """Remove what writers that are gone have left unfinished."""

    def revoke_unfinished(self) -> None:
        """Let no file get its name that this thread was writing when a signal interrupted it."""

    @abstractmethod
    def claim(self) -> Claim:
        """Return a claim, not yet taken: one process at a time saves."""

    @abstractmethod
    def sync(self) -> None:
        """Bring the names of files to stable storage."""


def check_next(step: object, steps: Sequence[int], path: Place) -> int:
    """Return a step as an int; raise ``ArgumentError`` if it does not come after `steps`."""
    index = step_index(step)
    if not 0 <= index <= MAX_STEP:
        raise ArgumentError(f"a step must be an integer from 0 to {MAX_STEP}; got {index}")
    if index in steps:
        raise ArgumentError(f"a step must be new; step {index} exists already in {path}")
    if steps and index < steps[-1]:
        raise ArgumentError(
            f"a step must be above the latest, {steps[-1]} in {path}; got {index}: roll back first"
        )
    return index

"""What is examined: the checkpoints of a directory or a bundle, or one file, by rising step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ..chain.mend.protect import protected_names
from ..chain.read.checkpoint import OpenCheckpoint, open_name
from ..chain.read.newest import check_own
from ..chain.read.survey import Decode, Visit, survey, visit_file
from ..chain.store.directory import DirectoryStore, describe_exact
from ..chain.store.opening import is_chain, is_folder, open_store
from ..chain.store.store import Store
from ..container.disk.address import Address, Place
from ..container.reader import open_checkpoint
from ..errors import ArgumentError, DataError, StorageError


@dataclass(frozen=True)
class Source:
    """Checkpoints, by the numbers that stand for them in a report.

    Attributes
    ----------
    store
        Where they are kept; of one file, its directory, which has its parents.
    steps
        The names of the files by rising step. A file without a step has the number 0.
    """

    path: Place
    kind: Literal["chain", "bundle", "file"]
    store: Store
    steps: Mapping[int, str]

    def close(self) -> None:
        """Close the bundle, if it is one."""
        self.store.close()

    def visits(self, *, decode: Decode) -> Iterator[tuple[int, Visit]]:
        """Yield the checkpoints with their numbers. A visit is valid until the next one."""
        if self.kind == "file":
            for number, name in self.steps.items():
                yield number, visit_file(self.store, name, self.store.open(name), decode)
            return
        for visit in survey(self.store, self.steps, decode=decode, rising=True):
            yield visit.step, visit

    def open(self, number: int) -> OpenCheckpoint:
        """Open a checkpoint, to decode arrays of it; errors are as for `lccodec.open`."""
        return open_name(self.store, self.steps[number])

    def pins(self) -> frozenset[int]:
        """Return the pinned steps."""
        return frozenset(() if self.kind == "file" else self.store.pins())

    def protected(self) -> frozenset[int]:
        """Return the steps whose files have parity that fits them."""
        if self.kind == "file" or not isinstance(self.store, DirectoryStore):
            return frozenset()
        names = protected_names(self.store)
        return frozenset(step for step, name in self.steps.items() if name in names)

    def exact_bytes(self) -> int:
        """Return the bytes of the exact file; 0 if there is none."""
        found = None if self.kind == "file" else describe_exact(self.store)
        return int(found["bytes"] or 0) if found else 0


def open_source(path: Place) -> Source:
    """Open a chain, a bundle or a checkpoint file.

    Raises
    ------
    ArgumentError
        If a directory or a bundle holds no checkpoint, or its newest only names files elsewhere.
    DataError, StorageError
        If a file is neither a checkpoint nor a bundle, is damaged, or cannot be read.
    """
    if not isinstance(path, Address) and not is_chain(path):
        with open_checkpoint(path) as reader:  # its error says why it is none
            check_own(reader.manifest.metadata, path)
            return Source(path, "file", DirectoryStore(path.parent), {reader.manifest.step or 0: path.name})
    store = open_store(path).snapshot()
    source = Source(path, "chain" if is_folder(path) else "bundle", store, store.steps())
    if not source.steps:
        source.close()
        raise ArgumentError(store.nothing())
    if isinstance(store, DirectoryStore):
        check_own(_metadata(store, source.steps[max(source.steps)]), path)
    return source


def _metadata(store: Store, name: str) -> Mapping[str, str]:
    """Return the metadata of a checkpoint; of one that cannot be read, none."""
    try:
        with store.open(name) as reader:
            return reader.manifest.metadata
    except (DataError, StorageError):
        return {}

"""What lies in a chain: every checkpoint, every array over all of them, and where the bytes go.

What is examined are the checkpoints of a directory or a bundle, or one file, by rising step. Only
manifests and headers of frames are read. What cannot be read is listed as such.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..chain.mend.protect import protected_names
from ..chain.overview import policy_name, shortened
from ..chain.read.checkpoint import OpenCheckpoint, open_name
from ..chain.read.info import ArrayInfo
from ..chain.read.links import check_own
from ..chain.read.survey import Visit, survey, visit_file
from ..chain.store.directory import DirectoryStore, describe_exact, is_chain, is_folder, open_store
from ..chain.store.store import Store
from ..container.checkpoint import open_checkpoint
from ..container.system import Address, Place
from ..container.tree import numbers_of
from ..errors import ArgumentError, ChainError, DataError, LccodecError, StorageError
from ..policy.roles import Role, find_moments
from .report import STREAMS, ArrayRow, Checkpoint

if TYPE_CHECKING:
    from ..chain.read.replay import Decode


@dataclass(frozen=True)
class Source:
    """Checkpoints, by the numbers that stand for them in a report."""

    path: Place
    kind: Literal["chain", "bundle", "file"]
    store: Store  # of one file, its directory, which has its parents
    steps: Mapping[int, str]  # names of files by rising step; 0 for a file without one

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
        if self.kind == "file":
            return frozenset()
        names = protected_names(self.store)
        return frozenset(step for step, name in self.steps.items() if name in names)

    def exact_bytes(self) -> int:
        """Return the bytes of the exact file; 0 if there is none."""
        exact_file = None if self.kind == "file" else describe_exact(self.store)
        return int(exact_file["bytes"] or 0) if exact_file else 0


def open_source(path: Place) -> Source:
    """Open a chain, a bundle or a checkpoint file.

    An ``ArgumentError`` says that there is no checkpoint, or one that only names files elsewhere.
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
    if not store.far:
        check_own(_metadata(store, source.steps[max(source.steps)]), path)
    return source


def _metadata(store: Store, name: str) -> Mapping[str, str]:
    """Return the metadata of a checkpoint; of one that cannot be read, none."""
    try:
        with store.open(name) as reader:
            return reader.manifest.metadata
    except (DataError, StorageError):
        return {}


@dataclass
class Inventory:
    """What is found in the checkpoints of a run, added one by one by rising step."""

    pins: frozenset[int] = frozenset()
    protected: frozenset[int] = frozenset()
    # by their numbers: steps, or 0
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    policies: dict[str, Any] = field(default_factory=dict)  # that were recorded, by their JSON
    # that can be read, and the root of its exact file
    newest: tuple[int | None, bytes | None] = (None, None)
    lacking: set[int] = field(default_factory=set)  # cannot be restored: a parent is missing
    numbers: dict[int, dict[str, float]] = field(default_factory=dict)  # beside the arrays
    # number, new and gone arrays
    changes: list[tuple[int, list[str], list[str]]] = field(default_factory=list)
    streams: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STREAMS, 0))
    _unmeasured: set[str] = field(default_factory=set)
    _runs: set[tuple[str, ...]] = field(default_factory=set)
    _arrays: dict[str, ArrayInfo] = field(default_factory=dict)
    _bytes: dict[str, tuple[int, int]] = field(default_factory=dict)
    _order: list[str] = field(default_factory=list)

    def add(self, number: int, visit: Visit) -> None:
        """Add a checkpoint."""
        try:
            visit.check()
            info = visit.info()
            methods = visit.frame_bytes()
        except LccodecError as error:
            self.checkpoints[number] = self._unreadable(number, visit, error)
            if isinstance(error, ChainError):
                self.lacking.add(number)
            return
        if visit.reader is not None:
            trailer, streams = visit.reader.trailer, self.streams
            streams["manifest"] += trailer.manifest_length
            streams["container"] += visit.reader.file_size - trailer.manifest_length - trailer.payload_length
            for method, nbytes in methods.items():
                streams[method] += nbytes
            self.newest = info.step, visit.reader.manifest.exact
        self._add_arrays(number, info.arrays)
        self._unmeasured.update(array.name for array in info.arrays if not measured_whole(array))
        self._runs.update(map(tuple, visit.runs()))
        texts = _shortened_strings(info.metadata)
        self.numbers[number] = numbers_of(texts, visit.scalars())
        self.policies.setdefault(json.dumps(info.policy), info.policy)
        roles: dict[Role, int] = {}
        for array in info.arrays:
            roles[array.role] = roles.get(array.role, 0) + array.stored_bytes
        self.checkpoints[number] = Checkpoint(
            step=info.step,
            kind=info.kind,
            parent=info.parent,
            depth=info.deltas,
            bytes=info.file_bytes,
            nbytes=info.nbytes,
            policy=policy_name(info.policy),
            metadata=texts,
            exact=info.exact,
            pinned=info.step in self.pins,
            protected=info.step in self.protected,
            roles=roles,
            figures=info.figures,
        )

    def _unreadable(self, step: int, visit: Visit, error: LccodecError) -> Checkpoint:
        """Return a checkpoint that cannot be read, or cannot without its parent."""
        checkpoint = Checkpoint(step, "unreadable", sound=False, problems=[shortened(str(error))])
        if visit.reader is None:
            nbytes = 0
            with suppress(OSError):  # in a bundle, or gone
                nbytes = Path(visit.path).stat().st_size
            return replace(checkpoint, bytes=nbytes, pinned=step in self.pins)
        manifest = visit.reader.manifest
        return replace(
            checkpoint,
            parent=manifest.parent.step if manifest.parent else None,
            bytes=visit.reader.file_size,
            policy=policy_name(manifest.policy),
            metadata=_shortened_strings(manifest.metadata),
            pinned=step in self.pins,
        )

    def _add_arrays(self, number: int, arrays: Sequence[ArrayInfo]) -> None:
        before, self._order = self._order, [array.name for array in arrays]
        if self._arrays and before != self._order:
            earlier, now = set(before), set(self._order)
            new = [name for name in self._order if name not in earlier]
            gone = [name for name in before if name not in now]
            if new or gone:
                self.changes.append((number, new, gone))
        for array in arrays:
            stored, nbytes = self._bytes.get(array.name, (0, 0))
            self._arrays[array.name] = array
            self._bytes[array.name] = stored + array.stored_bytes, nbytes + array.nbytes

    def to_decode(self) -> frozenset[str]:
        """Return the arrays that no save has measured, with all that share their frames."""
        wanted, before = set(self._unmeasured), -1
        while len(wanted) != before:
            before = len(wanted)
            for run in self._runs:
                if not wanted.isdisjoint(run):
                    wanted.update(run)
        return frozenset(wanted)

    def rows(self) -> list[ArrayRow]:
        """Return every array, in the order of the newest state; those that it lacks come last."""
        names = dict.fromkeys([*self._order, *self._arrays])
        roles = {name: array.role for name, array in self._arrays.items()}
        shapes = {name: array.shape for name, array in self._arrays.items()}
        moments = [find_moments(roles, shapes, role) for role in ("first_moment", "second_moment")]
        of = {moment: weight for weights in moments for weight, moment in weights.items()}
        rows = (array_row(self._arrays[name], *self._bytes[name]) for name in names)
        return [replace(row, of=of.get(row.name)) for row in rows]


def measured_whole(array: ArrayInfo) -> bool:
    """Return whether a save measured all that a report shows of an array that lost something.

    Of a complex number, a report shows the magnitude.
    """
    known = array.figures.rms is not None and array.figures.quantiles is not None
    return known and array.lossy and not array.dtype.startswith("complex")


def array_row(array: ArrayInfo, stored_bytes: int = 0, nbytes: int = 0) -> ArrayRow:
    """Return what a report says of an array; the bytes are sums over all checkpoints."""
    return ArrayRow(
        name=array.name,
        role=array.role,
        why=array.why,
        dtype=array.dtype,
        shape=array.shape,
        size=math.prod(array.shape),
        quantizer=array.quantizer,
        stored_bytes=stored_bytes,
        nbytes=nbytes,
    )


def _shortened_strings(metadata: Mapping[str, str]) -> dict[str, str]:
    return {shortened(key): shortened(text) for key, text in metadata.items()}

"""What lies in a chain: every checkpoint, every array over all of them, and where the bytes go.

Only manifests and headers of frames are read. What cannot be read is listed as such.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..chain.overview import policy_name, shortened
from ..chain.read.info import ArrayInfo, CheckpointInfo
from ..chain.read.survey import Visit
from ..container.disk.address import Place
from ..container.reader import CheckpointReader
from ..container.scalars import numbers_of
from ..errors import ChainError, LccodecError
from ..policy.roles import Role, find_moments
from .report import STREAMS, ArrayRow, Checkpoint


@dataclass
class Inventory:
    """What is found in the checkpoints of a run, added one by one by rising step.

    Attributes
    ----------
    checkpoints
        Every checkpoint by its number, which is its step, or 0 for a file without one.
    policies
        The policies that were recorded, each once, by their JSON texts.
    newest
        The step of the newest checkpoint that can be read, and the root of its exact file.
    lacking
        Steps that cannot be restored because a parent is missing.
    numbers
        The numbers beside the arrays of each checkpoint that can be read, by its number.
    changes
        Where the state has other arrays than at the checkpoint before: its number, the names of
        arrays that are new, and of those that are gone.
    """

    pins: frozenset[int] = frozenset()
    protected: frozenset[int] = frozenset()
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    policies: dict[str, Any] = field(default_factory=dict)
    newest: tuple[int | None, bytes | None] = (None, None)
    lacking: set[int] = field(default_factory=set)
    numbers: dict[int, dict[str, float]] = field(default_factory=dict)
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
            self._add_bytes(visit.reader, methods)
            self.newest = info.step, visit.reader.manifest.exact
        self._add_arrays(number, info.arrays)
        self._unmeasured.update(array.name for array in info.arrays if not measured_whole(array))
        self._runs.update(map(tuple, visit.runs()))
        texts = _shortened_strings(info.metadata)
        self.numbers[number] = numbers_of(texts, visit.scalars())
        self.policies.setdefault(json.dumps(info.policy), info.policy)
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
            roles=_by_role(info),
            figures=info.figures,
        )

    def _unreadable(self, step: int, visit: Visit, error: LccodecError) -> Checkpoint:
        """Return a checkpoint that cannot be read, or cannot without its parent."""
        found = Checkpoint(step, "unreadable", sound=False, problems=[shortened(str(error))])
        if visit.reader is None:
            return replace(found, bytes=_size(visit.path), pinned=step in self.pins)
        manifest = visit.reader.manifest
        return replace(
            found,
            parent=manifest.parent.step if manifest.parent else None,
            bytes=visit.reader.file_size,
            policy=policy_name(manifest.policy),
            metadata=_shortened_strings(manifest.metadata),
            pinned=step in self.pins,
        )

    def _add_bytes(self, reader: CheckpointReader, methods: Mapping[str, int]) -> None:
        trailer = reader.trailer
        self.streams["manifest"] += trailer.manifest_length
        self.streams["container"] += reader.file_size - trailer.manifest_length - trailer.payload_length
        for method, nbytes in methods.items():
            self.streams[method] += nbytes

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
        """Return the arrays that must be decoded to be measured, with all that share their frames.

        Of all others, each save measured what a report shows.
        """
        found, before = set(self._unmeasured), -1
        while len(found) != before:
            before = len(found)
            for run in self._runs:
                if not found.isdisjoint(run):
                    found.update(run)
        return frozenset(found)

    def rows(self) -> list[ArrayRow]:
        """Return every array, in the order of the newest state; those that it lacks come last."""
        names = dict.fromkeys([*self._order, *self._arrays])
        roles = {name: array.role for name, array in self._arrays.items()}
        shapes = {name: array.shape for name, array in self._arrays.items()}
        moments = [find_moments(roles, shapes, role) for role in ("first_moment", "second_moment")]
        of = {moment: weight for found in moments for weight, moment in found.items()}
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


def _by_role(info: CheckpointInfo) -> dict[Role, int]:
    found: dict[Role, int] = {}
    for array in info.arrays:
        found[array.role] = found.get(array.role, 0) + array.stored_bytes
    return found


def _shortened_strings(metadata: Mapping[str, str]) -> dict[str, str]:
    return {shortened(key): shortened(text) for key, text in metadata.items()}


def _size(path: Place) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:  # in a bundle, or gone
        return 0

"""Samples of the state of the last save, as it was before any quantizer, from a chain's files.

A process that saves has them in memory. After a restart they come from the exact file, if it is of
that save; or else from the checkpoint as decoded, where its figures say that nothing was lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..constants import EXACT_NAME
from ..container.reader import open_checkpoint
from ..element_types import Array
from ..errors import LccodecError
from ..frame.content import MAX_SHARED_COMPONENTS
from ..parallel import slices
from ..policy.policy import Candidate
from .checkpoint import CheckpointFile
from .directory import checkpoint_path
from .ranges import Ranges
from .sample import Sampling
from .tail import Tail


def stored_originals(directory: Path, tail: Tail, arrays: Sequence[Candidate]) -> dict[str, Array]:
    """Return samples of the state that the latest checkpoint was made of, by the names of arrays.

    `arrays` are those of the next state, which say what is sampled. An array that is not known has
    no sample.
    """
    sampling = Sampling(arrays)
    # Those with a reference have its type and shape.
    wanted = {c.name: i for i, c in enumerate(arrays) if c.kind.is_float and c.reference is not None}
    try:
        with open_checkpoint(checkpoint_path(directory, tail.step)) as reader:
            manifest = reader.manifest
        if manifest.exact is not None:
            with CheckpointFile(open_checkpoint(directory / EXACT_NAME), None) as file:
                if file.links[-1].reader.root == manifest.exact:
                    return dict(_of_exact_file(file, arrays, wanted, sampling))
    except LccodecError:  # missing or damaged: a restore says so
        return {}
    if manifest.figures is None or len(manifest.arrays) != len(tail.arrays):
        return {}
    errors = manifest.figures.read("error", len(tail.arrays)).tolist()
    lossless = [name for name, error in zip(tail.arrays, errors, strict=True) if error == 0]
    return {n: sampling.of(wanted[n], tail.arrays[n].bits).copy() for n in lossless if n in wanted}


def _of_exact_file(
    file: CheckpointFile, arrays: Sequence[Candidate], wanted: Mapping[str, int], sampling: Sampling
) -> Iterator[tuple[str, Array]]:
    """Yield samples of arrays. A large array is read piece by piece, not held whole."""
    link, together = file.links[-1], []
    for name, index in wanted.items():
        c, place = arrays[index], link.names.get(name)
        ranges = (
            Ranges.of(file.links, name) if place is not None and c.bits.size > MAX_SHARED_COMPONENTS else None
        )
        if ranges is not None and (ranges.header.kind, ranges.header.shapes) == (c.kind, (c.shape,)):
            yield name, _sampled(ranges, sampling.distances[index])
        elif place is not None:
            together.append(place)
    for place, array in file.decode_each(together):
        name = link.index_names[place]
        c = arrays[wanted[name]]
        if (array.kind, array.shape) == (c.kind, c.shape):
            yield name, sampling.of(wanted[name], array.bits).copy()


def _sampled(ranges: Ranges, distance: int) -> Array:
    """Return the components of an array at equal distances."""
    ranges.verify()
    found, size = [], ranges.header.components
    for part in slices(size, ranges.block):
        piece = np.empty(min(ranges.block, size - part.start), ranges.header.kind.bits)
        ranges.decode(slice(part.start, part.start + piece.size), piece, ())
        found.append(piece[-part.start % distance :: distance].copy())
    return np.concatenate(found)

"""Samples of the state of the save before.

A save keeps a sample of its state for the next one. After a restart, samples of the last state come
from the exact file, if it is of that save; or else from the checkpoint as decoded, where its
figures say that nothing was lost.

Source: SPEC 8 (LCC-FIG-05).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from ...constants import EXACT_NAME
from ...element_types import Array, work
from ...errors import LccodecError
from ...frame.content import MAX_SHARED_COMPONENTS
from ...frame.header import FrameHeader
from ...parallel import slices
from ...policy.policy import Candidate, Past
from ..read.checkpoint import OpenCheckpoint
from ..read.replay import Ranges
from ..store.names import checkpoint_name
from ..store.store import Store
from .figures.drawing import PIECE, Drawn
from .figures.sampling import Samples, Sampling
from .reference import Tail


def sampling_after(tail: Tail | None, arrays: Sequence[Candidate]) -> Sampling:
    """Return how a state is sampled. Its references are the arrays of a tail, if there is one.

    As a rule it has the same arrays as the state before: then it is sampled as that.
    """
    if tail is not None and tail.originals is not None:
        known = tail.originals.sampling
        if known is not None and known.fits(arrays, tail.arrays):
            return known
    return Sampling(arrays)


def look_back(store: Store, tail: Tail, arrays: Sequence[Candidate], sampling: Sampling) -> None:
    """Give the weights of the next state a sample of what they were at the save before."""
    known = tail.originals
    if known is not None and known.sampling is sampling:
        add_past(arrays, sampling, known)
        return
    # Of another process, or sampled in other places: from the files, which are not yet replaced.
    if known is None or (tail.manifest.exact is not None and _are_elsewhere(known, arrays, sampling)):
        known = _originals(store, tail, arrays, sampling)
    elif others := {c.name for c in arrays if c.reference is not None and _had_other_form(tail, c)}:
        known = known.of(tail.arrays.keys() - others)
    tail.originals = known
    add_past(arrays, sampling, known)


def _are_elsewhere(before: Samples, arrays: Sequence[Candidate], sampling: Sampling) -> bool:
    """Return whether samples lie elsewhere now, as the state has got or lost large arrays."""
    for c, distance in zip(arrays, sampling.distances, strict=True):
        own = before.even.get(c.name) if c.reference is not None and not c.inherited else None
        if own is not None and own.size != -(-c.bits.size // distance):
            return True
    return False


def _had_other_form(tail: Tail, c: Candidate) -> bool:
    """Return whether an array had another type or shape at the save before an end of a group.

    Its reference, the end before that, has its own.
    """
    before = tail.arrays.get(c.name)
    return before is not None and before.form != (c.kind, c.shape)


def add_past(arrays: Sequence[Candidate], sampling: Sampling, before: Samples) -> None:
    """Give weights a sample of what they were at the save before.

    Without first moments it says nothing (:mod:`lccodec.policy.momentum`).
    """
    if not any(c.role == "first_moment" for c in arrays):
        return
    for c, distance in zip(arrays, sampling.distances, strict=True):
        found = before.even.get(c.name) if c.role == "weight" and not c.inherited else None
        if found is not None and c.reference is not None and found.size == -(-c.bits.size // distance):
            c.past = Past(distance, found)


def _originals(store: Store, tail: Tail, arrays: Sequence[Candidate], sampling: Sampling) -> Samples:
    """Return samples of the state that the latest checkpoint was made of.

    An array that is not known has no sample.
    """
    # Those with a reference have its type and shape.
    wanted = {c.name: i for i, c in enumerate(arrays) if c.kind.is_float and c.reference is not None}
    try:
        with store.open(checkpoint_name(tail.step)) as reader:
            manifest = reader.manifest
        if manifest.exact is not None:
            with OpenCheckpoint(store.open(EXACT_NAME), None) as file:
                if file.links[-1].reader.root == manifest.exact:
                    return _collected(_of_exact_file(file, arrays, wanted, sampling))
    except LccodecError:  # missing or damaged: a restore says so
        return Samples()
    if manifest.figures is None or len(manifest.arrays) != len(tail.arrays):
        return Samples()
    errors = manifest.figures.read("error", len(tail.arrays)).tolist()
    lossless = [
        name for name, error in zip(tail.arrays, errors, strict=True) if error == 0 and name in wanted
    ]
    return _collected((n, *sampling.taken(wanted[n], tail.arrays[n])) for n in lossless)


def _collected(found: Iterable[tuple[str, Array, Drawn | None]]) -> Samples:
    even: list[tuple[str, Array]] = []
    drawn: dict[str, Drawn] = {}
    for name, bits, own in found:
        even.append((name, bits))
        if own is not None:
            drawn[name] = own
    return Samples.of_arrays(even, drawn)


def _of_exact_file(
    file: OpenCheckpoint, arrays: Sequence[Candidate], wanted: Mapping[str, int], sampling: Sampling
) -> Iterator[tuple[str, Array, Drawn | None]]:
    """Yield samples of arrays. A large array is read piece by piece, not held whole."""
    link, together = file.links[-1], []
    for name, index in wanted.items():
        c, place = arrays[index], link.names.get(name)
        ranges = (
            Ranges.of(file.links, name) if place is not None and c.bits.size > MAX_SHARED_COMPONENTS else None
        )
        if ranges is not None and (ranges.header.kind, ranges.header.shapes) == (c.kind, (c.shape,)):
            ranges.verify()
            yield name, *_sampled(sampling, index, partial(_parts, ranges), ranges.header)
        elif place is not None:
            together.append(place)
    for place, array in file.decode_each(together):
        name = link.index_names[place]
        c = arrays[wanted[name]]
        if (array.kind, array.shape) == (c.kind, c.shape):
            yield name, *sampling.taken(wanted[name], array)


def _parts(ranges: Ranges) -> Iterator[Array]:
    """Yield the components of an array, part by part."""
    size, most = ranges.header.components, max(ranges.block, PIECE)
    for part in slices(size, most):
        piece = np.empty(min(most, size - part.start), ranges.header.kind.bits)
        ranges.decode(slice(part.start, part.start + piece.size), piece, ())
        yield piece


def _sampled(
    sampling: Sampling, index: int, parts: Callable[[], Iterator[Array]], header: FrameHeader
) -> tuple[Array, Drawn | None]:
    """Return all that is sampled of an array that comes in parts."""
    distance, start = sampling.distances[index], 0
    found = []
    for bits in parts():
        found.append(bits[-start % distance :: distance].copy())
        start += bits.size
    even = np.concatenate(found)
    return even, sampling.draw_parts(index, even, parts, header.components, header.kind)


def movements(arrays: Sequence[Candidate], now: Samples, before: Samples) -> dict[str, float]:
    """Return how far arrays moved between two states, by their even samples: root mean squares.

    Arrays that were not there before, or had another shape, are not among them.
    """
    found = {}
    with np.errstate(all="ignore"):
        for c in arrays:
            past, own = before.even.get(c.name), now.even.get(c.name)
            if past is None or own is None or past.shape != own.shape or past.dtype != own.dtype:
                continue
            d = work(own, c.kind).astype(np.float64) - work(past, c.kind)
            d = d[np.isfinite(d)]
            found[c.name] = math.sqrt(float(np.square(d).mean())) if d.size else 0.0
    return found

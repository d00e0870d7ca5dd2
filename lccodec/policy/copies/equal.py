"""Equal arrays: those that have the type, the shape and every bit of another array of the state.

A target network, an average of weights and the slow weights of an optimizer begin as copies of the
weights, and experts as copies of one layer. One array that is one object in several places is
stored once anyway; these are objects of their own. They need no bytes: a checkpoint says of which
array each is a copy.

A few values find the arrays that may be equal, and then every value is compared. Constants are left
out: any constant of the shape would do, and it takes no more bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import numpy as np

from ...element_types import Array
from ...parallel import slices
from ..policy import Candidate

#: An array of fewer bytes takes about as many as to say what it is a copy of.
_MIN_BYTES: Final = 64

#: Values that are compared before all are.
_SAMPLE: Final = 64

#: Different arrays with one sample that an array is compared with, whole.
_MAX_COMPARED: Final = 4


def mark_equal(arrays: Sequence[Candidate], rounded: Collection[str] = ()) -> None:
    """Set the `source` of each array that is equal to another one.

    A source is no copy, and has one equal copy at most (LCC-CPY-01). `rounded` are the sources of
    roundings, which are no copies for that. Of equal arrays, the source is the one that changed
    least: a delta has it in the fewest bytes.

    Examples
    --------
    >>> from lccodec.element_types import ELEMENT_TYPES
    >>> bits = np.arange(100, dtype=np.uint32)
    >>> single = ELEMENT_TYPES[11]
    >>> arrays = [Candidate(n, "other", "", single, (100,), bits.copy(), None) for n in "ab"]
    >>> mark_equal(arrays)
    >>> [c.source for c in arrays]
    [None, 'a']
    """
    for group in _alike(arrays):
        group.sort(key=lambda c: (c.name not in rounded, changed_share(c), _changed_bits(c)))
        sources: list[list[Candidate]] = []
        for c in group:
            equal = next((equal for equal in sources if is_equal(c.bits, equal[0].bits)), None)
            if equal is not None and c.name not in rounded:
                equal.append(c)
            elif equal is None and len(sources) < _MAX_COMPARED:
                sources.append([c])
        for equal in sources:
            half = -(-len(equal) // 2)
            for source, copy in zip(equal, equal[half:], strict=False):
                copy.source = source.name


def changed_share(c: Candidate) -> float:
    """Return about how much of an array differs from its reference: 1 if that is not at hand."""
    if c.changed is not None:
        return c.changed
    if not isinstance(c.reference, np.ndarray):
        return 1.0
    return float((_sample(c.bits) != _sample(c.reference)).mean())


def _changed_bits(c: Candidate) -> float:
    """Return about how many low bits of a component differ from the reference; all without one."""
    if not isinstance(c.reference, np.ndarray):
        return 8.0 * c.bits.itemsize
    one, other = _sample(c.bits), _sample(c.reference)
    return float(np.log2(1.0 + np.where(one > other, one - other, other - one)).mean())


def is_equal(left: Array, right: Array) -> bool:
    """Return whether all components of two arrays of one size and type are equal."""
    return all(bool((left[part] == right[part]).all()) for part in slices(left.size))


def _alike(arrays: Sequence[Candidate]) -> Iterator[list[Candidate]]:
    """Yield arrays of one type and shape that are equal in a few values, two or more at a time."""
    likely: dict[object, list[Candidate]] = {}
    for c in arrays:
        if c.source is None and not c.inherited and c.bits.nbytes >= _MIN_BYTES:
            # Looking at two values is ten times as fast as taking a sample.
            key = c.kind, c.shape, c.bits.item(0), c.bits.item(c.bits.size // 2)
            likely.setdefault(key, []).append(c)
    for found in likely.values():
        if len(found) == 1:
            continue
        sampled: dict[object, list[Candidate]] = {}
        for c in found:
            sample = _sample(c.bits)
            if (sample != sample[0]).any():
                sampled.setdefault(tuple(sample.tolist()), []).append(c)
        yield from (group for group in sampled.values() if len(group) > 1)


def _sample(bits: Array) -> Array:
    return bits[:: max(bits.size // _SAMPLE, 1)]

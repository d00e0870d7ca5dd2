"""Copies of weights in mixed precision: arrays that are the rounding of a float32 array.

Runs in mixed precision have each weight twice: in float32, which the optimizer changes, and rounded
to bfloat16 or float16, which the model computes with. The second needs no bytes: a checkpoint says
of which array it is the rounding.

Values decide. A sample finds the array, and then every value is compared: an array of which one
value differs is coded as any other. Names are asked for two things only:

- Of two arrays with the same values, the one whose name ends as that of the copy is its source.
- If one of the two is known to be a weight, the other one is too, if a name says what they are to
  each other (``master``, ``fp32``; ``bf16``, ``half``) and neither name nor user says anything else
  of it. So the float32 weights that an optimizer keeps are coded as weights are. At the moment of
  the save, both are one set of numbers; what an error does to the one, it does to the other.

Without such names, a weight that the policy may lose something of has no exact copy: that is coded
on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from ...element_table import ElementType
from ...element_types import Array, rounded_copy
from ...parallel import slices
from ..optimizer import name_parts, path_of
from ..policy import Candidate
from ..roles import MASTER, OUTSIDE, PERHAPS, ROUNDED, UNNAMED, UNSAFE, UNTRAINED
from ..vocabulary import meaning

#: An array of fewer elements takes about as many bytes as to say what it is a copy of.
_MIN_ELEMENTS: Final = 16

#: Values that are compared before all are.
_SAMPLE: Final = 64

#: Why an array is exact, if nothing says what it is.
_SILENT: Final = frozenset([UNNAMED, UNTRAINED, PERHAPS, UNSAFE, OUTSIDE])


def mark_rounded(arrays: Sequence[Candidate]) -> set[str]:
    """Set the `source` of each array that is a rounding, and the roles; return all sources.

    A source is float32, is no copy, and has one rounding. Arrays that a save leaves out are
    neither.

    Examples
    --------
    >>> from lccodec.element_types import ELEMENT_TYPES
    >>> half, single = ELEMENT_TYPES[9], ELEMENT_TYPES[11]
    >>> x = np.linspace(0, 1, 100, dtype=np.float32)
    >>> arrays = [
    ...     Candidate("w", "other", "", half, (100,), x.astype(np.float16).view(np.uint16), None),
    ...     Candidate("master/w", "other", "", single, (100,), x.view(np.uint32), None),
    ... ]
    >>> mark_rounded(arrays)
    {'master/w'}
    >>> [c.source for c in arrays]
    ['master/w', None]
    """
    arrays = [c for c in arrays if not c.inherited]
    used = set[str]()
    small = [c for c in arrays if c.kind.name in ("float16", "bfloat16") and c.bits.size >= _MIN_ELEMENTS]
    shapes = {c.shape for c in small}
    if not small:
        return used
    kinds = {c.kind.name: c.kind for c in small}
    sampled: dict[object, list[Candidate]] = {}
    for c in arrays:
        if c.kind.name == "float32" and c.shape in shapes:
            sample = _sample(c.bits)
            for kind in kinds.values():
                sampled.setdefault((kind.name, c.shape, tuple(_rounded(sample, kind).tolist())), []).append(c)
    for c in small:
        sample = _sample(c.bits)
        if (sample == sample[0]).all():  # of a constant: any constant of the shape would do
            continue
        found = sampled.get((c.kind.name, c.shape, tuple(sample.tolist())), ())
        own = path_of(c.name)
        for source in sorted(found, key=lambda other: -_common_end(own, path_of(other.name))):
            if source.name not in used and _is_rounding(c, source):
                c.source = source.name
                used.add(source.name)
                _share_role(c, source)
                break
    return used


def _sample(bits: Array) -> Array:
    return np.ascontiguousarray(bits[:: max(bits.size // _SAMPLE, 1)])


def _rounded(bits: Array, kind: ElementType) -> Array:
    out = np.empty(bits.size, kind.bits)
    rounded_copy(bits, kind, out)
    return out


def _is_rounding(c: Candidate, source: Candidate) -> bool:
    """Return whether all values of an array are those of a float32 array, rounded."""
    return all(bool((_rounded(source.bits[p], c.kind) == c.bits[p]).all()) for p in slices(c.bits.size))


def _common_end(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many parts two names have in common at their ends."""

    def parts() -> Iterator[int]:
        for count, (left, right) in enumerate(zip(reversed(one), reversed(other), strict=False), 1):
            if left != right:
                return
            yield count

    return max(parts(), default=0)


def _share_role(c: Candidate, source: Candidate) -> None:
    """Make a weight of an array whose copy or source is one, if names say what they are."""
    masters = any(meaning(part).master for part in name_parts(source.name))
    if masters or any(meaning(part).rounded for part in name_parts(c.name)):
        if c.role == "weight" and source.role == "other" and source.why in _SILENT:
            source.role, source.why = "weight", MASTER
        elif source.role == "weight" and c.role == "other" and c.why in _SILENT:
            c.role, c.why = "weight", ROUNDED

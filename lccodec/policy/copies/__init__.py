"""Copies: arrays of which a checkpoint only says what they are a copy of.

- `rounded`: bfloat16 and float16 arrays that are the rounding of a float32 array;
- `equal`: arrays that are bit for bit another one of their type.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..policy import Candidate
from .equal import mark_equal
from .rounded import mark_rounded

__all__ = ["mark_copies", "mark_equal"]


def mark_copies(arrays: Sequence[Candidate]) -> None:
    """Set the `source` of each array that is a copy of another one, and the roles that follow.

    Arrays that a save leaves out are neither copies nor sources.
    """
    mark_equal(arrays, mark_rounded(arrays))

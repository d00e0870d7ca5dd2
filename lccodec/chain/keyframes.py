"""When a chain writes a keyframe: an encoder's choice (LCC-CHN-04)."""

from __future__ import annotations

from typing import Final

__all__ = ["KEYFRAME_EVERY", "wants_keyframe"]

#: A restore replays at most this many deltas unless a chain is told otherwise (LCC-CHN-04).
KEYFRAME_EVERY: Final = 32


def wants_keyframe(deltas: int, delta_bytes: int, keyframe_bytes: int, every: int) -> bool:
    """Return whether the next checkpoint should be a keyframe (an encoder's choice, LCC-CHN-04).

    Parameters
    ----------
    deltas, delta_bytes
        Number and bytes of the deltas since the last keyframe.
    keyframe_bytes
        Bytes of that keyframe.
    every
        Largest number of deltas that a restore may replay.
    """
    return deltas >= every or delta_bytes > keyframe_bytes

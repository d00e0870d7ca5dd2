"""The bounds on lccodec's speed: deltas of a settled chain beside np.copyto, zstd and SZ3."""

from __future__ import annotations

from collections.abc import Sequence

from ..measure.figures import Figure, find
from ..measure.goals import Goal
from .settled import SECTION, WIDE, sz3_name

__all__ = ["goals"]

#: Most copies of each policy to encode and to decode, and the same over the time of zstd -1.
BOUNDS = {
    "balanced": ((10, 5), (0.5, 0.3)),
    "small": ((10, 5), (0.5, 0.3)),
    "lc-3": ((32, 15), (1.5, 0.9)),
}
SLOWER = 8  # times that SZ3 takes at least, at the same maximum error
SIZE = "16,"  # millions of values: how the headings of full runs begin
ACTIONS = (("encode", "encode"), ("decode into", "decode, fresh"))  # of lccodec, and of peers


def goals(figures: Sequence[Figure]) -> list[Goal]:
    """Return all bounds, with what `figures` say of them."""
    found = []
    for policy, (copies, shares) in BOUNDS.items():
        for (own, other), most, share in zip(ACTIONS, copies, shares, strict=True):
            ours = find(figures, SECTION, policy, own, case=SIZE)
            zstd = find(figures, SECTION, "zstd -1", other, case=SIZE)
            what = f"{own}, {policy}"
            found.append(Goal(what, None if ours is None else ours.ratio, most, unit="copies"))
            found.append(Goal(f"{what}, over zstd -1's time", _times(ours, zstd), share))
            if policy in WIDE:
                sz3 = find(figures, SECTION, sz3_name(policy), other, case=SIZE)
                found.append(
                    Goal(f"{what}, over SZ3's time at the same maximum error", _times(ours, sz3), 1 / SLOWER)
                )
    return found


def _times(first: Figure | None, second: Figure | None) -> float | None:
    """Return the seconds of the first as a multiple of those of the second."""
    if first is None or second is None or first.seconds is None or second.seconds is None:
        return None
    return first.seconds / second.seconds

"""The bounds on lccodec's speed: deltas of a settled chain beside np.copyto, zstd and SZ3; updates.

Of updates of which little changes, the bounds are on size and time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..measure.figures import Figure, find
from ..measure.goals import Goal
from . import forms, updates
from .settled import SECTION, WIDE, sz3_name

__all__ = ["bounds", "goals"]

#: Most copies of each policy to encode and to decode, and the same over the time of zstd -1.
BOUNDS = {
    "balanced": ((10, 5), (0.5, 0.3)),
    "small": ((10, 5), (0.5, 0.3)),
    "lc-3": ((32, 15), (1.5, 0.9)),
}
SLOWER = 8  # times that SZ3 takes at least, at the same maximum error
SIZE = "16,"  # millions of values: how the headings of full runs begin
#: Of an update: bits a value by the share that changes, copies by what is done at 1 %.
UPDATE_BITS = {0.003: 16 / 440, 0.01: 16 / 160, 0.05: 16 / 42}
UPDATE_COPIES = {"encode": 12, "decode in place": 6}
UPDATE_SHARE = 0.01
OF_PEER = 0.6  # most of the bytes of XOR + zstd -1
#: Most of zstd -1's time to encode and to decode that the compiled form takes, by the case.
COMPILED = {
    "float32, lossless keyframe": (0.6, 0.7),
    "float32, all moved, lc-3": (0.6, 0.5),
    "float32, settled, 3 % coded": (0.3, 0.2),
}
ACTIONS = (("encode", "encode"), ("decode into", "decode, fresh"))  # of lccodec, and of peers


def goals(figures: Sequence[Figure]) -> list[Goal]:
    """Return all bounds, with what `figures` say of them."""
    return [goal for found in bounds(figures).values() for goal in found]


def bounds(figures: Sequence[Figure]) -> Mapping[str, list[Goal]]:
    """Return the bounds of each section that has some."""
    return {
        SECTION: _settled(figures),
        updates.SECTION: _updates(figures),
        forms.SECTION: _compiled(figures),
    }


def _compiled(figures: Sequence[Figure]) -> list[Goal]:
    found = []
    for case, shares in COMPILED.items():
        here = [f for f in figures if f.section == forms.SECTION and f.case.endswith(case)]
        for action, share in zip(("encode", "decode"), shares, strict=True):
            ours, zstd = (
                find(here, forms.SECTION, subject, action) for subject in (forms.COMPILED, "zstd -1")
            )
            found.append(Goal(f"{action}, {case}, over zstd -1's time", _times(ours, zstd), share))
    return found


def _settled(figures: Sequence[Figure]) -> list[Goal]:
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


def _updates(figures: Sequence[Figure]) -> list[Goal]:
    here = [f for f in figures if f.section == updates.SECTION and f.case.endswith(updates.SPREAD)]
    found = []
    for share, bits in UPDATE_BITS.items():
        of_share = [f for f in here if f.case.startswith(SIZE) and f" {share:.1%} changed" in f.case]
        ours = find(of_share, updates.SECTION, updates.OWN, "encode")
        peer = find(of_share, updates.SECTION, updates.PEER, "encode")
        what = f"update, {share:.1%} changed"
        found.append(Goal(f"{what}: bits a value", None if ours is None else ours.bits, bits, unit="bits"))
        times = None if ours is None or peer is None or not peer.bits else (ours.bits or 0) / peer.bits
        found.append(Goal(f"{what}: bytes over those of {updates.PEER}", times, OF_PEER))
        for action, copies in UPDATE_COPIES.items() if share == UPDATE_SHARE else ():
            timed = find(of_share, updates.SECTION, updates.OWN, action)
            found.append(
                Goal(f"{what}: {action}", None if timed is None else timed.ratio, copies, unit="copies")
            )
    return found


def _times(first: Figure | None, second: Figure | None) -> float | None:
    """Return the seconds of the first as a multiple of those of the second."""
    if first is None or second is None or first.seconds is None or second.seconds is None:
        return None
    return first.seconds / second.seconds

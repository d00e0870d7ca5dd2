"""Updates of bfloat16 weights of which little changes, exactly: what a follower receives.

**Made**: weights are normal numbers. A fine-tune with a small learning rate moves few of them, and
those mostly to the next number: a changed one moves by one step of its type (95 %), two, and so on,
up or down. What changes lies anywhere (*spread*), or in a fifth of the components of some rows
(*in rows*).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import lccodec
from lccodec.constants import ELEMENT_TYPES
from lccodec.element_types import BFLOAT16_BITS, from_ordered, narrow, to_ordered
from lccodec.frame.content import array_sum

from ..measure.figures import COPY, Figure
from ..measure.rounds import Job, measure
from .inputs import Pair, Walk
from .peers import lossless_peers
from .plan import Plan

__all__ = ["OWN", "PEER", "SECTION", "SHARES", "SPREAD", "update", "updates"]

SECTION = "updates"
SHARES = (0.003, 0.01, 0.05)  # of the weights that change
SPREAD, ROWS = "spread", "in rows"
PEER = "XOR + zstd -1"
OWN = "lossless"
ONE_STEP = 0.95  # of the changes
ROW = 1024  # components
ROW_SHARE = 0.2  # of a row that changes
(KIND,) = (kind for kind in ELEMENT_TYPES if kind.name == "bfloat16")

Missing = list[str]


def update(values: int, share: float, where: str) -> Pair:
    """Return weights after an update and before it, as components."""
    rng = np.random.default_rng(0)
    before = narrow(rng.standard_normal(values, np.float32) * np.float32(0.02))
    chosen = rng.random(values, np.float32)
    if where == ROWS:
        rows = -(-values // ROW)
        active = rng.permutation(rows) < round(rows * share / ROW_SHARE)
        places = np.flatnonzero((chosen < ROW_SHARE) & np.repeat(active, ROW)[:values])
    else:
        places = np.flatnonzero(chosen < share)
    steps = rng.geometric(ONE_STEP, places.size) * rng.choice([-1, 1], places.size)
    ordered = to_ordered(before)
    ordered[places] += steps.astype(np.int16).view(np.uint16)
    return from_ordered(ordered), before


def updates(plan: Plan, walk: Walk) -> tuple[list[Figure], Missing]:  # noqa: ARG001 - as all sections
    """Encode, and decode in place, into another array and fresh, beside XOR + zstd -1."""
    figures: list[Figure] = []
    zstd, missing = lossless_peers()
    for where in (SPREAD, ROWS):
        for share in SHARES:
            after, before = update(plan.updates, share, where)
            case = f"{after.size:,} bfloat16, {share:.1%} changed, {where}"
            figures += _measured(case, after, before, zstd.get("zstd -1"), plan.rounds)
    return figures, [PEER for name in missing if name == "zstd -1"]


def _measured(case: str, after: np.ndarray, before: np.ndarray, zstd: Any, rounds: int) -> list[Figure]:
    array, reference, out = (bits.view(BFLOAT16_BITS) for bits in (after, before, np.empty_like(after)))
    place = before.copy()
    frame = lccodec.encode(array, lccodec.Lossless(), reference)
    in_place = place.view(BFLOAT16_BITS)
    sizes = {OWN: len(frame)}
    jobs: dict[tuple[str, str], Job] = {
        (OWN, "encode"): Job(partial(lccodec.encode, array, lccodec.Lossless(), reference)),
        (OWN, "decode in place"): Job(
            partial(lccodec.decode, frame, in_place, in_place), partial(np.copyto, place, before)
        ),
        (OWN, "decode into"): Job(partial(lccodec.decode, frame, reference, out)),
        (OWN, "decode, fresh"): Job(partial(lccodec.decode, frame, reference, dtype="bits")),
        ("of it: the array sum", "decode in place"): Job(partial(array_sum, after)),
    }
    if zstd is not None:
        coded = zstd.encode(after ^ before)
        sizes[PEER] = len(coded)
        jobs[PEER, "encode"] = Job(lambda: zstd.encode(after ^ before))
        jobs[PEER, "decode in place"] = Job(_undone(zstd, coded, place), partial(np.copyto, place, before))
    timings = measure(jobs, partial(np.copyto, out.view(np.uint16), after), rounds)
    timings.pop(COPY)
    return [
        Figure(
            SECTION,
            case,
            subject,
            action,
            timing.ratio,
            typical=timing.typical,
            seconds=timing.seconds,
            values=after.size,
            bits=8 * sizes[subject] / after.size if subject in sizes else None,
            amount=sizes.get(subject),
            peer=subject != OWN,
            note=f"1/{after.nbytes / sizes[subject]:.0f} of the array" if subject in sizes else "",
        )
        for (subject, action), timing in timings.items()
    ]


def _undone(zstd: Any, coded: Any, place: np.ndarray) -> Callable[[], object]:
    """Return a call that applies a coded difference to its reference, in place."""

    def apply() -> object:
        return np.bitwise_xor(place, np.frombuffer(zstd.decode(coded, place.size), place.dtype), out=place)

    return apply

"""Both forms of the loops in one run: NumPy and compiled, in turns, beside zstd -1 and other peers.

The weights are normal numbers, and move by normal steps. Where Numba is not installed, only the
NumPy form is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

import lccodec
from lccodec import loops
from lccodec.element_types import BFLOAT16_BITS, narrow

from ..measure.figures import COPY, Figure
from ..measure.rounds import Job, Timing, measure
from .inputs import Walk
from .peers import lossless_peers
from .plan import Plan
from .updates import update

__all__ = ["COMPILED", "NUMPY", "SECTION", "forms"]

SECTION = "forms"
NUMPY, COMPILED = "lccodec, NumPy", "lccodec, compiled"
STEP = 1e-4  # standard deviation of what a weight moves
SPREAD = 0.02  # of the weights
MOVED = 0.33  # of the weights, where some move

Missing = list[str]
Case = tuple[str, np.ndarray, lccodec.Quantizer, np.ndarray | None]


def cases(values: int) -> Iterator[Case]:
    """Yield arrays of so many values: a name, the array, a quantizer, and the reference."""
    rng = np.random.default_rng(0)
    before = rng.standard_normal(values, np.float32) * np.float32(SPREAD)
    steps = rng.standard_normal(values, np.float32) * np.float32(STEP)
    after, few = before + steps, before + steps * (rng.random(values, np.float32) < MOVED)
    yield "float32, lossless keyframe", before, lccodec.Lossless(), None
    yield "bfloat16, lossless keyframe", narrow(before).view(BFLOAT16_BITS), lccodec.Lossless(), None
    new, old = (bits.view(BFLOAT16_BITS) for bits in update(values, 0.01, "spread"))
    yield "bfloat16, 1 % changed, lossless", new, lccodec.Lossless(), old
    yield "float32, all moved, lc-3", after, lccodec.ExponentBuckets(3), before
    yield "float32, a third moved, lc-3", few, lccodec.ExponentBuckets(3), before
    yield "float32, settled, 3 % coded", after, lccodec.UniformDeadzone(share=0.03), before


def forms(plan: Plan, walk: Walk) -> tuple[list[Figure], Missing]:  # noqa: ARG001 - as all sections
    """Encode and decode in both forms, and by zstd -1; a keyframe by all lossless peers."""
    figures: list[Figure] = []
    missing: dict[str, None] = {}
    for case in cases(plan.updates):
        found, absent = _measured(*case, plan.rounds)
        figures += found
        missing |= dict.fromkeys(absent)
    return figures, list(missing)


def _by_numpy(call: Callable[[], object]) -> object:
    with loops.numpy_forms():
        return call()


def _measured(
    name: str, array: np.ndarray, quantizer: lccodec.Quantizer, reference: np.ndarray | None, rounds: int
) -> tuple[list[Figure], Missing]:
    peers, missing = lossless_peers("float32" if array.dtype == np.float32 else "bfloat16")
    if reference is not None:
        peers = {peer: coder for peer, coder in peers.items() if peer == "zstd -1"}
    words, out = array.view(f"u{array.itemsize}"), np.empty_like(array)
    frame = lccodec.encode(array, quantizer, reference)
    encode = partial(lccodec.encode, array, quantizer, reference)
    decode = partial(lccodec.decode, frame, reference, out)
    sizes = {NUMPY: len(frame), COMPILED: len(frame)}
    jobs = {
        (NUMPY, "encode"): Job(partial(_by_numpy, encode)),
        (NUMPY, "decode"): Job(partial(_by_numpy, decode)),
    }
    if _is_compiled(encode, decode):
        jobs |= {(COMPILED, "encode"): Job(encode), (COMPILED, "decode"): Job(decode)}
    for peer, coder in peers.items():
        given = array if array.dtype == np.float32 else words
        coded = coder.encode(given)
        sizes[peer] = len(coded)
        jobs[peer, "encode"] = Job(partial(coder.encode, given))
        jobs[peer, "decode"] = Job(partial(coder.decode, coded, array.size))
    timings = measure(jobs, partial(np.copyto, out.view(words.dtype), words), rounds)
    timings.pop(COPY)
    figures = []
    for (subject, action), timing in timings.items():
        shares = [f"{each} {_over_zstd(timings, subject, each)}" for each in ("encode", "decode")]
        figures.append(
            Figure(
                SECTION,
                f"{array.size:,} {name}",
                subject,
                action,
                timing.ratio,
                typical=timing.typical,
                seconds=timing.seconds,
                values=array.size,
                bits=8 * sizes[subject] / array.size,
                amount=sizes[subject],
                peer=subject not in (NUMPY, COMPILED),
                note=f"of zstd -1: {', '.join(shares)}" if "zstd -1" in peers else "",
            )
        )
    return figures, missing


def _over_zstd(timings: Mapping[tuple[str, str], Timing], subject: str, action: str) -> str:
    zstd = timings.get(("zstd -1", action))
    return "-" if zstd is None else f"{timings[subject, action].seconds / zstd.seconds:.2f}"


def _is_compiled(*calls: Callable[[], Any]) -> bool:
    """Return whether the compiled form runs, once it had the time to be ready."""
    for call in calls:
        call()
    return lccodec.kernels() == "numba"

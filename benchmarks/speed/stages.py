"""Where each nanosecond goes: calls under cProfile, their time by stage of the codec.

Rules: the library knows nothing of it. A function named in `STAGES` begins a stage; what it calls,
NumPy included, belongs to its stage unless it begins one itself. cProfile delays each call by about
a microsecond, which is why the unprofiled time stands beside the sum.
"""

from __future__ import annotations

import cProfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import lccodec

from ..measure.figures import COPY, NANOSECONDS, Figure
from ..measure.rounds import Job, measure
from .arrays import QUANTIZERS
from .chains import POLICIES, DeltaSaves, copier, restore_step, save_keyframe
from .inputs import DEPTH, Walk
from .plan import Plan
from .savers import remove
from .tensors import SMALL, small

__all__ = ["STAGES", "TOTALS", "profile", "stage_seconds"]

REST, ALL, UNPROFILED = "the rest", "all", "all, without the profiler"
MOST_ROUNDS = 3  # with the profiler, and as many without
LEAST = 5e-12  # seconds a value that are shown
TOTALS = (ALL, UNPROFILED, COPY)  # rows that are no stages

FIT = "fitting the quantizer"
FIND = "reading, subtracting, searching outside the dead zone"
QUANTIZE = "quantizing, values as decoded"
RUNS = "places, gaps, choice of a form"
HUFFMAN = "Huffman code"
APPLY = "applying values to the reference"
PLANES = "byte planes"
SUM, CRC, SHA = "array sum", "CRC-32", "SHA-256"
FILES, SYNC, NAMES = "reading and writing files", "syncing files", "skeleton, manifest, names, roles"
EQUAL, GATHER = "finding arrays that did not change", "gathering small arrays"

#: Stage of each module of lccodec, or of one function; ``None`` where it is that of the caller.
STAGES: Mapping[str, str | None] = {
    "quantizers/residual": FIND,
    "quantizers/grid": FIT,
    "quantizers/uniform": FIT,
    "quantizers/grid.symbols": None,
    "quantizers/exponent": FIT,
    "quantizers/exponent.symbols": None,
    "quantizers/clusters": FIT,
    "quantizers/clusters.symbols": None,
    "quantizers/logarithmic": FIT,
    "frame/codebook._quantize_piece": QUANTIZE,
    "frame/content.array_sum": SUM,
    "entropy/stream_writer": RUNS,
    "entropy/stream_reader": RUNS,
    "entropy/classes": RUNS,
    "entropy/runs": None,
    "entropy/lanes": HUFFMAN,
    "frame/planes": PLANES,
    "frame/codebook": APPLY,
    "frame/codebook.write_block": None,
    "chain/save/plan._is_unchanged": EQUAL,
    "chain/read/replay.joined": GATHER,
    "chain/save/plan.make_plan": GATHER,
    "container/manifest": NAMES,
    "container/checkpoint": NAMES,
    "container/tree": NAMES,
    "policy/roles": NAMES,
}
#: The same of functions written in C, by a part of their names.
BUILTINS: Mapping[str, str] = {
    "zlib.crc32": CRC,
    "sha256": SHA,
    "_hashlib.HASH": SHA,
    "posix.write": FILES,
    "posix.read": FILES,
    "posix.pread": FILES,
    "posix.open": FILES,
    "posix.fsync": SYNC,
}
PACKAGE = Path(lccodec.__file__).parent

Code = tuple[str, int, str]  # file, line and name, as cProfile has them
Missing = list[str]


def _stage(code: Code) -> str | None:
    """Return the stage that a function begins, or ``None``."""
    file, _, name = code
    if file == "~":
        return next((stage for part, stage in BUILTINS.items() if part in name), None)
    if not Path(file).is_relative_to(PACKAGE):
        return None
    module = Path(file).relative_to(PACKAGE).with_suffix("").as_posix()
    return STAGES.get(f"{module}.{name}", STAGES.get(module))


def stage_seconds(profile: cProfile.Profile) -> dict[str, float]:
    """Return the seconds of each stage of a finished profile; they add up to its functions' own."""
    profile.create_stats()
    stats: Mapping[Code, Any] = profile.stats  # type: ignore[attr-defined]
    known: dict[Code, dict[str, float]] = {}

    def shares(code: Code, above: frozenset[Code]) -> dict[str, float]:
        """Return how a function's time is divided among stages, by who called it for how long."""
        if code in known:
            return known[code]
        stage = _stage(code)
        callers = {c: numbers for c, numbers in stats[code][4].items() if c not in above and c in stats}
        if stage is not None or not callers:
            found = {stage or REST: 1.0}
        else:
            found = {}
            total = sum(numbers[3] for numbers in callers.values()) or 1.0
            for caller, numbers in callers.items():
                for name, share in shares(caller, above | {code}).items():
                    found[name] = found.get(name, 0.0) + share * numbers[3] / total
        if not above:
            known[code] = found
        return found

    seconds: dict[str, float] = {}
    for code, (_, _, own, _, callers) in stats.items():
        stage = _stage(code)
        parts = [({stage: 1.0}, own)] if stage is not None else []
        if stage is None:
            parts = [(shares(caller, frozenset()), numbers[2]) for caller, numbers in callers.items()]
            parts.append(({REST: 1.0}, own - sum(numbers[2] for numbers in callers.values())))
        for divided, time in parts:
            for name, share in divided.items():
                seconds[name] = seconds.get(name, 0.0) + share * time
    return seconds


def _profiled(job: Job, rounds: int) -> dict[str, float]:
    """Return the seconds of each stage, in the round that took least."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        if job.prepare is not None:
            job.prepare()
        profile = cProfile.Profile()
        profile.runcall(job.run)
        found = stage_seconds(profile)
        if not best or sum(found.values()) < sum(best.values()):
            best = found
    return best


def _figures(
    case: str, jobs: Mapping[str, Job], values: int, copy: Callable[[], object], rounds: int
) -> list[Figure]:
    """Return a table: a column for each job, a row for each stage, nanoseconds a value."""
    rounds = min(rounds, MOST_ROUNDS)
    timings = measure(jobs, copy, rounds)
    columns = {name: _profiled(job, rounds) for name, job in jobs.items()}
    figures = []

    def add(stage: str, column: str, seconds: float) -> None:
        ratio = seconds / values * 1e9
        figures.append(
            Figure(
                "profile",
                case,
                stage,
                column,
                ratio,
                base=NANOSECONDS,
                seconds=seconds,
                values=values,
                peer=True,
            )
        )

    order = dict.fromkeys([*STAGES.values(), *BUILTINS.values(), REST])
    for stage in (name for name in order if name is not None):
        for name, column in columns.items():
            if column.get(stage, 0) >= LEAST * values:
                add(stage, name, column[stage])
    for name, column in columns.items():
        add(ALL, name, sum(column.values()))
        add(UNPROFILED, name, timings[name].seconds)
        add(COPY, name, timings[COPY].seconds)
    return figures


def profile(plan: Plan, walk: Walk) -> tuple[list[Figure], Missing]:
    """Encoding and decoding of real differences, saving and restoring of states, by stage."""
    figures: list[Figure] = []
    size = max(plan.sizes)
    array, reference = walk.pair(size)
    out = np.empty_like(array)
    encode, decode = {}, {}
    for name, quantizer in QUANTIZERS.items():
        frame = lccodec.encode(array, quantizer, reference)
        encode[name] = Job(partial(lccodec.encode, array, quantizer, reference))
        decode[name] = Job(partial(lccodec.decode, frame, reference, out))
    about = f"{size:,} float32, {walk.source}; {NANOSECONDS}"
    for action, jobs in (("encode", encode), ("decode into", decode)):
        figures += _figures(f"{action}, {about}", jobs, size, partial(np.copyto, out, array), plan.rounds)
    return figures + _chains(plan, walk), []


def _chains(plan: Plan, walk: Walk) -> list[Figure]:
    states = tuple(walk.state(step, plan.chain, plan.tensor) for step in (0, 1))
    smalls = tuple(small(walk, step, plan.many) for step in (0, 1))
    with TemporaryDirectory(dir=plan.directory) as directory:
        root = Path(directory)
        save = {p: Job(DeltaSaves(root / p, p, states).save) for p in POLICIES}
        deep = root / "deep"
        with lccodec.Chain(deep, policy="lc-3", newest="history") as chain:
            for step in range(DEPTH):
                chain.save(step, walk.state(len(walk.layer) - DEPTH + step, plan.chain, plan.tensor))
            deepest = max(chain.steps, key=lambda step: chain.info(step).deltas)
        restore = {
            action: Job(partial(restore_step, deep, step))
            for action, step in (("keyframe", 0), ("1 delta", 1), ("deepest", deepest))
        }
        keyframe = root / "keyframe"
        many = {
            "save keyframe": Job(partial(save_keyframe, keyframe, smalls[0]), partial(remove, keyframe)),
            "save lc-3": Job(DeltaSaves(root / "many", "lc-3", smalls).save),
            "load lc-3": Job(partial(restore_step, root / "many", 1)),
        }
        about = f"{4 * plan.chain / 1e6:,.0f} MB in {len(states[0])} float32 arrays, {walk.source}"
        figures = []
        for case, jobs, state in (
            (f"Chain.save of {about}", save, states[0]),
            (f"Chain.restore of {about}, lc-3", restore, states[0]),
            (f"small arrays, {plan.many:,} of {SMALL:,} float32", many, smalls[0]),
        ):
            values = sum(a.size for a in state.values())
            figures += _figures(f"{case}; {NANOSECONDS}", jobs, values, copier(state), plan.rounds)
    return figures

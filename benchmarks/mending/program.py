"""Parity of 2 files over a group of 16; protecting and repairing a chain; and recovery."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np

import lccodec
from lccodec.chain.mend.parity_folder import bands
from lccodec.container.parity import Layout, Member
from lccodec.parity import Block, encode, rebuild

from ..measure.goals import Goal, summary, table
from ..measure.rounds import Job, measure
from .loop import Waits, measure_loop, waits_table
from .ranks import ranks_table

__all__ = ["loop_goals", "main", "measure_arithmetic", "measure_chain", "measure_recovery"]

FILES = 16
PARITY = 2
LOST = (3, 9)


def measure_arithmetic(size: int, rounds: int) -> list[Goal]:
    """Time making the parity of a group of `size` bytes, and two of its files from it."""
    length = size // FILES // 4096 * 4096
    rng = np.random.default_rng(0)
    data = {j: np.frombuffer(bytearray(rng.bytes(length)), np.uint8) for j in range(FILES)}
    parity = {i: np.zeros(length, np.uint8) for i in range(PARITY)}
    found = {j: np.zeros(length, np.uint8) for j in LOST}
    left = {j: block for j, block in data.items() if j not in LOST}
    layout = Layout(4096, length // 4096, PARITY, PARITY, True, (Member("exact.lcc.h5", length, bytes(32)),))
    target = {j: np.zeros(length, np.uint8) for j in data}

    def parts(blocks: dict[int, Block], row: int, rows: int) -> dict[int, Block]:
        span = slice(row * layout.block, (row + rows) * layout.block)
        return {number: block[span] for number, block in blocks.items()}

    def make() -> None:
        for band in bands(layout):
            encode(parts(data, *band), parts(parity, *band))

    def mend() -> None:
        for band in bands(layout):
            rebuild(parts(left, *band), parts(parity, *band), parts(found, *band))

    def copy() -> None:
        for j, block in data.items():
            np.copyto(target[j], block)

    times = measure({"encode": Job(make), "rebuild": Job(mend)}, copy, rounds)
    for j in LOST:
        if not np.array_equal(found[j], data[j]):
            raise RuntimeError("what was rebuilt is not what was lost")
    what = f"{FILES} files of {length / 1e6:.0f} MB, {PARITY} of parity"
    return [
        Goal(f"encode: {what}", times["encode"].ratio, 1 / 0.2, 2.0, "copies"),
        Goal(f"rebuild {len(LOST)}: {what}", times["rebuild"].ratio, 1 / 0.15, 2.0, "copies"),
    ]


def measure_chain(directory: Path, size: int) -> list[Goal]:
    """Measure the bytes of parity of a chain of `size` bytes, and the memory that it takes."""
    numbers = np.random.default_rng(0).integers(0, 2**32, size // FILES // 4, np.uint32)
    with lccodec.Chain(directory, "lossless", keyframe_every=0) as chain:
        for step in range(FILES):
            chain.save(step, {"w": numbers + np.uint32(step)})
        goals = []
        for redundancy in (PARITY, "5%"):
            tracemalloc.start()
            made = chain.protect(redundancy)
            memory = tracemalloc.get_traced_memory()[1] / (1 << 20)
            tracemalloc.stop()
            largest = max((directory / name).stat().st_size for name in made.files)
            asked = PARITY * largest if redundancy == PARITY else 0.05 * made.bytes
            goals.append(Goal(f"bytes of parity, {redundancy}", made.parity_bytes / asked, 1.02))
            goals.append(Goal(f"memory of protect, {redundancy}", memory, 64, unit="MiB"))
        for name in made.files[:1]:
            data = bytearray((directory / name).read_bytes())
            data[len(data) // 2] ^= 1
            (directory / name).write_bytes(data)
        tracemalloc.start()
        found = chain.repair()
        goals.append(Goal("memory of repair", tracemalloc.get_traced_memory()[1] / (1 << 20), 64, unit="MiB"))
        tracemalloc.stop()
    if found.mended != made.files[:1] or lccodec.validate(directory):
        raise RuntimeError("the chain is not mended")
    return goals


def measure_recovery(directory: Path, size: int, rounds: int) -> list[Goal]:
    """Time restoring a state of `size` bytes from a mirror alone, beside the chain's own files."""
    numbers = np.random.default_rng(0).standard_normal((16, size // 64), np.float32)
    state = {f"layer {i}": numbers[i] for i in range(16)}
    run, mirror = directory / "run", directory / "mirror"
    with lccodec.Chain(run, "lossless", newest="exact", mirror=mirror) as chain:
        chain.save(0, state)

    def seconds(place: Path, **options: object) -> float:
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lccodec.LccodecWarning)
            found = lccodec.Chain(place, **options).restore()  # type: ignore[arg-type]
        took = time.perf_counter() - start
        if not np.array_equal(found["layer 3"], numbers[3]):
            raise RuntimeError("what was restored is not what was saved")
        return took

    times = [(seconds(directory / "empty", mirror=mirror), seconds(run)) for _ in range(rounds + 1)][1:]
    recovered, restored = (min(each) for each in zip(*times, strict=True))
    what = f"restore {size / 1e9:.2g} GB from a mirror alone, over restoring it from the chain"
    return [Goal(what, recovered / restored, 1.5)]


def loop_goals(found: dict[str, Waits]) -> list[Goal]:
    """Return how long a loop waits with parity, over the longer of the two loops without."""
    medians = {name: statistics.median(waits.calls) for name, waits in found.items()}
    without = max(median for name, median in medians.items() if name != "with parity")
    return [Goal("a loop waits for a save with parity, over without", medians["with parity"] / without, 1.1)]


def main() -> int:
    """Measure, print the tables, and return 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="an eighth of the bytes, in fewer rounds")
    parser.add_argument("--ranks", action="store_true", help="only parity of the files of ranks")
    arguments = parser.parse_args()
    quick: bool = arguments.quick
    if arguments.ranks:
        print(ranks_table(10**8 // (8 if quick else 1), 3))
        return 0
    goals = measure_arithmetic(1 << (27 if quick else 30), 3 if quick else 7)
    with tempfile.TemporaryDirectory() as place:
        goals += measure_chain(Path(place) / "run", 1 << (27 if quick else 30))
        goals += measure_recovery(Path(place) / "recovery", 1 << (27 if quick else 30), 3 if quick else 7)
        waits = measure_loop(Path(place), 1 << (23 if quick else 26), 8, 3 if quick else 6, 0.5)
    goals += loop_goals(waits)
    print(table(goals))
    print(waits_table(waits))
    print(summary(goals))
    return int(any(not goal.is_met for goal in goals))

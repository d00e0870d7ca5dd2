"""A loop that saves in the background, with and without parity: how long it waits."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import lccodec

__all__ = ["Waits", "measure_loop", "waits_table"]

ARRAYS = 16
#: The arms of a round, by name: the parity of each. Two are the same, to show the noise.
ARMS: dict[str, int | None] = {"without": None, "with parity": 2, "without, again": None}


@dataclass
class Waits:
    """How long a loop waited in its saves, and how long its own work took, in seconds."""

    calls: list[float]
    work: list[float]


def measure_loop(directory: Path, size: int, saves: int, rounds: int, seconds: float) -> dict[str, Waits]:
    """Run loops of some saves of `size` bytes, with `seconds` of work between two, in turn.

    The first save of each loop, which starts the worker, is left out. The parity of a loop is
    complete before the next loop begins.
    """
    numbers = np.random.default_rng(0).standard_normal((ARRAYS, size // 4 // ARRAYS), np.float32)
    state = {f"layer {i}": numbers[i] for i in range(ARRAYS)}
    matrix = np.random.default_rng(1).standard_normal((256, 256))
    count = _count(matrix, seconds)
    found = {name: Waits([], []) for name in ARMS}
    for number in range(rounds + 1):
        names = list(ARMS) if number % 2 else list(reversed(ARMS))
        for name in names:
            waits = Waits([], [])
            place = directory / "run"
            with lccodec.Chain(place, "lossless", newest="exact", parity=ARMS[name]) as chain:
                for step in range(saves + 1):
                    numbers[:, :1000] += 1
                    waits.calls.append(_timed(lambda step=step, chain=chain: chain.save_async(step, state)))
                    waits.work.append(_timed(lambda: _work(matrix, count)))
            shutil.rmtree(place)
            if number:  # the first round warms up
                found[name].calls += waits.calls[1:]
                found[name].work += waits.work[1:]
    return found


def _timed(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _work(matrix: Any, count: int) -> None:
    """What a training step does: small calls, which need the interpreter's lock again and again."""
    for _ in range(count):
        matrix @ matrix


def _count(matrix: Any, seconds: float) -> int:
    """Return how many products take some seconds."""
    return max(1, round(seconds / (min(_timed(lambda: _work(matrix, 20)) for _ in range(5)) / 20)))


def waits_table(found: dict[str, Waits]) -> str:
    """Return the medians and the worst of all loops as a markdown table, in milliseconds."""
    lines = [
        "| loop | saves | waits, median | 90 % | worst | work, median | worst |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, waits in found.items():
        cells = [statistics.median(waits.calls), _most(waits.calls), max(waits.calls)]
        cells += [statistics.median(waits.work), max(waits.work)]
        shown = " | ".join(f"{1e3 * cell:.1f} ms" for cell in cells)
        lines.append(f"| {name} | {len(waits.calls)} | {shown} |")
    return "\n".join(lines)


def _most(values: Sequence[float]) -> float:
    """Return what nine of ten values are below."""
    return sorted(values)[len(values) * 9 // 10]

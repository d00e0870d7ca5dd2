"""One whole history of 50 checkpoints of the GPT of 3.2 M parameters: bytes, saves and restores.

The states come from the disk, so that all chains meet the same ones. Times are ratios: of a save,
what lies within a group included, over one of a chain without groups; of the slowest restore of any
step over that of the deepest step of that chain.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Final

import lccodec

from ..networks.tasks import FIRST_MOMENT, SECOND_MOMENT, WEIGHT, task
from ..networks.trajectories import Trajectory, trajectory

CHECKPOINTS: Final = 50
EVERY: Final = 20
SIZES: Final = (0, 4, 8, 16)
ROUNDS: Final = 2  # of all saves, in turns: the faster counts
REPEATS: Final = 3  # of each restore: the fastest counts


def history(data: Path, cache: Path) -> str:
    """Return the table of a history, in groups of several sizes and coded anew as a whole."""
    states = trajectory(task("gpt", data), cache, CHECKPOINTS, EVERY)
    lines = [
        "| history | deltas and what is between | whole history | save | slowest restore |",
        "|---|---:|---:|---:|---:|",
    ]
    plain: list[float] = []  # seconds of a save and of a restore

    def add(title: str, ratios: tuple[float, float], *seconds: float) -> None:
        plain.extend(seconds if not plain else ())
        cells = [f"{ratio:.0f}x" for ratio in ratios]
        cells += [f"{own / other:.2f}" for own, other in zip(seconds, plain, strict=True)]
        lines.append(f"| {title} | {' | '.join(cells)} |")

    with tempfile.TemporaryDirectory() as name:
        rounds = [[_save(states, Path(name, f"{i}-{size}"), size) for size in SIZES] for i in range(ROUNDS)]
        for size, *times in zip(SIZES, *rounds, strict=True):
            ratios, restored = _measure(Path(name, f"0-{size}"))
            add(f"`Chain(hindsight={size})`" if size else "`balanced`", ratios, min(times), restored)
    with tempfile.TemporaryDirectory() as name:
        _save(states, Path(name, "run"), 0, "lossless")
        for size in SIZES[1:]:
            target = Path(name, str(size))
            begin = time.perf_counter()
            with lccodec.Chain(Path(name, "run")) as chain:
                chain.compact("balanced", hindsight=size, directory=target)
            taken = (time.perf_counter() - begin) / CHECKPOINTS
            ratios, restored = _measure(target)
            add(f"`compact(hindsight={size})` of a lossless one", ratios, taken, restored)
    return "\n".join(lines)


def _save(states: Trajectory, directory: Path, size: int, policy: str = "balanced") -> float:
    """Save a history; return the seconds of a save, in the mean."""
    seconds = 0.0
    parts = (WEIGHT, "weight"), (FIRST_MOMENT, "first_moment"), (SECOND_MOMENT, "second_moment")
    roles = {f"{part}~1*": role for part, role in parts}  # "~1" is a "/" within a name
    with lccodec.Chain(directory, policy, newest="exact", hindsight=size, roles=roles) as chain:
        for iteration, state in states.states():
            begin = time.perf_counter()
            chain.save(iteration, state)
            seconds += time.perf_counter() - begin
        begin = time.perf_counter()
    return (seconds + time.perf_counter() - begin) / len(states.iterations)


def _measure(directory: Path) -> tuple[tuple[float, float], float]:
    """Return both ratios of a history, and the seconds of the slowest restore of any step."""
    chain = lccodec.Chain(directory)
    infos = [chain.info(step) for step in chain.steps]
    whole = float(infos[0].nbytes)
    others = [info.file_bytes for info in infos if info.parent is not None]
    ratios = whole / fmean(others), whole / fmean(info.file_bytes for info in infos)
    deepest = sorted(infos, key=lambda info: info.deltas)[-3:]
    return ratios, max(_restore(chain, info.step or 0) for info in deepest)


def _restore(chain: lccodec.Chain, step: int) -> float:
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        chain.restore(step, exact=False)
        times.append(time.perf_counter() - begin)
    return min(times)

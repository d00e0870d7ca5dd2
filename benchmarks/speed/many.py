"""Many checkpoints of a small model in one directory: what grows with their number, and how fast.

The bounds are those of 1,000 checkpoints on one core. A larger number shows what grows with it.
Then many tiny arrays in one checkpoint: how long a save in the background blocks its caller.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from click.testing import CliRunner

import lccodec
from lccodec.cli.listing import ls

#: Seconds that each action may take with 1,000 checkpoints; None where there is no bound.
BOUNDS: Final[dict[str, float | None]] = {
    "save the last of them": None,
    "open, and list the steps": 0.1,
    "open, and restore the latest": 0.1,
    "ls": 0.3,
    "python -m lccodec ls": 0.3,
    "python -c 'import numpy'": None,
    "prune nine of ten": 5.0,
    "save_async of 100 tiny arrays a checkpoint": 0.6,
    "np.copyto of each of them": None,
}
BOUND_OF: Final = 1000  # checkpoints
ROUNDS: Final = 5
TINY_ARRAYS: Final = 100  # for each checkpoint
TINY_VALUES: Final = 10


def state(step: int) -> dict[str, Any]:
    """Return a state of 2,480 values in eight arrays, which moves a little at each step."""
    rng = np.random.default_rng(0)
    start = [rng.standard_normal((30, 20) if i % 2 else 20).astype("f4") for i in range(8)]
    moved = np.random.default_rng(step)
    layers = [array + 1e-3 * step * moved.standard_normal(array.shape).astype("f4") for array in start]
    return {f"layer{i}": {"bias": layers[2 * i], "weight": layers[2 * i + 1]} for i in range(4)}


def seconds(action: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the seconds of the best round."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        found.append(time.perf_counter() - start)
    return min(found)


def measure(directory: Path, count: int) -> dict[str, float]:
    """Save a chain, and return the seconds of each action."""
    with lccodec.Chain(directory, "lc-3", newest="history") as chain:
        for step in range(0, 10 * (count - 1), 10):
            chain.save(step, state(step))
        found = {"save the last of them": seconds(lambda: chain.save(10 * count, state(count)), 1)}
    found["open, and list the steps"] = seconds(lambda: lccodec.Chain(directory).steps)
    found["open, and restore the latest"] = seconds(lambda: lccodec.Chain(directory).restore())
    runner = CliRunner()
    found["ls"] = seconds(lambda: runner.invoke(ls, [str(directory)], catch_exceptions=False))
    command = [sys.executable, "-m", "lccodec", "ls", str(directory)]
    root = str(Path(lccodec.__file__).parents[1])
    found["python -m lccodec ls"] = seconds(lambda: subprocess.check_output(command, cwd=root))
    numpy = [sys.executable, "-c", "import numpy"]
    found["python -c 'import numpy'"] = seconds(lambda: subprocess.check_output(numpy))
    keep = lccodec.Keep(latest=count // 10)
    found["prune nine of ten"] = seconds(lambda: lccodec.Chain(directory).prune(keep), 1)
    return found


def tiny(directory: Path, count: int) -> dict[str, float]:
    """Return the seconds that `save_async` blocks for so many tiny arrays, and of copies."""
    rng = np.random.default_rng(0)
    names = [f"layer{number // 4}/block.w{number % 4}.weight" for number in range(count)]
    state = {name: rng.standard_normal(TINY_VALUES).astype("f4") for name in names}
    targets = [np.empty_like(array) for array in state.values()]
    blocked = []
    with lccodec.Chain(directory, "lossless") as chain:
        for step in range(ROUNDS):
            start = time.perf_counter()
            future = chain.save_async(step, state)
            blocked.append(time.perf_counter() - start)
            future.result()

    def copies() -> None:
        for target, array in zip(targets, state.values(), strict=True):
            np.copyto(target, array)

    call, copy = list(BOUNDS)[-2:]
    return {call: min(blocked), copy: seconds(copies)}


def main(arguments: list[str] | None = None) -> int:
    """Print the seconds; return 1 if one is above its bound."""
    parser = argparse.ArgumentParser(prog="scale.py", description=__doc__)
    parser.add_argument("--checkpoints", type=int, default=BOUND_OF)
    count = parser.parse_args(arguments).checkpoints
    directory = Path(tempfile.mkdtemp(prefix="lccodec-scale-"))
    try:
        found = measure(directory / "run", count) | tiny(directory / "tiny", TINY_ARRAYS * count)
    finally:
        shutil.rmtree(directory)
    print(f"| {count:,} checkpoints | seconds | bound |\n|---|---|---|")
    over = False
    for action, taken in found.items():
        bound = BOUNDS[action] if count == BOUND_OF else None
        over |= bound is not None and taken > bound
        print(f"| {action} | {taken:.3f} | {'-' if bound is None else f'{bound:g}'} |")
    return int(over)

"""What the adapters cost over the NumPy path, and what importing the package costs over NumPy.

Also what `load_into` costs over ``load_state_dict`` of the same modules and optimizers.

Rules: the same arrays as tensors through an adapter, and as NumPy's; medians of interleaved rounds,
in seconds of CPU. What an adapter does is so little that it is timed alone too: one save differs
more from the next. Import times are the least of new processes.

    python benchmarks/frameworks.py [--million 8] [--rounds 9]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import torch

import lccodec
from lccodec.adapters import jax as in_jax
from lccodec.adapters import torch as in_torch


def tensors(million: int) -> dict[str, Any]:
    """States of a module and its optimizer as in training: large arrays and many small ones."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    side = int((million * 1e6 / 4) ** 0.5)
    model = {f"{i}.weight": normal(side, side) for i in range(2)}
    model |= {f"{i}.bias": normal(side) for i in range(2, 200)}
    model["half"] = normal(side, side).bfloat16()
    return {
        "model": model,
        "optimizer": {"state": {0: {"exp_avg": normal(side, side), "step": torch.tensor(3.0)}}},
    }


def seconds_of(runs: list[Callable[[], object]], rounds: int) -> list[float]:
    """Return the median CPU seconds of each, interleaved; the first round warms up."""
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds + 1):
        for run, times in zip(runs, seconds, strict=True):
            start = time.process_time()
            run()
            times.append(time.process_time() - start)
    return [statistics.median(times[1:]) for times in seconds]


def resumption(million: int, rounds: int) -> str:
    """Return what `load_into` of a module and its optimizer costs, in words."""
    side, layers = 1024, max(1, round(million * 1e6 / 3 / 1024**2))

    def make(seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        model = torch.nn.Sequential(*(torch.nn.Linear(side, side) for _ in range(layers)))
        return {"model": model, "optimizer": torch.optim.AdamW(model.named_parameters())}

    saved, target = make(0), make(1)
    for parameter in saved["model"].parameters():
        parameter.grad = torch.ones_like(parameter)
    saved["optimizer"].step()
    state = {name: part.state_dict() for name, part in saved.items()}

    def own() -> None:
        for name, part in target.items():
            part.load_state_dict(state[name])

    usual, ours = seconds_of([own, lambda: in_torch.load_into(target, state)], rounds)
    more = most_bytes(lambda: in_torch.load_into(target, state))
    return (
        f"load_into   {ours * 1e3:6.2f} ms, {ours / usual:.2f} of load_state_dict's {usual * 1e3:.2f} ms, for"
        f" {layers * side * side * 12 / 1e9:.2f} GB; it takes {more / 1e6:.1f} MB more memory meanwhile"
    )


def most_bytes(run: Callable[[], object]) -> int:
    """Return how much more memory a process has, at most, while it runs something (on Linux)."""
    status = Path("/proc/self/status")

    def field(name: str) -> int:
        return int(next(line for line in status.read_text().splitlines() if line.startswith(name)).split()[1])

    Path("/proc/self/clear_refs").write_text("5")  # the high water mark begins anew
    before = field("VmRSS")
    run()
    return max(0, field("VmHWM") - before) * 1024


def import_seconds(statement: str, rounds: int) -> float:
    """Return the least CPU time of a new process that runs a statement."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    best = float("inf")
    for _ in range(rounds):
        before = used()
        subprocess.run([sys.executable, "-c", statement], check=True)
        best = min(best, used() - before)
    return best


def main(words: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--million", type=int, default=8, help="elements in all, in millions")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    state = tensors(options.million)
    arrays, metadata = in_torch.to_numpy(state)
    tree = in_jax.from_numpy(arrays, metadata)
    with tempfile.TemporaryDirectory() as directory:
        file, other = Path(directory, "a.lcc.h5"), Path(directory, "b.lcc.h5")
        in_torch.save_file(state, file)
        lccodec.save_file(arrays, other)

        def loaded() -> Any:
            return lccodec.load_file(other, dtype="bits")

        rows: dict[str, list[Callable[[], object]]] = {
            "torch save": [
                lambda: in_torch.to_numpy(state),
                lambda: lccodec.save_file(arrays, other),
                lambda: in_torch.save_file(state, file),
            ],
            "torch load": [
                lambda: in_torch.from_numpy(plain, metadata),
                loaded,
                lambda: in_torch.load_file(file),
            ],
            "jax save": [
                lambda: in_jax.to_numpy(tree),
                lambda: lccodec.save_file(arrays, other),
                lambda: in_jax.save_file(tree, file),
            ],
            "jax load": [
                lambda: jax.block_until_ready(in_jax.from_numpy(plain, metadata)),
                loaded,
                lambda: jax.block_until_ready(in_jax.load_file(file)),
            ],
        }
        plain = loaded()
        for name, runs in rows.items():
            own, numpy_path, whole = seconds_of(runs, options.rounds)
            print(
                f"{name:10}  adapter alone {own * 1e3:6.2f} ms, {own / numpy_path:5.2%} of the NumPy path's "
                f"{numpy_path:.3f} s; measured together {whole / numpy_path - 1:+.1%}"
            )
    print(resumption(options.million, options.rounds))
    bare, numpy, package = (
        import_seconds(statement, 3 * options.rounds)
        for statement in ("pass", "import numpy", "import lccodec")
    )
    print(
        f"import: python {bare:.3f} s, numpy {numpy - bare:.3f} s more, lccodec {package - numpy:.3f} s more"
    )

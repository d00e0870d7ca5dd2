"""What a save measures of its state, as a share of the save's time, by the processor's clock.

The functions of the save that measure are timed where they are called, in the same saves that are
timed whole. So what else a machine does meets both. A chain has the default options unless a row
says otherwise, and its files lie in a temporary directory.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np

import lccodec
from lccodec.chain.save import reference, saver
from lccodec.chain.save.measurement import Sampling

from ..measure.results import add_results, tell

BOUND: Final = 0.05  # of a save, with the default preset
PRESET: Final = "balanced"
POLICIES: Final = (PRESET, "lc-3", "lossless")
BETWEEN: Final = 1e-3  # learning rate of the steps between two saves

#: Functions that measure, or prepare it, by the object that has them.
MEASURING: Final = (
    (Sampling, "__init__"),
    (Sampling, "fits"),
    (reference.ValueReference, "look_back"),
    (saver.Measurement, "__init__"),
    (saver.Measurement, "figures"),
)

Shape = tuple[int, ...]
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A state whose saves are measured.

    Parameters
    ----------
    name
        Of its rows.
    shapes
        Those of the weights.
    moments
        Whether Adam's are saved with them.
    """

    name: str
    shapes: tuple[Shape, ...]
    moments: bool


LAYERS: Final = ((192, 192),) * 10 + ((768, 192),) * 3 + ((192,),) * 58
CASES: Final = (
    Case("1,000 weights of 64", ((64,),) * 1000, moments=False),
    Case("10 MB in 213 arrays, Adam", LAYERS, moments=True),
    Case("one weight of 4 million, Adam", ((2000, 2000),), moments=True),
)


@dataclass(frozen=True)
class Share:
    """Shares of the time of several saves that measuring takes, and seconds of the fastest."""

    least: float
    typical: float
    most: float
    save: float


def walk(case: Case) -> Iterator[dict[str, Any]]:
    """Yield the states of a made run: each moves by Adam's rule, with random gradients."""
    rng = np.random.default_rng(0)
    names = [f"layer{number}.weight" for number in range(len(case.shapes))]
    pairs = list(zip(names, case.shapes, strict=True))
    weight = {name: (rng.standard_normal(shape) / 20).astype("f4") for name, shape in pairs}
    first = {name: np.zeros(shape, "f4") for name, shape in pairs}
    second = {name: rng.lognormal(-12, 1.5, shape).astype("f4") for name, shape in pairs}
    while True:
        optimizer = {"exp_avg": dict(first), "exp_avg_sq": dict(second)} if case.moments else {}
        yield {"model": dict(weight), **optimizer}
        for name, shape in pairs:
            gradient = (rng.standard_normal(shape) * np.sqrt(second[name])).astype("f4")
            first[name] = (first[name] + gradient) / 2
            second[name] = (0.97 * second[name] + 0.03 * gradient**2).astype("f4")
            weight[name] = (weight[name] - BETWEEN * first[name] / np.sqrt(second[name])).astype("f4")


@contextmanager
def clocked() -> Iterator[list[float]]:
    """Let the functions that measure note their seconds in a list."""
    spent: list[float] = []

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            start = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                spent.append(time.thread_time() - start)

        return call

    patches = [mock.patch.object(owner, name, timed(getattr(owner, name))) for owner, name in MEASURING]
    for patch in patches:
        patch.start()
    try:
        yield spent
    finally:
        for patch in patches:
            patch.stop()


def share(case: Case, policy: str, newest: str, saves: int) -> Share:
    """Save that often, after a keyframe and a delta that warm up."""
    shares, seconds = [], []
    states = walk(case)
    with tempfile.TemporaryDirectory(prefix="lccodec-measuring-") as name, clocked() as spent:
        chain = lccodec.Chain(Path(name), policy, newest=newest, keyframe_every=1_000_000)  # type: ignore[arg-type]
        for step in range(saves + 2):
            state = next(states)
            spent.clear()
            gc.collect()
            start = time.process_time()
            chain.save(step, state)
            taken = time.process_time() - start
            if step > 1:
                shares.append(sum(spent) / taken)
                seconds.append(taken)
        chain.close()
    return Share(min(shares), statistics.median(shares), max(shares), min(seconds))


def main(arguments: list[str] | None = None) -> int:
    """Print the shares; return 1 if one is above its bound."""
    parser = argparse.ArgumentParser(prog="measuring.py", description=__doc__.splitlines()[0])
    parser.add_argument("--saves", type=int, default=15, help="of each row")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=POLICIES)
    add_results(parser)
    options = parser.parse_args(arguments)
    rows, over = [], False
    for case in CASES:
        for policy in options.policies:
            for newest in ("exact", "history"):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # small arrays are exact in lossy policies
                    found = share(case, policy, newest, options.saves)
                bounded = policy == PRESET and newest == "exact"
                over |= bounded and found.typical > BOUND
                state = ("met" if found.typical <= BOUND else "missed") if bounded else ""
                cells = (
                    case.name,
                    f"{policy}, {newest}",
                    f"{1e3 * found.save:.0f} ms",
                    f"{found.typical:.1%}",
                    f"{found.least:.1%} to {found.most:.1%}",
                    f"{BOUND:.0%}" if bounded else "",
                    state,
                )
                rows.append(f"| {' | '.join(cells)} |")
    head = "| state | policy, newest | a save | measuring, median | of all saves | must be | |"
    text = "\n".join([head, "|---|---|---:|---:|---|---:|---|", *rows])
    tell(text, "measuring.py", options.results)
    return int(over)

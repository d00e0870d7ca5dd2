"""Real weight updates in few bits: a GPT that is fine-tuned, and what one step changes of it.

The weights are trained in float32, as trainers do, and each step is rounded to bfloat16 or float8,
as engines get it. Most steps are too small to change a rounded weight. The learning rate is chosen
so that a given share of the weights changes in a step; what is used is counted, not that share.

One small network does not fill memory. So each array is that of many steps in a row, end to end:
before each step, and after it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from lccodec import BFLOAT16_BITS

from ..networks.tasks import Run, task

__all__ = ["Update", "make_update"]

Kind = Literal["bfloat16", "float8"]

TRAINED, TRAINED_QUICK = 300, 30  # iterations before the fine-tuning
SETTLED = 12  # iterations at the new learning rate before a share is measured
PROBES = 10  # of learning rates
LOWEST_RATE, HIGHEST_RATE = 1e-9, 1e-2
MAX_FLOAT8 = 448.0  # the largest float8_e4m3fn


@dataclass(frozen=True)
class Update:
    """Arrays before and after a step, by name.

    Parameters
    ----------
    kind
        The type that engines get.
    rate
        The learning rate.
    old, new
        bfloat16 as `BFLOAT16_BITS`, float8 as uint8.
    """

    kind: Kind
    rate: float
    old: dict[str, np.ndarray]
    new: dict[str, np.ndarray]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.old.values())

    @property
    def share(self) -> float:
        """The share of the values that differ."""
        return differing(self.old, self.new)

    @property
    def changed_bytes(self) -> int:
        """Bytes of the arrays in which something differs."""
        pairs = ((array, self.new[name]) for name, array in self.old.items())
        return sum(old.nbytes for old, new in pairs if not np.array_equal(_bits(old), _bits(new)))


def make_update(data: Path, kind: Kind, share: float, nbytes: int, *, quick: bool = False) -> Update:
    """Fine-tune so that about this share of the values changes in a step, for so many bytes."""
    torch.set_num_threads(1)
    run = _trained(data, quick)
    scales = {name: _scale(weight) for name, weight in run.parameters.items()}
    rate = _rate_of(run, kind, scales, share)
    tuned = _tuned(run, rate)
    before, pairs, total = _rounded(tuned, kind, scales), list[tuple[dict[str, np.ndarray], ...]](), 0
    while total < nbytes:
        tuned.advance(1, seed=1)
        after = _rounded(tuned, kind, scales)
        pairs.append((before, after))
        total += sum(array.nbytes for array in after.values())
        before = after
    old, new = ({name: np.concatenate([pair[i][name] for pair in pairs]) for name in before} for i in (0, 1))
    return Update(kind, rate, old, new)


RUNS: dict[tuple[Path, bool], Run] = {}


def _trained(data: Path, quick: bool) -> Run:
    """Return a network that was trained for a while; it is trained once."""
    if (data, quick) not in RUNS:
        run = Run(task("finetune", data, quick=quick))
        run.advance(TRAINED_QUICK if quick else TRAINED, seed=0)
        RUNS[data, quick] = run
    return RUNS[data, quick]


def _tuned(run: Run, rate: float) -> Run:
    """Return a copy that goes on at a learning rate, once its moments have settled."""
    tuned = copy.deepcopy(run)
    tuned.task = replace(run.task, learning_rate=rate)
    tuned.iteration += 1000  # past the iterations in which the rate rises
    tuned.advance(SETTLED, seed=1)
    return tuned


def _rate_of(run: Run, kind: Kind, scales: dict[str, float], share: float) -> float:
    """Return the learning rate at which a step changes this share of the values, by bisection."""
    low, high = LOWEST_RATE, HIGHEST_RATE
    for _ in range(PROBES):
        rate = float(np.sqrt(low * high))
        tuned = _tuned(run, rate)
        before = _rounded(tuned, kind, scales)
        tuned.advance(1, seed=1)
        low, high = (low, rate) if differing(before, _rounded(tuned, kind, scales)) > share else (rate, high)
    return rate


def _scale(weight: torch.Tensor) -> float:
    return MAX_FLOAT8 / max(float(weight.detach().abs().max()), 1e-12)


def _rounded(run: Run, kind: Kind, scales: dict[str, float]) -> dict[str, np.ndarray]:
    """Return the weights as engines get them, flat."""
    found = {}
    for name, parameter in run.parameters.items():
        weight = parameter.detach().flatten()
        if kind == "bfloat16":
            found[name] = weight.bfloat16().view(torch.int16).numpy().view(BFLOAT16_BITS).copy()
        else:
            scaled = (weight * scales[name]).to(torch.float8_e4m3fn)
            found[name] = scaled.view(torch.uint8).numpy().copy()
    return found


def differing(old: dict[str, np.ndarray], new: dict[str, np.ndarray]) -> float:
    """Return the share of values that differ."""
    changed = sum(int(np.count_nonzero(_bits(old[name]) != _bits(array))) for name, array in new.items())
    return changed / sum(array.size for array in new.values())


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}")

"""How much is measured: the loop, sizes of states, rounds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["FULL", "INTERVALS", "QUICK", "Plan"]

INTERVALS = (1, 5, 20)  # steps of training between two saves


@dataclass(frozen=True)
class Plan:
    """What one run measures.

    Parameters
    ----------
    steps
        Of training, in a segment of the loop for each of `INTERVALS`.
    loops
        Rounds of the loop.
    values
        Of the state that is saved and restored.
    large
        Values of the state whose first array is awaited.
    depth
        Deltas of the deep chains.
    many
        Arrays of 1,000 values.
    rounds
        Of all other measurements.
    small_network
        Whether the GPT is a small one.
    data
        Folder of the data sets.
    directory
        Where files are written; must exist.
    """

    steps: tuple[int, ...]
    loops: int
    values: int
    large: int
    depth: int
    many: int
    rounds: int
    small_network: bool = False
    data: Path = Path()
    directory: Path = Path()


FULL = Plan(
    steps=(10, 20, 60),
    loops=6,
    values=100_000_000,
    large=250_000_000,
    depth=32,
    many=1_000,
    rounds=5,
)
QUICK = Plan(
    steps=(3, 10, 20),
    loops=2,
    values=3_000_000,
    large=6_000_000,
    depth=4,
    many=100,
    rounds=2,
    small_network=True,
)

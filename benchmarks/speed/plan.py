"""How much is measured: sizes, shares, rounds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["FULL", "QUICK", "Plan"]


@dataclass(frozen=True)
class Plan:
    """What one run measures.

    Parameters
    ----------
    sizes
        Values of the arrays of real differences.
    sweep
        Values of the arrays of one zero share, and of one dtype.
    zero_shares
        Shares of differences that become 0.
    symbols
        For the Huffman stage.
    state
        Values of the state that is saved; in arrays of `tensor`.
    chain
        Values of the state that is restored from 32 deltas deep.
    tensor
        Values of an array of a state.
    checkpoint
        Tensors of 1 MiB in the checkpoint that one is read from.
    many
        Number of arrays of 1,000 values.
    updates
        Values of an array of which little changes.
    rounds
        Of every measurement; the best counts.
    settling
        Deltas of a chain of the GPT before those that are measured.
    small_network
        Whether the GPT is a small one.
    directory
        Where files are written; must exist.
    states
        File of the real states, or ``None``.
    data
        Folder of the data sets, or ``None``.
    """

    sizes: tuple[int, ...]
    sweep: int
    zero_shares: tuple[float, ...]
    symbols: int
    state: int
    chain: int
    tensor: int
    checkpoint: int
    many: int
    updates: int
    rounds: int
    settling: int
    small_network: bool = False
    directory: Path = Path()
    states: Path | None = None
    data: Path | None = None


FULL = Plan(
    sizes=(1_000_000, 16_000_000),
    sweep=4_000_000,
    zero_shares=(0.5, 0.8, 0.9, 0.95, 0.99, 0.999),
    symbols=16_000_000,
    state=100_000_000,
    chain=16_000_000,
    tensor=4_000_000,
    checkpoint=1024,
    many=10_000,
    updates=16_000_000,
    rounds=5,
    settling=24,
)
QUICK = Plan(
    sizes=(1_000_000,),
    sweep=500_000,
    zero_shares=(0.5, 0.9, 0.999),
    symbols=2_000_000,
    state=4_000_000,
    chain=500_000,
    tensor=500_000,
    checkpoint=64,
    many=200,
    updates=1_000_000,
    rounds=3,
    settling=4,
    small_network=True,
)

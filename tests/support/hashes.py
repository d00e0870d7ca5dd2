"""Chains that keep hashes, and small blocks, so that small arrays have several."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import Chain
from lccodec.chain.save import hash_reference
from lccodec.frame import encode as frames

from .tuning import tune

#: With `small_blocks`, an array of more elements has several blocks of `BLOCK`.
ONE_BLOCK, BLOCK = 1 << 15, 1 << 14


def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut arrays into small blocks: in ordinary saves, and in those against hashes."""
    tune(monkeypatch, block_log2=15, large_block_log2=14)
    for module in (frames, hash_reference):
        monkeypatch.setattr(module, "MAX_BLOCK_COMPONENTS", ONE_BLOCK)
    tune(monkeypatch, hash_part_components=BLOCK)


def chain_of(directory: Path, **options: Any) -> Chain:
    """A chain that keeps hashes."""
    return Chain(directory, "lossless", reference="hashes", **options)


def large_state(seed: int, size: int = 100_003) -> dict[str, Any]:
    """A state with arrays of several blocks, of one, and small ones."""
    rng = np.random.default_rng(seed)
    return {
        "table": rng.standard_normal(size).astype(np.float32),
        "one": rng.integers(0, 9, 20_000),
        "small": [rng.standard_normal((7, 3)), np.arange(5, dtype=np.int8), np.zeros(0, np.float32)],
        "complex": rng.standard_normal(17_000) + 1j,
        "scalar": np.float64(2.5),
        "step": seed,
    }


def touched(state: dict[str, Any], seed: int, share: float = 0.01) -> dict[str, Any]:
    """The state, with some values of its table changed."""
    rng = np.random.default_rng(seed)
    table = state["table"].copy()
    places = rng.choice(table.size, round(share * table.size), replace=False)
    table[places] += rng.standard_normal(places.size).astype(np.float32)
    return {**state, "table": table, "step": seed}

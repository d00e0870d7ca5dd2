"""Chains of tests about the history: without an exact file, a restore returns what it holds."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lccodec import Chain, Policy

#: A `Chain` that keeps the history alone.
HistoryChain = partial(Chain, newest="history")


def deltas(policy: Policy, directory: Path, states: Sequence[Any]) -> tuple[list[int], Any]:
    """Return the bytes of each delta of a chain of these states, and the last as restored."""
    with HistoryChain(directory, policy, roles={"model/*": "weight"}, keyframe_every=100) as chain:
        sizes = [chain.save(step, state) for step, state in enumerate(states)]
        return sizes[1:], chain.restore()

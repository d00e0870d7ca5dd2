"""Chains in groups of which none is settled."""

from collections import deque
from pathlib import Path
from typing import Any

import pytest

from lccodec import Chain
from lccodec.chain.save.hindsight import settle, unsettled
from lccodec.chain.store.directory import DirectoryStore

from .drifting import ROLES, run_of
from .tuning import tuned

STATES = run_of(9, (20, 15))


def waiting(directory: Path, states: list[dict[str, Any]] = STATES, size: int = 4) -> Chain:
    """A chain of groups of which none is settled."""
    with tuned(hindsight_share=-1.0, hindsight_max_waiting=100):
        chain = Chain(directory, "balanced", roles=ROLES, hindsight=size)
        for step, state in enumerate(states):
            chain.save(step, state, {"loss": state["loss"]})
        with pytest.raises(KeyboardInterrupt), chain:
            raise KeyboardInterrupt
    return Chain(directory)


def settle_all(store: DirectoryStore) -> None:
    for low, high in unsettled(store, 100):
        deque(settle(store, low, high), maxlen=0)


def history(chain: Chain) -> list[Any]:
    return [chain.restore(step, exact=False) for step in chain.steps]


def kinds(chain: Chain) -> str:
    return "".join(chain.info(step).kind[0] for step in chain.steps)

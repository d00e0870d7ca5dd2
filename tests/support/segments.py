"""A chain of segments of three checkpoints, and whether all of it restores."""

from pathlib import Path
from typing import Any

from lccodec import Chain
from lccodec.chain.store.directory import DirectoryStore

from .walks import assert_restores, is_so, walk

STATES = walk(10, shape=(6, 5))


def run_of(directory: Path, steps: int = 9, **options: Any) -> Chain:
    """A chain of segments of three: 0 1 2, 3 4 5, 6 7 8."""
    chain = Chain(directory, "lossless", keyframe_every=2, **options)
    for step in range(steps):
        chain.save(step, STATES[step], {"loss": 10 - step})
    return chain


def all_restore(directory: Path) -> bool:
    return is_so(lambda: assert_restores(Chain(directory), STATES))


class Parentless(DirectoryStore):
    """A store that knows of no parents, so that they may go before their children."""

    def parents_of(self, _: str) -> tuple[int, ...]:
        return ()

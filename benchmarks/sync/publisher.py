"""Weight versions that are published and followed step by step, beside XOR and zstd -1 by hand.

What is compared is the processor time of this process: files go to the disk in both ways. By hand
there is no digest, so the time of one digest of all tensors is taken off that of the publisher that
makes it. Each step is the change of the update, forth and back, so both ways do the same at every
step.
"""

from __future__ import annotations

import shutil
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import lccodec
from lccodec.adapters import weights as sync

from ..measure.goals import Goal
from .updates import Update
from .ways import Xor

__all__ = ["publisher_goals"]

MAX_PUBLISH, MAX_PREPARE = 1.3, 1.5  # of the time by hand
MAX_BESIDE = 2.4  # the same of a publisher in another process, which decodes the delta first
MAX_CHAIN_BYTES = 0.4  # of those of XOR + zstd -1
MAX_VERSION_BYTES = 1.01  # the same, with names and digests
FEWEST_ROUNDS = 4  # memory is new in the first


def publisher_goals(update: Update, directory: Path, rounds: int) -> list[Goal]:
    """Publish, follow and prepare an update; return times and bytes over those by hand."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    run, versions, base = (directory / name for name in ("run", "versions", "base"))
    base.mkdir()
    save_file({name: _words(array) for name, array in update.old.items()}, base / "model.safetensors")
    states = [{name: _words(array) for name, array in each.items()} for each in (update.old, update.new)]
    by_hand = Xor(update, directory / "by hand")
    seconds: dict[str, list[float]] = {}

    def timed(what: str, action: Callable[[], object]) -> None:
        start = time.process_time()
        found = action()
        seconds.setdefault(what, []).append(time.process_time() - start)
        if found is None:
            raise SystemExit(f"{what}: nothing came")

    sizes: dict[str, int] = {}
    with (
        lccodec.Chain(run, "lossless", newest="history", keyframe_every=10**6) as chain,
        sync.Publisher(chain, versions, start=0) as publisher,
        sync.Publisher(run, directory / "beside", start=0) as beside,
        lccodec.follow(run, timeout=0) as follower,
        sync.follow(versions, base, timeout=0) as engine,
    ):
        chain.save(0, states[0])
        for each in (publisher, beside):
            each.publish()
        follower.prepare(0)
        for step in range(1, max(rounds, FEWEST_ROUNDS) + 1):
            state = states[step % 2]
            sizes["chain"] = chain.save(step, state)
            timed("publish", publisher.publish)
            timed("publish, from another process", beside.publish)
            timed("digest", partial(_digests, state))
            timed("prepare, chain", lambda: follower.prepare(0))
            timed("prepare, versions", lambda: engine.prepare(0))
            timed("publish by hand", by_hand.publish)
            timed("prepare by hand", lambda: _prepared(by_hand))
        sizes["versions"] = sum(path.stat().st_size for path in _newest(versions).iterdir())
        if any(engine.get(name).tobytes() != array.tobytes() for name, array in state.items()):
            raise SystemExit("versions: the arrays are wrong")
    hand = by_hand.publish()
    what = f"{update.kind}, {100 * update.share:.2g} % changed, {update.nbytes / 1e6:.3g} MB"
    best = {name: min(some[1:]) for name, some in seconds.items()}
    best["publish, less the digest"] = best["publish"] - best["digest"]
    goals = [
        Goal(f"{what}: {action}, over by hand", best[action] / best[f"{action.split(',')[0]} by hand"], must)
        for action, must in (
            ("publish, less the digest", MAX_PUBLISH),
            ("publish, from another process", MAX_BESIDE),
            ("prepare, chain", MAX_PREPARE),
            ("prepare, versions", MAX_PREPARE),
        )
    ]
    for name, must in (("chain", MAX_CHAIN_BYTES), ("versions", MAX_VERSION_BYTES)):
        goals.append(Goal(f"{what}: bytes of the {name}, over XOR + zstd -1", sizes[name] / hand, must))
    return goals


def _digests(state: dict[str, np.ndarray]) -> list[int]:
    return [zlib.adler32(array) for array in state.values()]


def _prepared(way: Xor) -> list[np.ndarray]:
    """Read and decompress, and combine with the old weights in memory of its own."""
    way.prepare()
    return [way.served[name].reshape(-1).view("u1") ^ found for name, found in way.differences.items()]


def _newest(versions: Path) -> Path:
    return max(versions.glob("weight_v*"))


def _words(array: np.ndarray) -> np.ndarray:
    """Return bfloat16 as uint16, which files of NumPy have."""
    return array if array.dtype.names is None else array.view(np.uint16)

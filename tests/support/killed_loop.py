"""A loop that saves, prunes and rolls back until it is killed; it prints what it was told is done.

``python killed_loop.py DIRECTORY POLICY``: it goes on from the newest step. The state of a step is
a function of the step. The policy ``hashes`` is a lossless chain that keeps hashes.
"""

import random
import sys
from typing import Any

import numpy as np

from lccodec import Chain, Keep


def state_of(step: int) -> dict[str, Any]:
    """The state of a step."""
    rng = np.random.default_rng(step)
    weight = rng.standard_normal((300, 100)).astype("f4")
    return {"weight": weight, "bias": np.full(9, step), "step": step}


def main(directory: str, policy: str) -> None:
    chain = Chain(
        directory,
        "lossless" if policy == "hashes" else policy,
        keyframe_every=5,
        workers=2,
        keep=Keep(latest=6, every=7),
        max_concurrent_saves=2,
        hindsight=0 if policy in ("lossless", "hashes") else 3,
        reference="hashes" if policy == "hashes" else "values",
    )
    steps = chain.steps
    generator = random.Random(len(steps) + (steps[-1] if steps else 0))
    if steps:
        chain.restore()
    while True:
        steps = chain.steps
        draw = generator.random()
        if draw < 0.1 and len(steps) > 3:
            print("back", steps[-3], flush=True)  # from here on later steps may be gone
            chain.rollback(steps[-3], delete=draw < 0.05)
            chain.delete_rolled_back()
        elif draw < 0.2 and steps:
            chain.prune(Keep(latest=3, every=7), rewrite=True)
        elif draw < 0.25 and steps:
            chain.compact(keyframe_every=3)
        first = 0 if chain.latest is None else chain.latest + 1
        if draw < 0.6:
            chain.save(first, state_of(first))
            print("saved", first, flush=True)
            continue
        futures = [chain.save_async(step, state_of(step)) for step in (first, first + 1)]
        for step, future in enumerate(futures, first):
            future.result()
            print("saved", step, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

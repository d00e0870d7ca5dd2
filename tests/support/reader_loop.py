"""A loop that restores steps of a chain until its input is closed, while others save and prune.

It restores one at least: it may begin late on a busy machine.

``python reader_loop.py DIRECTORY NUMBER``: it prints how many steps it has restored, and how many
were gone.
"""

import random
import select
import sys
import warnings

import numpy as np

from lccodec import Chain, ChainError, LccodecWarning
from tests.support.killed_loop import state_of


def main(directory: str, number: str) -> None:
    generator = random.Random(int(number))
    chain = Chain(directory)
    restored = gone = 0
    warnings.simplefilter("ignore", LccodecWarning)  # the exact file may be a step behind
    while not (restored and select.select([sys.stdin], [], [], 0)[0]):
        step = generator.choice(chain.steps) if generator.random() < 0.7 else None
        try:
            state = chain.restore(step, exact=generator.random() < 0.5)
        except ChainError as error:
            if "pruned" not in str(error):
                raise
            gone += 1
            continue
        expected = state_of(state["step"])
        assert step in (None, state["step"])
        assert state.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(state[name], value)
        restored += 1
    print(restored, gone, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Changes to inputs that keep most of their structure: the engine without atheris."""

from __future__ import annotations

import random
from collections.abc import Sequence

_NUMBERS = (0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 127, 128, 254, 255)


def mutate(data: bytes, others: Sequence[bytes], tokens: Sequence[bytes], rng: random.Random) -> bytes:
    """Return `data` after one to eight small changes, which `rng` alone decides on.

    They take parts from other inputs, and write tokens.
    """
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4, 8))):
        # Headers and directories lie at the front of what they describe.
        place = rng.randrange(min(len(changed), 64) if rng.random() < 0.4 else len(changed)) if changed else 0
        kind = rng.randrange(9)
        if kind == 0 and changed:
            changed[place] ^= 1 << rng.randrange(8)
        elif kind == 1 and changed:
            changed[place] = rng.choice(_NUMBERS)
        elif kind == 2 and changed:
            changed[place] = (changed[place] + rng.choice((-2, -1, 1, 2))) % 256
        elif kind == 3:
            token = rng.choice(tokens)
            changed[place : place + len(token)] = token
        elif kind == 4:
            changed[place:place] = rng.choice(tokens)
        elif kind == 5:
            del changed[place : place + rng.choice((1, 1, 2, 4, 8, rng.randint(1, 200)))]
        elif kind == 6:
            changed[place:place] = rng.randbytes(rng.choice((1, 2, 4, 8)))
        elif kind == 7:  # repeat a part
            changed[place:place] = changed[place : place + rng.randint(1, 40)]
        else:  # go on as another input does
            other = rng.choice(others)
            start = rng.randrange(len(other)) if other else 0
            changed[place:] = other[start if rng.random() < 0.5 else place :]
    return bytes(changed)

"""States as Adam makes them: weights, and moments of every size."""

import numpy as np

from lccodec.frame.content import MAX_SHARED_COMPONENTS

State = dict[str, dict[str, np.ndarray]]

#: Sizes of arrays, and the root of the second moments there: some matter more than others.
ARRAYS = {
    "large": (3 * MAX_SHARED_COMPONENTS, 1e-2),
    "flat": (3 * MAX_SHARED_COMPONENTS, 1e-4),
    "small": (900, 1e-3),
    "tiny": (9, 1.0),
}


def adam_states(count: int, seed: int = 0) -> list[State]:
    """States of something like Adam: weights walk by as much whatever the size of the gradients."""
    rng = np.random.default_rng(seed)
    w = {name: rng.normal(0, 0.05, size) for name, (size, _) in ARRAYS.items()}
    v = {name: (scale * 2.0 ** rng.normal(0, 2, size)) ** 2 for name, (size, scale) in ARRAYS.items()}
    states = []
    for _ in range(count):
        m = {name: 0.3 * np.sqrt(v[name]) * rng.standard_t(4, w[name].size) for name in w}
        states.append(
            {
                part: {name: array.astype(np.float32) for name, array in arrays.items()}
                for part, arrays in (("model", w), ("exp_avg", m), ("exp_avg_sq", v))
            }
        )
        w = {name: array + 1e-3 * rng.standard_t(5, array.size) for name, array in w.items()}
        v = {name: array * 2.0 ** rng.normal(0.05, 0.1, array.size) for name, array in v.items()}
    return states

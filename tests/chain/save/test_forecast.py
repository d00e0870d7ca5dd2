"""What a chain would take, told by two states, beside what it takes."""

import numpy as np
import pytest

from lccodec import Chain
from lccodec.chain.save.forecast import forecast

from ...support.adam import adam_states


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["lossless", "balanced", "lc-3"])
@pytest.mark.parametrize("count", [1, 6])
def test_it_is_near(tmp_path, policy, count):
    states = adam_states(count)
    found = forecast(states[:2], policy)
    newest = "history" if policy == "lossless" else "exact"
    with Chain(tmp_path / "run", policy, newest=newest) as chain:
        for step, state in enumerate(states):
            chain.save(step, state, following=states[1] if count > 1 and step == 0 else None)
    taken = sum(path.stat().st_size for path in (tmp_path / "run").glob("*.lcc.h5"))
    assert 0.8 < found.chain_bytes(count) / taken < 1.25
    assert found.nbytes == sum(array.nbytes for part in states[0].values() for array in part.values())


def test_a_chain_without_an_exact_file_takes_less():
    found = forecast(adam_states(2), "balanced")
    assert found.chain_bytes(2) == found.chain_bytes(2, exact=False) + found.exact
    assert found.chain_bytes(2, exact=False) == found.keyframe + found.delta


def test_keyframes_come_again():
    found = forecast([{"weight": np.arange(5000.0)}, {"weight": np.arange(5000.0) + 1}], "lossless")
    assert found.chain_bytes(67) == 3 * found.keyframe + 64 * found.delta
    assert found.chain_bytes(0) == 0

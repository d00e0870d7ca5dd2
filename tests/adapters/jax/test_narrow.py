"""Types narrower than a byte that JAX makes no arrays of come back as NumPy arrays."""

import ml_dtypes
import numpy as np
import pytest

import lccodec
from lccodec.adapters import jax as adapter
from lccodec.adapters import torch as in_torch
from lccodec.errors import ArgumentError

from ...support.jax_trees import assert_same


@pytest.mark.parametrize("name", ["float6_e2m3fn", "float6_e3m2fn", "int1", "uint1"])
def test_every_value_comes_back(tmp_path, name):
    width = 6 if name.startswith("float6") else 1
    codes = np.arange(2**width, dtype=np.uint8).view(getattr(ml_dtypes, name))
    states = [{"w": np.resize(codes, 200)}, {"w": np.resize(codes[::-1], 200)}]
    with lccodec.Chain(tmp_path, policy="lc-2", adapter=adapter) as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
        assert_same(chain.restore(0), states[0])
        assert_same(adapter.load_into(states[0], chain.restore_iter(1)), states[1])
    with pytest.raises(ArgumentError, match=f"{name}, which PyTorch does not have"):
        in_torch.load(adapter.save(states[0]))

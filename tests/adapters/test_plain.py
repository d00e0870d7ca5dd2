"""One file, two frameworks: what PyTorch saved JAX loads, and the other way round, every bit."""

import jax
import numpy as np
import pytest
import torch

import lccodec
from lccodec.adapters import jax as in_jax
from lccodec.adapters import torch as in_torch
from lccodec.adapters.tree import BYTE_TYPES

from ..support import jax_trees, torch_states

BOTH = sorted(set(torch_states.DTYPES) & set(jax_trees.DTYPES))
pytestmark = pytest.mark.usefixtures("x64")


def test_the_types_that_both_have():
    names = {name for name in torch_states.DTYPES if hasattr(jax.numpy, name) or name == "bool"}
    assert set(BOTH) == names
    assert {name for name in vars(torch) if name.startswith("float8")} <= BYTE_TYPES


@pytest.mark.parametrize("name", BOTH)
def test_there_and_back(tmp_path, name):
    state = {"x": torch_states.random_tensor(name, (40, 30)), "none": None, "keys": {3: (1, 2.5)}}
    there, back = tmp_path / "there.lcc.h5", tmp_path / "back.lcc.h5"
    in_torch.save_file(state, there)
    tree = in_jax.load_file(there)
    assert tree["x"].dtype.name == name
    assert np.asarray(tree["x"]).tobytes() == torch_states.bits(state["x"])
    in_jax.save_file(tree, back)
    assert there.read_bytes() == back.read_bytes()
    torch_states.assert_same(in_torch.load_file(back), state)


def test_the_state_of_an_optimizer_there_and_back(tmp_path):
    _, _, state = torch_states.trained()
    in_torch.save_file(state, tmp_path / "a.lcc.h5")
    tree = in_jax.load_file(tmp_path / "a.lcc.h5")
    assert isinstance(tree["optimizer"]["state"][0]["exp_avg"], jax.Array)
    in_jax.save_file(tree, tmp_path / "b.lcc.h5")
    torch_states.assert_same(in_torch.load_file(tmp_path / "b.lcc.h5"), state)


def test_a_chain_that_one_framework_begins_and_the_other_goes_on_with(tmp_path):
    tensors = [{"w": torch.full((300,), float(step)), "n": step} for step in range(4)]
    for step, state in enumerate(tensors):
        adapter = in_torch if step < 2 else in_jax
        with lccodec.Chain(tmp_path, policy="lossless", adapter=adapter) as chain:
            chain.save(step, state if step < 2 else {"w": jax.numpy.asarray(state["w"].numpy()), "n": step})
    with lccodec.Chain(tmp_path, adapter=in_torch) as chain:
        for step, state in enumerate(tensors):
            torch_states.assert_same(chain.restore(step), state)
        assert chain.info(3).parent == 2


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"k": jax.random.key(0)}, "'k' is of type key<threefry2x32>"),
        ({"k": jax.numpy.int4(3)}, "of type int4"),
    ],
)
def test_what_only_jax_has(state, message):
    with pytest.raises(lccodec.ArgumentError, match=message):
        in_torch.load(in_jax.save(state))


def test_what_only_pytorch_has():
    data = in_torch.save({"z": torch_states.random_tensor("complex32", (3,))})
    with pytest.raises(lccodec.ArgumentError, match="'z' is of type complex32"):
        in_jax.load(data)

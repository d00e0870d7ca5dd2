"""A tree goes into parts and comes back; what does not fit or cannot be saved is named."""

import flax.nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from lccodec.adapters.orbax import LCCheckpointHandler, LCHandler, LCRestore, LCSave
from lccodec.errors import ArgumentError

from ...support.orbax_states import abstract, bits, manager, state


def test_without_a_target_plain_containers_of_numpy_arrays(tmp_path):
    saved = state()
    with manager(tmp_path) as steps:
        steps.save(0, args=LCSave(saved))
        found = steps.restore(0, args=LCRestore())
        seen = steps.item_metadata(0)
    assert found["a/b"] == [1, [2.0, []]]
    assert type(found["params"]["w"]) is np.ndarray
    assert found["opt"][1][0]["mu"]["b"].dtype == jnp.bfloat16
    assert bits(found["keys"]) == bits(saved["keys"])
    assert (found["raw"], found["nothing"], found["name"]) == (b"\x00", None, "run/1~")
    assert seen["params"]["w"] == jax.ShapeDtypeStruct((3, 2), jnp.float32)
    assert (seen["keys"].shape, seen["keys"].dtype) == ((3,), saved["keys"].dtype)
    assert seen["epoch"] == 7


def test_numpy_arrays_of_the_other_byte_order(tmp_path):
    values = np.linspace(-1, 1, 5, dtype="f4")
    other = {"x": values.astype(values.dtype.newbyteorder("S"))}
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(0, args=LCSave(other))
        manager.wait_until_finished()
        for target in (None, other, {"x": values}, {"x": jnp.zeros(5)}):
            assert manager.restore(0, args=LCRestore(target))["x"].tolist() == values.tolist()


def test_an_nnx_module_with_its_state(tmp_path):
    model = flax.nnx.Linear(3, 2, rngs=flax.nnx.Rngs(0))
    saved = flax.nnx.state(model)
    with manager(tmp_path) as steps:
        steps.save(0, args=LCSave(saved))
        fresh = flax.nnx.state(flax.nnx.Linear(3, 2, rngs=flax.nnx.Rngs(1)))
        found = steps.restore(0, args=LCRestore(fresh))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), found, saved))


def test_what_is_saved_is_what_was_handed_over(tmp_path):
    """Buffers are donated, and host arrays change, while a checkpoint is written."""
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    device, host = jnp.zeros(200_000), np.zeros(200_000)
    with manager(tmp_path) as steps:
        steps.save(0, args=LCSave({"device": device, "host": host}))
        for _ in range(5):
            device, host[:] = step(device), 9
        steps.wait_until_finished()
        found = steps.restore(0, args=LCRestore())
    assert not found["device"].any()
    assert not found["host"].any()


class Network(flax.nnx.Module):
    """Batch statistics, and a parameter with a name of its own."""

    def __init__(self, rngs):
        self.table = flax.nnx.Param(jax.random.normal(rngs(), (20, 30)))
        self.norm = flax.nnx.BatchNorm(400, rngs=rngs)


@pytest.mark.parametrize("form", ["nnx", "optax"])
def test_of_a_lossy_chain_only_what_structures_tell_is_inexact(tmp_path, form):
    handler = LCCheckpointHandler(tmp_path / "chain", policy="lc-3", newest="history")
    model = Network(flax.nnx.Rngs(0))
    optimizer = flax.nnx.Optimizer(model, optax.adam(1e-2), wrt=flax.nnx.Param)
    with manager(tmp_path / "steps", handler) as steps:
        for step in range(2):
            model.norm.var[...] = 1e-5 * (step + jnp.arange(1.0, 401.0))
            optimizer.update(model, jax.tree.map(lambda p: p + 1, flax.nnx.state(model, flax.nnx.Param)))
            if form == "nnx":
                saved = {"model": flax.nnx.state(model), "optimizer": flax.nnx.state(optimizer)}
                table, var = saved["model"]["table"][...], saved["model"]["norm"]["var"][...]
            else:
                params = {"table": model.table[...]}
                moments = (
                    optax.adam(1e-2).init(params)[0]._replace(mu=params, nu={"table": params["table"] ** 2})
                )
                saved = {"net": [params], "stats": {"var": model.norm.var[...]}, "x": moments}
                table, var = params["table"], saved["stats"]["var"]
            steps.save(step, args=LCSave(saved))
        steps.wait_until_finished()
        found = steps.restore(1, args=LCRestore(abstract(saved)))
    if form == "nnx":
        restored = found["model"]["table"][...], found["model"]["norm"]["var"][...]
        moment, exact = (s["optimizer"]["opt_state"][0]["mu"]["table"][...] for s in (found, saved))
    else:
        restored = found["net"][0]["table"], found["stats"]["var"]
        moment, exact = found["x"].mu["table"], saved["x"].mu["table"]
    assert np.array_equal(restored[1], var)
    assert 0 < np.abs(restored[0] - table).max() < 0.1
    assert not np.array_equal(moment, exact)


def test_all_that_does_not_fit_is_listed(saved):
    target = {"w": jnp.ones((2, 3)), "n": jnp.zeros(()), "k": jax.random.key(0, impl="rbg"), "more": 1}
    with pytest.raises(ArgumentError) as caught:
        saved[0].restore(0, args=LCRestore(target))
    lines = str(caught.value).splitlines()
    assert len(lines) == 5
    assert lines[1] == "  missing: more (a plain value)"
    assert "  w: float32 (3, 2), where the target has float32 (2, 3)" in lines


def test_a_dtype_that_this_jax_would_narrow(tmp_path):
    with manager(tmp_path) as steps:
        steps.save(0, args=LCSave({"x": np.zeros(3)}))
        with pytest.raises(ArgumentError, match="jax_enable_x64"):
            steps.restore(0, args=LCRestore({"x": jax.ShapeDtypeStruct((3,), np.float64)}))


@pytest.mark.parametrize("leaf", [object(), {1, 2}, np.array(["text"])], ids=lambda leaf: type(leaf).__name__)
def test_what_cannot_be_saved_is_refused_by_name(tmp_path, leaf):
    # Not asynchronously: after an error Orbax waits on for a directory that it does not make.
    with (
        manager(tmp_path, enable_async_checkpointing=False) as steps,
        pytest.raises(ArgumentError, match="'a/0'"),
    ):
        steps.save(0, args=LCSave({"a": [leaf]}))
    assert LCHandler().is_handleable({"a": [leaf]}) == isinstance(leaf, np.ndarray)


def test_two_leaves_of_one_name(tmp_path):
    with (
        manager(tmp_path, enable_async_checkpointing=False) as steps,
        pytest.raises(ArgumentError, match="both be named 'a/b'"),
    ):
        steps.save(0, args=LCSave({"a/b": 1, "a": {"b": 2}}))

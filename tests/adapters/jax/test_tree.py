"""Trees of any nodes come back in plain containers, or with the types of a target."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import lccodec
from lccodec.adapters import jax as adapter
from lccodec.adapters.jax import leaves
from lccodec.errors import ArgumentError

from ...support.jax_trees import Unkeyed, assert_same, assert_same_tree, parts, train


class Point(NamedTuple):
    x: Any
    y: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    w: Any
    scale: Any
    name: str = dataclasses.field(metadata={"static": True}, default="layer")


def tree_of_everything() -> dict[str, Any]:
    w = jnp.arange(6.0).reshape(2, 3)
    return {
        "point": Point(w, [1, 2.5, None, "text", b"bytes", True]),
        "layer": Layer(w + 1, {3: jnp.ones(2), -1: ()}, "own"),
        "unkeyed": Unkeyed(jnp.ones(1), {"a/b": jnp.zeros((0, 2))}),
        "numpy": np.arange(4, dtype=np.float64),
        "ordered": OrderedDict(b=jnp.ones(1, jnp.bfloat16), a=np.float32(3)),
        "keys": jax.random.split(jax.random.key(7), 3),
        "rbg": jax.random.key(7, impl="rbg"),
        "raw": jax.random.PRNGKey(3),
        "empty": optax.EmptyState(),
        "tied": w,
    }


def test_without_a_target_a_tree_comes_back_in_plain_containers():
    tree = tree_of_everything()
    back = adapter.load(adapter.save(tree))
    assert list(back) == list(tree)
    assert_same(back["point"], {"x": tree["point"].x, "y": tree["point"].y})
    assert_same(back["layer"], {"w": tree["layer"].w, "scale": tree["layer"].scale})
    assert_same(back["unkeyed"], tree["unkeyed"].items)
    assert_same(back["ordered"], tree["ordered"])
    assert back["empty"] == {}
    for name in ("numpy", "keys", "rbg", "raw", "tied"):
        assert_same(back[name], tree[name])
    assert back["tied"] is back["point"]["x"]


def test_with_a_target_a_tree_has_its_types(tmp_path):
    tree = tree_of_everything()
    adapter.save_file(tree, tmp_path / "a.lcc.h5")
    back = adapter.load_file(tmp_path / "a.lcc.h5", target=tree)
    assert_same_tree(back, tree)
    assert back["layer"].name == "own"
    assert_same_tree(adapter.load_into(tree, adapter.load_file(tmp_path / "a.lcc.h5")), back)


def test_nnx_states_have_the_names_of_their_pure_dicts(tmp_path):
    model, optimizer = parts(0)
    train(model, optimizer, range(2))
    tree = {"model": nnx.state(model), "optimizer": nnx.state(optimizer)}
    path = tmp_path / "a.lcc.h5"
    adapter.save_file(tree, path)
    with lccodec.open(path) as file:
        assert {"model/layers/0/kernel", "optimizer/opt_state/0/mu/layers/1/bias"} < set(file.keys())
    plain = adapter.load_file(path)
    pure = nnx.to_pure_dict(tree["model"])
    assert jax.tree_util.tree_structure(plain["model"]) == jax.tree_util.tree_structure(pure)
    other, other_optimizer = parts(1)
    abstract = jax.eval_shape(lambda: {"model": nnx.state(other), "optimizer": nnx.state(other_optimizer)})
    back = adapter.load_file(path, target=abstract)
    assert_same_tree(back, tree)
    nnx.update(other, back["model"])
    nnx.update(other_optimizer, back["optimizer"])
    train(model, optimizer, range(2, 4))
    train(other, other_optimizer, range(2, 4))
    assert_same_tree(nnx.state(other), nnx.state(model))
    params, rest = nnx.split_state(nnx.state(model), nnx.Param, ...)
    assert_same_tree(adapter.load(adapter.save([params, rest]), target=[params, rest]), [params, rest])


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.sgd(0.1, momentum=0.9),
        optax.adamw(1e-3),
        optax.chain(optax.clip_by_global_norm(1.0), optax.amsgrad(1e-3)),
        optax.adafactor(1e-3),
        optax.masked(optax.adam(1e-3), {"w": True, "b": False}),
        optax.multi_transform({"a": optax.adam(1e-3), "b": optax.sgd(1e-3)}, {"w": "a", "b": "b"}),
        optax.inject_hyperparams(optax.adam)(learning_rate=optax.linear_schedule(1.0, 0.0, 9)),
        optax.MultiSteps(optax.lion(1e-3), every_k_schedule=2),
        optax.contrib.schedule_free_adamw(),
    ],
)
def test_optax_states(optimizer):
    params = {"w": jnp.ones((200, 150)), "b": jnp.ones(3)}
    state = optimizer.init(params)
    _, state = optimizer.update(jax.tree_util.tree_map(lambda p: p / 7, params), state, params)
    back = adapter.load(adapter.save(state), target=jax.eval_shape(lambda: state))
    assert_same_tree(back, state)
    assert set(adapter.roles(state)) <= {name for name, _ in leaves(state)}


def test_a_tree_that_contains_itself_is_refused():
    tree: dict[str, Any] = {}
    tree["a"] = tree
    for function in (adapter.save, adapter.roles, lambda t: adapter.load_into(t, {})):
        with pytest.raises(ArgumentError, match="deeper"):
            function(tree)


@pytest.mark.parametrize("step", [0, 3, jnp.int32(3)])
def test_a_train_state_of_linen_goes_on(tmp_path, step):
    from flax import linen
    from flax.training.train_state import TrainState

    model = linen.Dense(2)
    params = model.init(jax.random.key(0), jnp.ones((1, 3)))["params"]

    def fresh():
        return TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(0.1))

    @jax.jit
    def update(state):
        loss = lambda p: state.apply_fn({"params": p}, jnp.ones((1, 3))).sum()  # noqa: E731
        return state.apply_gradients(grads=jax.grad(loss)(state.params))

    whole = update(update(fresh().replace(step=step)))
    saved = fresh().replace(step=step)
    path = tmp_path / "a.lcc.h5"
    adapter.save_file(saved, path)
    for target in (fresh(), jax.eval_shape(fresh), fresh().replace(step=jnp.int32(9))):
        back = adapter.load_file(path, target)
        assert type(back) is TrainState
        assert back.tx is target.tx
        assert back.apply_fn == model.apply
        assert int(back.step) == int(step)
        assert_same_tree(update(update(back)).params, whole.params)
    adapter.save_file(whole, path)  # after a step, it is an array
    back = adapter.load_into(fresh(), adapter.load_file(path))
    assert type(back.step) is int
    assert back.step == int(step) + 2

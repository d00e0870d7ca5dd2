from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
from flax import linen, nnx
from flax.training.train_state import TrainState

import lccodec
from lccodec.adapters import jax as adapter
from lccodec.adapters.jax.tree import leaves
from lccodec.errors import ArgumentError, FormatError
from lccodec.policy.roles import assign_roles

INTEGERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
BYTES = [
    *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
]
NARROW = ["float4_e2m1fn", "int2", "int4", "uint2", "uint4"]
DTYPES = [*INTEGERS, *FLOATS, *BYTES, *NARROW]


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


def random_array(name: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Arbitrary bit patterns; of the types narrower than a byte every value."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
    if name == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    size = int(np.prod(shape))
    if name in NARROW:
        low = -(2 ** (int(name[-1]) - 1)) if name.startswith("int") else 0
        high = 4 if name == "float4_e2m1fn" else low + 2 ** int(name[-1])
        return rng.integers(low, high, size).astype(dtype).reshape(shape)
    return rng.integers(0, 256, size * dtype.itemsize, np.uint8).view(dtype).reshape(shape)


def assert_same(left: Any, right: Any) -> None:
    """The same plain structure and types, arrays to the bit."""
    if isinstance(left, jax.Array):
        assert isinstance(right, jax.Array)
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        if jnp.issubdtype(left.dtype, jax.dtypes.prng_key):
            left, right = jax.random.key_data(left), jax.random.key_data(right)
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes()
    elif isinstance(left, np.ndarray | np.generic):
        assert type(left) is type(right)
        assert (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())
    elif isinstance(left, dict):
        assert [(type(key), key) for key in left] == [(type(key), key) for key in right]
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, list | tuple):
        assert type(left) is type(right)
        assert len(left) == len(right)
        for a, b in zip(left, right, strict=True):
            assert_same(a, b)
    else:
        assert type(left) is type(right)
        assert left == right


def assert_same_tree(left: Any, right: Any) -> None:
    assert jax.tree_util.tree_structure(left) == jax.tree_util.tree_structure(right)
    assert_same(jax.tree_util.tree_leaves(left), jax.tree_util.tree_leaves(right))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 5)])
@pytest.mark.usefixtures("x64")
def test_every_dtype_keeps_every_bit(name, shape):
    tree = {"x": jnp.asarray(random_array(name, shape))}
    assert tree["x"].dtype.name == name
    data = adapter.save(tree)
    assert_same(adapter.load(data), tree)
    assert_same(adapter.load(data, target=jax.eval_shape(lambda: tree)), tree)


@pytest.mark.usefixtures("x64")
def test_every_dtype_through_a_chain_of_deltas(tmp_path):
    names = [*INTEGERS, *FLOATS, *BYTES]
    trees = [{n: jnp.asarray(random_array(n, (30, 7), seed)) for n in names} for seed in range(3)]
    with lccodec.Chain(tmp_path, policy="lossless", adapter=adapter) as chain:
        for step, tree in enumerate(trees):
            chain.save(step, tree)
        for step, tree in enumerate(trees):
            assert_same(chain.restore(step), tree)
        part = chain.restore(1, keys=["float8_e5m2", "bfloat16"])
    assert_same(part, {name: trees[1][name] for name in ("bfloat16", "float8_e5m2")})


def test_an_array_on_the_cpu_is_not_copied():
    for name in ("float32", "bfloat16", "float8_e4m3fn"):
        array = jnp.asarray(random_array(name, (64, 32)))
        plain = adapter.to_numpy({"x": array})[0]["x"]
        assert plain.__array_interface__["data"][0] == array.unsafe_buffer_pointer()


def test_a_large_array_that_was_loaded_is_not_copied(tmp_path):
    lccodec.save_file({"x": np.arange(1e5, dtype=np.float32)}, tmp_path / "a.lcc.h5")
    with lccodec.open(tmp_path / "a.lcc.h5") as file:
        state = file.state()
    array = adapter.from_numpy(state, {})["x"]
    assert array.unsafe_buffer_pointer() == state["x"].ctypes.data


class Point(NamedTuple):
    x: Any
    y: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    w: Any
    scale: Any
    name: str = dataclasses.field(metadata={"static": True}, default="layer")


class Unkeyed:
    def __init__(self, *items: Any) -> None:
        self.items = items


jax.tree_util.register_pytree_node(Unkeyed, lambda u: (u.items, None), lambda _, items: Unkeyed(*items))


class Twice:
    """A node with two children of one name."""


jax.tree_util.register_pytree_with_keys(
    Twice,
    lambda _: (((jax.tree_util.DictKey("a"), 1), (jax.tree_util.DictKey("a"), 2)), None),
    lambda *_: Twice(),
)


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


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs, width: int = 8) -> None:
        self.layers = nnx.List([nnx.Linear(4, width, rngs=rngs), nnx.Linear(width, 2, rngs=rngs)])
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.layers[1](self.dropout(jax.nn.relu(self.norm(self.layers[0](x)))))


@nnx.jit
def update(model: Net, optimizer: nnx.Optimizer, x: jax.Array) -> None:
    optimizer.update(model, nnx.grad(lambda m: (m(x) ** 2).mean())(model))


def train(model: Net, optimizer: nnx.Optimizer, steps: range) -> None:
    for step in steps:
        update(model, optimizer, jax.random.normal(jax.random.key(step), (16, 4)))


def parts(seed: int) -> tuple[Net, nnx.Optimizer]:
    model = Net(nnx.Rngs(seed))
    return model, nnx.Optimizer(model, optax.adamw(1e-2), wrt=nnx.Param)


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


def roles_of(tree: Any) -> dict[str, str]:
    return {name: assignment.role for name, assignment in adapter.roles(tree).items()}


def test_roles_come_from_the_structure_whatever_the_names_are():
    params = {"table": jnp.ones((200, 150))}

    def roles(optimizer: Any) -> dict[str, str]:
        found = roles_of({"net": params, "x": optimizer.init(params), "y": {"table": jnp.ones(3)}})
        assert found.get("net/table") == ("weight" if parameters else None)
        return {name: role for name, role in found.items() if name.startswith("x/")}

    parameters = True
    assert roles(optax.adamw(1e-3)) == {"x/0/mu/table": "first_moment", "x/0/nu/table": "second_moment"}
    assert roles(optax.rmsprop(1e-3)) == {"x/0/nu/table": "second_moment"}
    assert roles(optax.sm3(1e-3)) == {
        "x/0/mu/table/0": "second_moment", "x/0/mu/table/1": "second_moment", "x/0/nu/table": "first_moment",
    }  # fmt: skip
    assert roles(optax.adan(1e-3)) == {
        "x/0/m/table": "first_moment", "x/0/v/table": "first_moment", "x/0/n/table": "second_moment",
        "x/0/g/table": "other",
    }  # fmt: skip
    nested = roles(optax.inject_hyperparams(optax.adam)(learning_rate=0.1))
    assert nested["x/inner_state/0/nu/table"] == "second_moment"
    assert nested["x/hyperparams/learning_rate"] == "other"
    parts = optax.multi_transform({"a": optax.adam(1e-3)}, {"table": "a"})
    assert roles(parts)["x/inner_states/a/inner_state/0/mu/table"] == "first_moment"
    every = roles(optax.MultiSteps(optax.lion(1e-3), every_k_schedule=2))
    assert every["x/acc_grads/table"] == "other"
    parameters = False  # no field has their form
    found = roles(optax.adafactor(1e-3))
    assert {found[f"x/0/{name}/table"] for name in ("v_row", "v_col", "v")} == {"second_moment"}
    roles(optax.sgd(0.1))


def test_copies_of_the_parameters_that_are_averages_are_no_weights():
    params = {"table": jnp.ones((200, 150)), "more": [jnp.ones(3)]}
    tree = {
        "net": params,
        "net_ema": params,
        "half": {"table": params["table"]},
        "x": optax.adam(1).init(params),
    }
    found = roles_of(tree)
    assert [found.get(f"{name}/table") for name in ("net", "net_ema", "half")] == ["weight", None, None]
    assert found["net/more/0"] == "weight"


class Quantized(nnx.Variable):
    """A collection of somebody's own."""


class Typed(nnx.Module):
    """Variables of every kind, with names that tell nothing."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.a = nnx.Param(jnp.ones(3))
        self.b = nnx.BatchStat(jnp.ones(3))
        self.weight = Quantized(jnp.ones(3))
        self.ema = nnx.Param(jnp.ones(3))
        self.lora = nnx.LoRA(3, 2, 3, rngs=rngs)


@pytest.mark.parametrize("of", [nnx.state, lambda model: model], ids=["state", "module"])
def test_types_of_nnx_tell_what_is_trained(of):
    model = Typed(nnx.Rngs(0))
    tree = {"net": of(model), "moments": optax.adam(1e-3).init(nnx.state(model, nnx.Param))}
    found = roles_of(tree)
    assert found.pop("net/lora/lora_a") == found.pop("net/lora/lora_b") == "weight"
    assert {name: role for name, role in found.items() if name.startswith("net")} == {
        "net/a": "weight", "net/b": "other", "net/weight": "other",
    }  # fmt: skip
    assert (found["moments/0/mu/a"], found["moments/0/nu/a"]) == ("first_moment", "second_moment")
    names = [name for name, _ in leaves(tree)]
    assert assign_roles(names, None, adapter.roles(tree))["net/ema"].role == "other"
    assert adapter.roles(tree)["net/b"].why == "nnx.BatchStat"


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        table = self.param("table", jax.nn.initializers.normal(), (4, 300))
        x = linen.BatchNorm(use_running_average=not train)(x @ table)
        return linen.Dense(1)(jax.nn.relu(x))


def test_of_linens_collections_only_params_are_weights():
    variables = Linen().init(jax.random.key(0), jnp.ones((2, 4)), train=True)
    weights = {f"params/{n}" for n in ("BatchNorm_0/bias", "BatchNorm_0/scale", "Dense_0/bias",
                                       "Dense_0/kernel", "table")}  # fmt: skip
    found = roles_of(variables)
    assert {name for name, role in found.items() if role == "weight"} == weights
    assert found["batch_stats/BatchNorm_0/var"] == "other"
    assert set(roles_of({"params": variables["params"]})) == weights
    state = TrainState.create(apply_fn=None, params=variables["params"], tx=optax.sgd(0.1))
    assert set(roles_of(state)) == weights
    both = roles_of({**variables, "opt": optax.sgd(0.1).init(variables["params"])})
    assert both == {}  # not Linen's collections alone: names decide
    assert roles_of({"params": {"bn": {"mean": jnp.ones(3), "x": jnp.ones(3)}}}) == {}  # perhaps NNX's


def outputs_after_a_chain(directory: Path, tree: Any, states: list[Any]) -> Any:
    with lccodec.Chain(directory, "balanced", adapter=adapter) as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
        assert chain.info().parent is not None
        return adapter.load_into(tree, chain.restore())


class Norm(nnx.Module):
    """A network whose batch statistics are far from 1, as those of real data are."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.a = nnx.Linear(4, 300, rngs=rngs)
        self.bn = nnx.BatchNorm(300, momentum=0.5, rngs=rngs)
        self.b = nnx.Linear(300, 2, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.b(jax.nn.relu(self.bn(self.a(x))))


@nnx.jit
def learn(model: Norm, optimizer: nnx.Optimizer, x: jax.Array) -> None:
    optimizer.update(model, nnx.grad(lambda m: ((m(x) - 1) ** 2).mean())(model))


@pytest.mark.parametrize("pure", [False, True])
def test_batch_statistics_of_nnx_are_exact_and_outputs_stay(tmp_path, pure):
    """A variance of 1e-5 that is restored as 0.1 makes an output of its own."""
    model = Norm(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-4), wrt=nnx.Param)
    states = []
    model.train()
    for step in range(60):
        learn(model, optimizer, 0.01 * jax.random.normal(jax.random.key(step), (64, 4)))
        if step < 57:
            continue
        tree = {"model": nnx.state(model), "optimizer": nnx.state(optimizer)}
        pure_tree = {name: nnx.to_pure_dict(part) for name, part in tree.items()}
        states.append(jax.tree.map(jnp.array, pure_tree if pure else tree))
    found = outputs_after_a_chain(tmp_path, states[-1], states)
    for name in ("mean", "var"):
        before, after = (np.asarray(s["model"]["bn"][name][...]) for s in (states[-1], found))
        np.testing.assert_array_equal(after, before)
    x = 0.01 * jax.random.normal(jax.random.key(99), (64, 4))
    model.eval()
    nnx.update(model, states[-1]["model"])
    before = model(x)
    nnx.update(model, found["model"])
    assert np.linalg.norm(model(x) - before) < 0.05 * np.linalg.norm(before)
    moments = (
        found["optimizer"]["opt_state"][0]["mu"]["a"]["kernel"],
        states[-1]["optimizer"]["opt_state"][0]["mu"]["a"]["kernel"],
    )
    assert not np.array_equal(*(m[...] for m in moments))


def test_batch_statistics_of_linen_are_exact_and_outputs_stay(tmp_path):
    module, optimizer = Linen(), optax.adam(1e-4)
    variables = module.init(jax.random.key(0), jnp.ones((2, 4)))
    params, stats = variables["params"], variables["batch_stats"]
    moments, states = optimizer.init(params), []

    @jax.jit
    def step(params: Any, stats: Any, moments: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            variables = {"params": params, "batch_stats": stats}
            y, changed = module.apply(variables, x, train=True, mutable=["batch_stats"])
            return ((y - 1) ** 2).mean(), changed["batch_stats"]

        gradients, changed = jax.grad(loss, has_aux=True)(params)
        updates, moments = optimizer.update(gradients, moments)
        return optax.apply_updates(params, updates), changed, moments

    for number in range(60):
        x = 0.01 * jax.random.normal(jax.random.key(number), (64, 4))
        params, stats, moments = step(params, stats, moments, x)
        if number >= 57:
            states.append({"params": params, "batch_stats": stats, "opt": moments})
    params, stats = states[-1]["params"], states[-1]["batch_stats"]
    found = outputs_after_a_chain(tmp_path, states[-1], states)
    assert_same_tree(found["batch_stats"], stats)
    assert not np.array_equal(found["params"]["table"], params["table"])

    def output(state: Any) -> Any:
        x = 0.01 * jax.random.normal(jax.random.key(99), (64, 4))
        return module.apply({"params": state["params"], "batch_stats": state["batch_stats"]}, x)

    before = output(states[-1])
    assert np.linalg.norm(output(found) - before) < 0.05 * np.linalg.norm(before)


def test_numpy_arrays_of_the_other_byte_order():
    values = np.linspace(-1, 1, 5, dtype="f4")
    other = {"x": values.astype(values.dtype.newbyteorder("S"))}
    assert adapter.from_numpy(other, {})["x"].tolist() == values.tolist()
    for target in (other, {"x": values}, {"x": jnp.zeros(5)}):
        assert adapter.load(adapter.save(other), target)["x"].tolist() == values.tolist()
        assert adapter.load_into(target, other)["x"].tolist() == values.tolist()


def test_all_mismatches_are_listed():
    tree = {"a": jnp.ones((2, 3)), "b": {"c": jnp.ones(4), "gone": 1}, "key": jax.random.key(0), "n": 3}
    target = {
        "a": jax.ShapeDtypeStruct((3, 2), jnp.float32),
        "b": {"c": jax.ShapeDtypeStruct((4,), jnp.bfloat16), "new": jax.ShapeDtypeStruct((), jnp.int32)},
        "key": jax.eval_shape(lambda: jax.random.key(0, impl="rbg")),
        "n": jnp.ones(()),
    }
    for load in (
        lambda: adapter.load_into(target, tree),
        lambda: adapter.load(adapter.save(tree), target=target),
    ):
        with pytest.raises(ArgumentError) as caught:
            load()
        assert str(caught.value).splitlines() == [
            "the state does not fit the target",
            "  missing: b/new (int32 ())",
            "  unexpected: b/gone (no array)",
            "  a: float32 (2, 3), where the target has float32 (3, 2)",
            "  b/c: float32 (4,), where the target has bfloat16 (4,)",
            "  key: key<fry> (), where the target has key<rbg> ()",
            "  n: no array, where the target has float32 ()",
        ]


@pytest.mark.parametrize("name", ["float64", "int64", "complex128"])
def test_64_bits_are_not_rounded_to_32(name):
    data = lccodec.save({"x": np.ones(2, name)})
    with pytest.raises(ArgumentError, match=f"array 'x' is {name}, which JAX has only with jax_enable_x64"):
        adapter.load(data)
    with pytest.raises(ArgumentError, match="jax_enable_x64"):
        adapter.load(data, target={"x": jax.ShapeDtypeStruct((2,), name)})
    assert adapter.load(data, target={"x": np.zeros(2, name)})["x"].dtype == name


def _deleted() -> jax.Array:
    array = jnp.ones(3)
    array.delete()
    return array


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: jax.ShapeDtypeStruct((2,), jnp.float32), "'m/x' is abstract"),
        (_deleted, "'m/x' has been deleted"),
        (lambda: np.array([None]), "'m/x' has dtype object"),
        (object, "'m/x' is a builtins.object"),
        (lambda: jax.nn.relu, "'m/x' is a "),
        (lambda: jnp.float32, "'m/x' is a "),
        (Twice, "'m/x' is a Twice with several children of one name"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(make, message):
    with pytest.raises(ArgumentError, match=message):
        adapter.save({"m": {"x": make()}})


def test_what_is_traced_is_refused():
    @jax.jit
    def step(x: jax.Array) -> jax.Array:
        adapter.save({"x": x})
        return x

    with pytest.raises(ArgumentError, match="'x' is traced"):
        step(jnp.ones(2))


def test_a_tree_that_contains_itself_is_refused():
    tree: dict[str, Any] = {}
    tree["a"] = tree
    for function in (adapter.save, adapter.roles, lambda t: adapter.load_into(t, {})):
        with pytest.raises(ArgumentError, match="deeper"):
            function(tree)


@pytest.mark.parametrize(
    ("note", "array", "error"),
    [
        ('{"float8_e5m2": ["x"]}', np.ones(2, np.float32), FormatError),
        ('{"key<threefry2x32>": ["x"]}', np.ones(2, np.float32), FormatError),
        ('{"key<threefry2x32>": ["x"]}', np.ones((), np.uint32), FormatError),
        ('{"key<threefry2x32>": ["x"]}', np.ones(3, np.uint32), ArgumentError),
        ('{"key<nonsense>": ["x"]}', np.ones(2, np.uint32), ArgumentError),
        ('{"complex32": ["x"]}', np.ones(2, np.float16), ArgumentError),
        ('{"float4_e2m1fn_x2": ["x"]}', np.ones(2, np.uint8), ArgumentError),
        ('{"load": ["x"]}', np.ones(2, np.uint8), ArgumentError),
    ],
)
def test_a_note_that_does_not_fit(note, array, error):
    with pytest.raises(error, match="array 'x'"):
        adapter.load(lccodec.save({"x": array}, {"lccodec.types": note}))


SHARDED = """
import sys, jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from lccodec.adapters import jax as adapter
assert len(jax.devices()) == 4
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
rows, both, copies = (NamedSharding(mesh, P(*spec)) for spec in (("x",), ("x", "y"), ()))
array = jnp.arange(48.0).reshape(8, 6)
tree = {"w": jax.device_put(array, both), "b": jax.device_put(array[0], copies)}
tree["k"] = jax.device_put(jax.random.key(1), copies)
adapter.save_file(tree, sys.argv[1])
target = {
    "w": jax.ShapeDtypeStruct((8, 6), jnp.float32, sharding=rows),
    "b": jax.ShapeDtypeStruct((6,), jnp.float32, sharding=rows),
    "k": tree["k"],
}
for back in (adapter.load_file(sys.argv[1], target=target), adapter.load_into(target, tree)):
    assert [back[n].sharding for n in target] == [rows, rows, copies], back
    assert all((np.asarray(back[n]) == np.asarray(tree[n])).all() for n in "wb")
    assert (jax.random.key_data(back["k"]) == jax.random.key_data(tree["k"])).all()
try:
    adapter.load_file(sys.argv[1], target={**target, "b": jax.ShapeDtypeStruct((6,), jnp.float32, sharding=
        NamedSharding(Mesh(np.array(jax.devices()), ("z",)), P("z")))})
except Exception as error:
    print(type(error).__name__, error)
"""

PROCESSES = """
import sys, jax, jax.numpy as jnp, numpy as np
jax.distributed.initialize(sys.argv[2], 2, int(sys.argv[3]))
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from lccodec.adapters import jax as adapter
mesh = Mesh(np.array(jax.devices()), ("x",))
split, copies = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
data = np.arange(8.0, dtype=np.float32)
own = lambda sharding: jax.make_array_from_callback((8,), sharding, lambda index: data[index])
try:
    adapter.to_numpy({"w": own(split)})
except Exception as error:
    print(type(error).__name__, error)
path = sys.argv[1] + sys.argv[3]
adapter.save_file({"w": own(copies)}, path)
back = adapter.load_file(path, target={"w": jax.ShapeDtypeStruct((8,), jnp.float32, sharding=split)})["w"]
part = back.addressable_data(0)
assert (np.asarray(part) == data[back.addressable_shards[0].index]).all() and part.shape == (4,)
print("done")
"""


def run(code: str, *arguments: str, devices: int = 1) -> subprocess.Popen[str]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output


def test_sharded_arrays_are_gathered_and_go_where_the_target_says(tmp_path):
    output = finish(run(SHARDED, str(tmp_path / "a.lcc.h5"), devices=4))
    assert output.startswith("ArgumentError the state does not fit the target\n  b: ")


def test_an_array_of_two_processes(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    processes = [run(PROCESSES, str(tmp_path / "a"), address, str(rank)) for rank in range(2)]
    for process in processes:
        output = finish(process)
        assert "ArgumentError state entry 'w' is an array of several processes" in output
        assert output.endswith("done\n")


RESUME = """
import sys, jax, lccodec
from flax import nnx
from lccodec.adapters import jax as adapter
from tests.adapters.test_jax import parts, train
model, optimizer = parts(5)
chain = lccodec.Chain(sys.argv[1], policy="lossless", adapter=adapter)
target = {"model": nnx.state(model), "optimizer": nnx.state(optimizer)}
state = adapter.load_into(target, chain.restore())
nnx.update(model, state["model"])
nnx.update(optimizer, state["optimizer"])
train(model, optimizer, range(4, 8))
adapter.save_file({"model": nnx.state(model), "optimizer": nnx.state(optimizer)}, sys.argv[2])
"""


@pytest.mark.slow
def test_a_run_that_is_resumed_in_a_new_process_is_the_run_that_was_not_interrupted(tmp_path):
    model, optimizer = parts(0)
    with lccodec.Chain(tmp_path / "run", policy="lossless", adapter=adapter) as chain:
        for step in range(8):
            train(model, optimizer, range(step, step + 1))
            if step < 4:
                chain.save(step, {"model": nnx.state(model), "optimizer": nnx.state(optimizer)})
    finish(run(RESUME, str(tmp_path / "run"), str(tmp_path / "end.lcc.h5")))
    tree = {"model": nnx.state(model), "optimizer": nnx.state(optimizer)}
    assert_same_tree(adapter.load_file(tmp_path / "end.lcc.h5", target=tree), tree)


@pytest.mark.parametrize("missing", ["jax", "ml_dtypes"])
def test_without_jax_the_error_names_the_extra(missing):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "try: import lccodec.adapters.jax\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    output = finish(run(code))
    assert output.startswith("DependencyError")
    assert "lccodec[jax]" in output


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


def test_a_number_and_an_array_of_one_fit_if_no_bit_is_lost():
    target = {
        "i": 0,
        "f": 0.0,
        "b": False,
        "a": jnp.int32(0),
        "n": np.zeros((), np.int64),
        "s": np.float32(0),
    }
    state = {"i": jnp.int32(3), "f": jnp.float32(0.5), "b": jnp.array(True), "a": 4, "n": 5, "s": 0.5}
    back = adapter.load_into(target, state)
    assert {key: type(value) for key, value in back.items()} == {k: type(v) for k, v in target.items()}
    assert {key: float(value) for key, value in back.items()} == {k: float(v) for k, v in state.items()}
    for wanted, found in [
        (0, jnp.float32(1)),
        (0.0, jnp.int32(1)),
        (True, jnp.int32(1)),
        (0, jnp.ones(1, int)),
        (jnp.int8(0), 300),
        (jnp.float16(0), 0.1),
        (jnp.uint8(0), -1),
        (jnp.int32(0), True),
        (jnp.int32(0), "3"),
        ("3", jnp.int32(3)),
        (jnp.ones(1), 1.0),
    ]:
        with pytest.raises(ArgumentError, match="x: "):
            adapter.load_into({"x": wanted}, {"x": found})

"""A tree of JAX comes back as it was saved: every type and bit, on every device.

Trees of any nodes come back in plain containers, or with the types of a target.

A state gets the structure and types of a target, or an error lists all that does not fit.

Types narrower than a byte that JAX makes no arrays of come back as NumPy arrays.
"""

import dataclasses
import os
from collections import OrderedDict, deque
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
from flax import nnx

import lccodec
from lccodec import Chain, ChecksumError
from lccodec.adapters import jax as adapter
from lccodec.adapters import jax as states
from lccodec.adapters import torch as in_torch
from lccodec.adapters.jax import leaves
from lccodec.chain.read import replay
from lccodec.errors import ArgumentError, FormatError, LccodecWarning

from ...support.jax_processes import be_quick, coordinator, finish, run, with_quick_flags
from ...support.jax_trees import (
    BYTES,
    DTYPES,
    FLOATS,
    INTEGERS,
    Unkeyed,
    assert_same,
    assert_same_tree,
    parts,
    random_array,
    train,
)
from ...support.walks import save_all


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
        save_all(chain, trees)
        for step, tree in enumerate(trees):
            assert_same(chain.restore(step), tree)
        part = chain.restore(1, keys=["float8_e5m2", "bfloat16"])
    assert_same(part, {name: trees[1][name] for name in ("bfloat16", "float8_e5m2")})


def test_a_lossy_delta_in_memory():
    tree = {"params": {"kernel": jnp.linspace(-1, 1, 10_000)}, "half": jnp.ones(3, jnp.bfloat16)}
    moved = jax.tree.map(lambda x: x + x.dtype.type(1e-3), tree)
    held = adapter.load(adapter.save(tree))
    update = adapter.save(moved, policy="balanced", reference=held)
    assert len(update) < len(adapter.save(moved)) / 4
    with pytest.raises(lccodec.ChainError):
        adapter.load(update)
    for target in (None, jax.eval_shape(lambda: tree)):
        found = adapter.load(update, target, reference=held)
        assert found["half"].dtype == jnp.bfloat16
        assert abs(found["params"]["kernel"] - moved["params"]["kernel"]).max() < 1e-3


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


def test_numpy_arrays_of_the_other_byte_order():
    values = np.linspace(-1, 1, 5, dtype="f4")
    other = {"x": values.astype(values.dtype.newbyteorder("S"))}
    assert adapter.from_numpy(other, {})["x"].tolist() == values.tolist()
    for target in (other, {"x": values}, {"x": jnp.zeros(5)}):
        assert adapter.load(adapter.save(other), target)["x"].tolist() == values.tolist()
        assert adapter.load_into(target, other)["x"].tolist() == values.tolist()


@pytest.mark.parametrize("name", ["float64", "int64", "complex128"])
def test_64_bits_are_not_rounded_to_32(name):
    data = lccodec.save({"x": np.ones(2, name)})
    with pytest.raises(ArgumentError, match=f"array 'x' is {name}, which JAX has only with jax_enable_x64"):
        adapter.load(data)
    with pytest.raises(ArgumentError, match="jax_enable_x64"):
        adapter.load(data, target={"x": jax.ShapeDtypeStruct((2,), name)})
    with pytest.raises(ArgumentError, match="set it, or choose others by keys=, or load it without the"):
        adapter.load(data)
    assert adapter.load(data, target={"x": np.zeros(2, name)})["x"].dtype == name


class Twice:
    """A node with two children of one name."""


jax.tree_util.register_pytree_with_keys(
    Twice,
    lambda _: (((jax.tree_util.DictKey("a"), 1), (jax.tree_util.DictKey("a"), 2)), None),
    lambda *_: Twice(),
)


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


def test_sharded_arrays_are_gathered_and_go_where_the_target_says(tmp_path):
    output = finish(run(SHARDED, str(tmp_path / "a.lcc.h5"), devices=4))
    assert output.startswith("ArgumentError the state does not fit the target\n  b: ")


def test_an_array_of_two_processes(tmp_path):
    with coordinator() as address:
        processes = [run(PROCESSES, str(tmp_path / "a"), address, str(rank)) for rank in range(2)]
        outputs = [finish(process) for process in processes]
    for output in outputs:
        assert "ArgumentError state entry 'w' is an array of several processes" in output
        assert output.endswith("done\n")


RUN = """
import sys, lccodec
from flax import nnx
from lccodec.adapters import jax as adapter
from tests.support.jax_trees import parts, train
seed, first, directory, end = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
model, optimizer = parts(seed)
chain = lccodec.Chain(directory, policy="lossless", adapter=adapter)
if first:
    target = {"model": nnx.state(model), "optimizer": nnx.state(optimizer)}
    state = adapter.load_into(target, chain.restore())
    nnx.update(model, state["model"])
    nnx.update(optimizer, state["optimizer"])
for step in range(first, 8):
    train(model, optimizer, range(step, step + 1))
    if step < 4:
        chain.save(step, {"model": nnx.state(model), "optimizer": nnx.state(optimizer)})
adapter.save_file({"model": nnx.state(model), "optimizer": nnx.state(optimizer)}, end)
"""


@pytest.mark.slow
def test_a_run_that_is_resumed_in_a_new_process_is_the_run_that_was_not_interrupted(tmp_path):
    """Each run has its own process: what XLA compiles may depend on what a process did before."""
    directory, ends = str(tmp_path / "run"), [tmp_path / "whole.lcc.h5", tmp_path / "resumed.lcc.h5"]
    finish(run(RUN, "0", "0", directory, str(ends[0])))
    finish(run(RUN, "5", "4", directory, str(ends[1])))
    assert ends[0].read_bytes() == ends[1].read_bytes()


def test_copies_of_arrays_on_other_devices_are_all_begun_before_one_is_awaited(monkeypatch):
    calls = []
    monkeypatch.setattr(states, "is_elsewhere", lambda array: array.ndim == 1)
    begin, take = type(jnp.ones(1)).copy_to_host_async, states.to_host
    monkeypatch.setattr(type(jnp.ones(1)), "copy_to_host_async", lambda a: [calls.append("begin"), begin(a)])
    monkeypatch.setattr(states, "to_host", lambda value: [calls.append("take"), take(value)][1])
    tied = jnp.arange(4.0)
    tree = {"a": tied, "b": [jnp.ones(3, jnp.bfloat16), tied], "n": 1}
    plain, metadata = adapter.to_numpy(tree)
    assert calls == ["begin", "begin", "begin", "take", "take"]
    assert plain["a"] is plain["b"][1]
    monkeypatch.undo()
    assert lccodec.save(plain, metadata) == lccodec.save(*adapter.to_numpy(tree))


@pytest.mark.parametrize("background", [False, True])
def test_what_a_save_leaves_out_stays_where_it_is(tmp_path, monkeypatch, background):
    taken, take = [], states.to_host
    monkeypatch.setattr(states, "to_host", lambda value: [taken.append(value.size), take(value)][1])
    tree = {"base": jnp.zeros(3000), "key": jax.random.key(0), "lora": {3: jnp.zeros(30)}}
    with lccodec.Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, tree)
        del taken[:]
        tree["lora"][3] += 1
        if background:
            chain.save_async(1, tree, only=["lora/*"]).result()
        else:
            chain.save(1, tree, only=["lora/*"])
        assert taken == [30]
        found = chain.restore()
    assert (found["lora"][3] == 1).all()
    assert found["key"] == tree["key"]
    assert found["base"].shape == (3000,)


def test_flags_of_a_user_stay_and_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests add flags of their own, once: a worker of pytest-xdist begins with them."""
    monkeypatch.setattr(os, "environ", {"XLA_FLAGS": "--xla_dump_to=/somewhere"})
    for _ in range(2):
        be_quick()
        assert os.environ["XLA_FLAGS"] == with_quick_flags("--xla_dump_to=/somewhere")
        assert os.environ["XLA_FLAGS"].endswith("--xla_dump_to=/somewhere")


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
            "the state does not fit the target: strict=False skips what only one of the two has",
            "  missing: b/new (int32 ())",
            "  unexpected: b/gone (no array)",
            "  a: float32 (2, 3), where the target has float32 (3, 2)",
            "  b/c: float32 (4,), where the target has bfloat16 (4,)",
            "  key: key<fry> (), where the target has key<rbg> ()",
            "  n: no array, where the target has float32 ()",
        ]


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


def test_leaves_of_a_chain_go_to_the_target_as_they_arrive(tmp_path, monkeypatch):
    key = jax.random.key(3)
    tied = np.ones(4, np.float32)
    tree = {
        "large": {"a": jnp.arange(40000.0), "b": -jnp.arange(40000.0, dtype=jnp.bfloat16)},
        "few": (jnp.int8([1, 2]), [jnp.zeros((0, 3))], 4, None),
        "key": key,
        "host": np.float32([2.5]),
        "scalar": np.float32(0.5),
        "tied": [tied, tied],
        "queue": deque([np.ones(2), 3]),
        "step": 7,
    }
    with Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, {**tree, "large": {"a": jnp.zeros(40000), "b": jnp.zeros(40000, jnp.bfloat16)}})
        chain.save(1, tree)
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    target = {
        **tree,
        "large": jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree["large"]
        ),
        "step": jnp.int32(0),
    }
    placed, decode = [], replay.decode_components
    monkeypatch.setattr("lccodec.adapters.jax.placed", lambda value, *_: placed.append(value) or value)
    seen = []
    monkeypatch.setattr(
        replay, "decode_components", lambda *a, **o: seen.append(len(placed)) or decode(*a, **o)
    )
    adapter.load_into(target, chain.restore_iter())
    assert seen[:4] == [0, 0, 1, 1]
    monkeypatch.undo()
    whole = adapter.load_into(target, chain.restore())
    back = adapter.load_into(target, chain.restore_iter())
    assert jax.tree.structure(back) == jax.tree.structure(whole)
    queue, other = back.pop("queue"), whole.pop("queue")
    assert (queue[0].tolist(), queue[1]) == (other[0].tolist(), other[1])
    for found, wanted in zip(jax.tree.leaves(back), jax.tree.leaves(whole), strict=True):
        assert type(found) is type(wanted)
        assert getattr(found, "dtype", None) == getattr(wanted, "dtype", None)
        assert (found == wanted).all() if hasattr(found, "all") else found == wanted
    part = adapter.load_into({"large": target["large"]}, chain.restore_iter(keys="large"))
    assert (part["large"]["a"] == tree["large"]["a"]).all()


def test_leaves_that_do_not_fit_are_refused_before_anything_is_decoded(tmp_path):
    with Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, {"a": jnp.float32([1, 2, 3]), "n": 1})
    path = next(tmp_path.iterdir())
    data = bytearray(path.read_bytes())
    data[data.index(np.float32([1, 2, 3]).tobytes())] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArgumentError) as caught:
        adapter.load_into({"a": jnp.ones(4)}, chain.restore_iter())
    assert str(caught.value).splitlines()[1:] == [
        "  unexpected: n (no array)",
        "  a: float32 (3,), where the target has float32 (4,)",
    ]
    with pytest.raises(ChecksumError):
        adapter.load_into({"a": jnp.ones(3), "n": 1}, chain.restore_iter())


def layered(value=1.0):
    return {
        "enc": {"w": jnp.full((2, 3), value), "b": jnp.full(3, value)},
        "head": jnp.full(4, value),
        "step": 3,
    }


@pytest.mark.parametrize("arriving", [False, True])
def test_not_strict_keeps_the_values_of_the_target(tmp_path, arriving):
    with Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, {**layered(), "old": jnp.ones(2)})
        state = chain.restore_iter() if arriving else chain.restore()
        reports = []
        target = {**layered(0.0), "new": jnp.full(5, 7.0), "also": 9}
        with pytest.warns(
            LccodecWarning, match=r"2 that the state lacks \((new, also|also, new)\), 1 that .*old"
        ):
            back = adapter.load_into(target, state, strict=False, report=reports.append)
        assert back["new"].tolist() == [7.0] * 5
        assert back["also"] == 9
        assert back["head"].tolist() == [1.0] * 4
        assert (reports[0].left_over, sorted(reports[0].missing)) == (["old"], ["also", "new"])
        assert sorted(reports[0].loaded) == ["enc/b", "enc/w", "head", "step"]
        abstract = {**target, "new": jax.ShapeDtypeStruct((5,), jnp.float32)}
        with pytest.raises(ArgumentError, match="new: is not in the state, and has no value"):
            adapter.load_into(abstract, chain.restore(), strict=False)
        with pytest.raises(ArgumentError, match=r"head: .*where the target has"):
            adapter.load_into({**target, "head": jnp.ones(5)}, chain.restore(), strict=False)
        with pytest.raises(ArgumentError, match="not one array of the state fits"):
            adapter.load_into({"other": jnp.ones(3), "step": 0}, chain.restore(), strict=False)


@pytest.mark.parametrize("arriving", [False, True])
def test_renamed_leaves_and_a_part_of_the_state(tmp_path, arriving):
    with Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, {"run": {"params": layered(), "opt": jnp.ones(2)}})

        def state():
            return chain.restore_iter() if arriving else chain.restore()

        reports = []
        target = {"encoder": {"w": jnp.zeros((2, 3)), "b": jnp.zeros(3)}, "head": jnp.zeros(4), "step": 0}
        rename = {"enc/*": "encoder/*"}
        back = adapter.load_into(target, state(), prefix="run/params", rename=rename, report=reports.append)
        assert back["encoder"]["w"].tolist() == [[1.0] * 3] * 2
        assert reports[0].renamed == {
            "run/params/enc/w": "encoder/w", "run/params/enc/b": "encoder/b"
        }  # fmt: skip
        for options, match in (
            ({"prefix": "run/param"}, "nothing under the prefix"),
            ({"prefix": 3}, "prefix must be a string"),
            ({"prefix": "run/params", "rename": {"x*": "y*"}}, "no name of the state fits 'x"),
            ({"prefix": "run/params", "rename": {"enc/w": "enc/b"}}, "would both be 'enc/b'"),
            ({"report": 1}, "report must be a function"),
        ):
            with pytest.raises(ArgumentError, match=match):
                adapter.load_into(target, state(), **options)
        assert chain.restore(keys=["run/params/enc/*"]).keys() == {"run/params/enc/w", "run/params/enc/b"}


def test_functions_stay_where_a_filter_left_none():
    target = {"activation": jnp.tanh, "w": jnp.zeros(2), "nothing": None}
    reports = []
    made = adapter.load_into(
        target, {"activation": None, "w": jnp.ones(2), "nothing": None}, report=reports.append
    )
    assert made["activation"] is jnp.tanh
    assert (made["w"].tolist(), made["nothing"]) == ([1, 1], None)
    assert (reports[0].loaded, reports[0].missing) == (["w", "nothing"], [])


@pytest.mark.parametrize("name", ["float6_e2m3fn", "float6_e3m2fn", "int1", "uint1"])
def test_every_value_comes_back(tmp_path, name):
    width = 6 if name.startswith("float6") else 1
    codes = np.arange(2**width, dtype=np.uint8).view(getattr(ml_dtypes, name))
    states = [{"w": np.resize(codes, 200)}, {"w": np.resize(codes[::-1], 200)}]
    with lccodec.Chain(tmp_path, policy="lc-2", adapter=adapter) as chain:
        save_all(chain, states)
        assert_same(chain.restore(0), states[0])
        assert_same(adapter.load_into(states[0], chain.restore_iter(1)), states[1])
    with pytest.raises(ArgumentError, match=f"{name}, which PyTorch does not have"):
        in_torch.load(adapter.save(states[0]))

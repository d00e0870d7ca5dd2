"""A tree of JAX comes back as it was saved: every type and bit, on every device."""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lccodec
from lccodec.adapters import jax as adapter
from lccodec.adapters import jax as states
from lccodec.errors import ArgumentError, FormatError

from ...support.jax_processes import be_quick, coordinator, finish, run, with_quick_flags
from ...support.jax_trees import (
    BYTES,
    DTYPES,
    FLOATS,
    INTEGERS,
    assert_same,
    random_array,
)


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


def test_the_newest_state_of_a_chain_is_exact(tmp_path):
    with lccodec.Chain(tmp_path, "lc-2", adapter=adapter, newest="exact") as chain:
        for step in range(2):
            kernel = jax.random.normal(jax.random.key(step), (300, 100))
            state = {"kernel": kernel, "half": kernel.astype(jnp.bfloat16), "step": step}
            chain.save(step, state)
        restored, lossy = chain.restore(), chain.restore(exact=False)
    for name in ("kernel", "half"):
        assert restored[name].dtype == state[name].dtype
        assert (np.asarray(restored[name]) == np.asarray(state[name])).all()
    assert not (np.asarray(lossy["kernel"]) == np.asarray(kernel)).all()


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

"""Orbax saves and restores through lccodec: by its managers of both APIs, in one process and in two."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import flax.nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import orbax.checkpoint.experimental.v1 as ocp1
import pytest

import lccodec
from lccodec.adapters.orbax import LCCheckpointHandler, LCHandler, LCRestore, LCSave
from lccodec.errors import ArgumentError, ChainError, ChecksumError, FormatError, UnsupportedError

WORKER = Path(__file__).parents[1] / "support" / "orbax_processes.py"


def state():
    weights = {
        "w": jnp.arange(6.0).reshape(3, 2),
        "b": jnp.ones(2, jnp.bfloat16),
        "f8": jnp.linspace(0, 1, 5).astype(jnp.float8_e4m3fn),
        "half": jnp.zeros((0, 3), jnp.float16),
        "on": jnp.array([True, False]),
        "z": jnp.array([1 + 2j]),
    }
    optimizer = optax.chain(optax.clip(1.0), optax.adam(1e-3), optax.trace(0.9))
    return {
        "params": weights,
        "opt": optimizer.init(weights),
        "key": jax.random.key(3),
        "keys": jax.random.split(jax.random.key(4, impl="rbg"), 3),
        "host": np.arange(4, dtype=np.int64),
        "scalar": np.float32(2.5),
        "epoch": 7, "lr": 0.1, "name": "run/1~", "flag": True, "nothing": None, "raw": b"\x00",
        "a/b": [1, (2.0, [])],
    }  # fmt: skip


def bits(leaf):
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf).tobytes() if hasattr(leaf, "dtype") else leaf


def check_same(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for (path, a), b in zip(jax.tree.leaves_with_path(found), jax.tree.leaves(expected), strict=True):
        assert isinstance(a, jax.Array) == isinstance(b, jax.Array), path
        assert getattr(a, "dtype", type(a)) == getattr(b, "dtype", type(b)), path
        assert bits(a) == bits(b), path


def abstract(tree):
    return jax.tree.map(
        lambda x: (
            jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) if isinstance(x, jax.Array) else x
        ),
        tree,
    )


def manager(path, handler=None, **options):
    options = ocp.CheckpointManagerOptions(**options)
    return ocp.CheckpointManager(path, item_handlers=handler or LCCheckpointHandler(), options=options)


@pytest.mark.parametrize("target", [abstract, lambda tree: tree], ids=["abstract", "arrays"])
@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_manager_saves_restores_and_keeps_so_many(tmp_path, target, asynchronous):
    saved = state()
    with manager(tmp_path, max_to_keep=2, enable_async_checkpointing=asynchronous) as steps:
        for step in range(4):
            saved["epoch"] = step
            steps.save(step, args=LCSave(saved))
        steps.wait_until_finished()
        assert steps.all_steps() == [2, 3]
        check_same(steps.restore(3, args=LCRestore(target(saved))), saved)
        assert steps.restore(2, args=LCRestore(target(saved)))["epoch"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3"]
    for path in tmp_path.rglob("*.h5"):
        assert lccodec.validate(path, deep=True) == []


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
    """Buffers are donated, and host arrays change, while a checkpoint is written in the background."""
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


def loss(weights, batch):
    hidden = jnp.tanh(batch @ weights["in"])
    return jnp.mean((hidden @ weights["out"] - jnp.sum(batch, 1)) ** 2)


OPTIMIZER = optax.adamw(0.01)


@jax.jit
def update(state):
    key, draw = jax.random.split(state["key"])
    gradients = jax.grad(loss)(state["weights"], jax.random.normal(draw, (32, 8)))
    updates, moments = OPTIMIZER.update(gradients, state["moments"], state["weights"])
    return {"weights": optax.apply_updates(state["weights"], updates), "moments": moments, "key": key}


def fresh():
    weights = {"in": jax.random.normal(jax.random.key(1), (8, 16)), "out": jnp.ones(16)}
    return {"weights": weights, "moments": OPTIMIZER.init(weights), "key": jax.random.key(0)}


@pytest.mark.slow
@pytest.mark.parametrize("chained", [False, True])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(tmp_path, chained):
    expected = fresh()
    for _ in range(20):
        expected = update(expected)

    chain = tmp_path / "chain" if chained else None
    with manager(tmp_path / "steps", LCCheckpointHandler(chain), max_to_keep=1) as steps:
        current = fresh()
        for step in range(1, 14):
            current = update(current)
            if step % 4 == 0:
                steps.save(step, args=LCSave(current))
    with manager(tmp_path / "steps", LCCheckpointHandler(chain), max_to_keep=1) as steps:
        assert steps.all_steps() == [12]
        current = steps.restore(12, args=LCRestore(abstract(fresh())))
        for _ in range(13, 21):
            current = update(current)
        steps.save(20, args=LCSave(current))
    check_same(current, expected)
    if chained:
        with lccodec.Chain(chain / "process-0") as kept:
            assert [kept.info(step).parent for step in kept.steps[:3]] == [None, 0, 1]


def test_deltas_are_small_and_survive_the_deletion_of_other_steps(tmp_path):
    handler = LCCheckpointHandler(tmp_path / "chain", policy="lc-2")
    weight = np.random.default_rng(0).standard_normal((200, 200), np.float32)
    with manager(tmp_path / "steps", handler, max_to_keep=1) as steps:
        for step in range(3):
            weight += 0.01 * np.random.default_rng(step).standard_normal((200, 200), np.float32)
            steps.save(step, args=LCSave({"w": weight}))
        steps.wait_until_finished()
        found = steps.restore(2, args=LCRestore())["w"]
    assert 0 < np.abs(found - weight).max() < 0.1
    sizes = [path.stat().st_size for path in sorted((tmp_path / "chain" / "process-0").iterdir())]
    assert max(sizes[1:]) < sizes[0] / 8
    with pytest.raises(ArgumentError, match="need a chain"):
        LCCheckpointHandler(policy="lc-2")


class Network(flax.nnx.Module):
    """Batch statistics, and a parameter with a name of its own."""

    def __init__(self, rngs):
        self.table = flax.nnx.Param(jax.random.normal(rngs(), (20, 30)))
        self.norm = flax.nnx.BatchNorm(400, rngs=rngs)


@pytest.mark.parametrize("form", ["nnx", "optax"])
def test_of_a_lossy_chain_only_what_structures_tell_is_inexact(tmp_path, form):
    handler = LCCheckpointHandler(tmp_path / "chain", policy="lc-3")
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


def context(handler=LCHandler):
    registry = ocp1.handlers.local_registry()
    registry.add(handler, checkpointable_name="training")
    options = ocp1.Context()
    options.checkpointables.registry = registry
    return options


def test_version_1_of_the_api(tmp_path):
    saved = state()
    with context():
        ocp1.save_checkpointables(tmp_path / "a", {"training": saved, "config": {"lr": 1}})
        ocp1.save_checkpointables_async(tmp_path / "b", {"training": saved}).result()
        for name in "ab":
            assert list((tmp_path / name / "training").glob("process-0.lcc.h5"))
            found = ocp1.load_checkpointables(tmp_path / name, {"training": abstract(saved)})
            check_same(found["training"], saved)
        found = ocp1.load_checkpointables(tmp_path / "a")
        assert found["config"] == {"lr": 1}
        assert np.array_equal(found["training"]["params"]["w"], saved["params"]["w"])
        seen = ocp1.checkpointables_metadata(tmp_path / "a").metadata["training"]
        assert seen["params"]["b"].dtype == jnp.bfloat16


def test_the_checkpointer_of_version_1_keeps_so_many(tmp_path):
    keep = ocp1.training.preservation_policies.LatestN(2)
    with ocp1.training.Checkpointer(tmp_path, context=context(), preservation_policy=keep) as steps:
        for step in range(4):
            steps.save_checkpointables(step, {"training": {"x": jnp.full(3, step)}})
        found = steps.load_checkpointables(3, {"training": {"x": jnp.zeros(3, int)}})
        assert found["training"]["x"].tolist() == [3, 3, 3]
        assert [checkpoint.step for checkpoint in steps.checkpoints] == [2, 3]


def test_a_handler_of_version_1_with_a_chain(tmp_path):
    class Deltas(LCHandler):
        options = {"chain": tmp_path / "chain", "policy": "lc-3"}  # noqa: RUF012

    with context(Deltas):
        for step in range(2):
            ocp1.save_checkpointables(tmp_path / str(step), {"training": {"x": np.full(9, step / 2)}})
        found = ocp1.load_checkpointables(tmp_path / "1", {"training": {"x": np.zeros(9)}})
    assert np.allclose(found["training"]["x"], 0.5)
    with lccodec.Chain(tmp_path / "chain" / "process-0") as chain:
        assert len(chain.steps) == 2


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


@pytest.mark.slow
def test_two_processes_save_their_shards_and_restore_others(tmp_path):
    command = [sys.executable, "-W", "ignore", str(WORKER), str(tmp_path), str(free_port())]
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    processes = [
        subprocess.Popen(
            [*command, str(process), "2"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for process in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    from ..support.orbax_processes import values

    # One process alone reads what two wrote; without one of their files it cannot.
    for name in ("alone", "deltas"):
        with manager(tmp_path / name) as steps:
            found = steps.restore(2, args=LCRestore())
            for key, value in values(2).items():
                assert np.array_equal(found["model"][key], value)
            place = tmp_path / name / "2" / "default" / "process-1.lcc.h5"
            shutil.copy(tmp_path / name / "2" / "default" / "process-0.lcc.h5", place)
            with pytest.raises(ChainError, match="of another process"):
                steps.restore(2, args=LCRestore())
            place.unlink()
            with pytest.raises(ChainError, match="process 1 is missing"):
                steps.restore(2, args=LCRestore())


@pytest.fixture
def saved(tmp_path):
    with manager(tmp_path) as steps:
        steps.save(0, args=LCSave({"w": jnp.ones((3, 2)), "n": 1, "k": jax.random.key(0)}))
        steps.wait_until_finished()
        yield steps, tmp_path / "0" / "default" / "process-0.lcc.h5"


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


def change(path, **entries):
    stored = lccodec.load_file(path)
    stored.update(entries)
    lccodec.save_file(stored, path)


@pytest.mark.parametrize(
    ("entries", "kind"),
    [
        ({"kind": "else"}, FormatError),
        ({"version": 9}, UnsupportedError),
        ({"processes": "x"}, FormatError),
        ({"table": "["}, FormatError),
        ({"table": "[[1]]"}, FormatError),
        ({"table": '[[["w"], {"shards": []}]]'}, FormatError),
        ({"table": '[[["w"], {"dtype": "nothing", "shape": [], "shards": []}]]'}, FormatError),
        ({"table": '[[["w"], {"dtype": "float32", "shape": [3], "shards": [[[0], [3], 4]]}]]'}, FormatError),
        (
            {"table": '[[["w"], {"dtype": "float32", "shape": [3, 2], "shards": [[[0], [3], 0]]}]]'},
            FormatError,
        ),
        ({"table": '[[["w"], {"dtype": "float32", "shape": [4], "shards": [[[0], [4], 0]]}]]'}, FormatError),
        ({"table": '[[["k"], {"dtype": "uint32", "impl": "?", "shape": [2], "shards": []}]]'}, FormatError),
        ({"table": '[[["w"], {"empty": "set"}]]'}, FormatError),
        ({"table": '[[["no such value"], {}]]'}, FormatError),
        ({"table": '[[["x"], {"dtype": "float32", "shape": [3], "shards": [[[0], [3], 0]]}]]'}, FormatError),
        ({"table": '[[["w"], {"dtype": "float32", "shape": [1e9], "shards": []}]]'}, FormatError),
        ({"table": '[[["w"], {"dtype": "float32", "shape": [1000000000], "shards": []}]]'}, FormatError),
    ],
)
def test_a_part_that_is_not_as_it_should_be(saved, entries, kind):
    change(saved[1], **entries)
    with pytest.raises(kind):
        saved[0].restore(0, args=LCRestore())


def test_a_damaged_part(saved):
    data = bytearray(saved[1].read_bytes())
    data[2100] ^= 1
    saved[1].write_bytes(data)
    with pytest.raises(ChecksumError):
        saved[0].restore(0, args=LCRestore())


def test_a_file_that_is_no_part(saved):
    lccodec.save_file({"x": 1}, saved[1])
    with pytest.raises(FormatError, match="not a part of a pytree"):
        saved[0].restore(0, args=LCRestore())
    with pytest.raises(ArgumentError, match="remote stores"):
        LCCheckpointHandler().restore("gs://bucket/x")

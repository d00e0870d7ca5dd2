"""Orbax saves and restores through lccodec: managers of both APIs, one process and two.

A tree goes into parts and comes back; what does not fit or cannot be saved is named.

The parts of a pytree: those that are damaged, hostile or of something else are refused.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import flax.nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import orbax.checkpoint.experimental.v1 as ocp1
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.adapters import chains as saver
from lccodec.adapters import orbax as handler_module
from lccodec.adapters.orbax import (
    VERSION,
    LCCheckpointHandler,
    LCHandler,
    LCRestore,
    LCSave,
    Parts,
    part_path,
    path_name,
    shard_key,
)
from lccodec.chain.read.links import PYTREE_KIND as KIND
from lccodec.constants import PAYLOAD_OFFSET
from lccodec.errors import (
    ArgumentError,
    ChainError,
    ChecksumError,
    FormatError,
    StorageError,
    UnsupportedError,
)

from ..support.damage import flip
from ..support.jax_processes import coordinator, with_devices
from ..support.processes import children


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


@pytest.fixture
def saved(tmp_path):
    with manager(tmp_path) as steps:
        steps.save(0, args=LCSave({"w": jnp.ones((3, 2)), "n": 1, "k": jax.random.key(0)}))
        steps.wait_until_finished()
        yield steps, tmp_path / "0" / "default" / "process-0.lcc.h5"


WORKER = Path(__file__).parents[1] / "support" / "orbax_processes.py"


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
@pytest.mark.parametrize("chained", [False, True, "background"])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(tmp_path, chained):
    expected = fresh()
    for _ in range(20):
        expected = update(expected)

    chain = tmp_path / "chain" if chained else None
    options = {"chain": chain, "background": chained == "background"}
    with manager(tmp_path / "steps", LCCheckpointHandler(**options), max_to_keep=1) as steps:
        current = fresh()
        for step in range(1, 14):
            current = update(current)
            if step % 4 == 0:
                steps.save(step, args=LCSave(current))
    with manager(tmp_path / "steps", LCCheckpointHandler(**options), max_to_keep=1) as steps:
        assert steps.all_steps() == [12]
        current = steps.restore(12, args=LCRestore(abstract(fresh())))
        for _ in range(13, 21):
            current = update(current)
        steps.save(20, args=LCSave(current))
    check_same(current, expected)
    if chained:
        with lccodec.Chain(chain / "process-0") as kept:
            assert kept.steps == [4, 8, 12, 20]
            assert [kept.info(step).parent for step in kept.steps[:3]] == [None, 4, 8]


def test_deltas_are_small_and_survive_the_deletion_of_other_steps(tmp_path):
    handler = LCCheckpointHandler(tmp_path / "chain", policy="lc-2", newest="history")
    weight = np.random.default_rng(0).standard_normal((200, 200), np.float32)
    with manager(tmp_path / "steps", handler, max_to_keep=1) as steps:
        for step in range(3):
            weight += 0.01 * np.random.default_rng(step).standard_normal((200, 200), np.float32)
            steps.save(step, args=LCSave({"w": weight}))
        steps.wait_until_finished()
        found = steps.restore(2, args=LCRestore())["w"]
    assert 0 < np.abs(found - weight).max() < 0.1
    sizes = [path.stat().st_size for path in sorted((tmp_path / "chain" / "process-0").glob("*.h5"))]
    assert max(sizes[1:]) < sizes[0] / 8
    with pytest.raises(ArgumentError, match="which need chain="):
        LCCheckpointHandler(policy="lc-2")


@pytest.mark.parametrize("prefix", [None, "ckpt"])
@pytest.mark.parametrize("background", [False, True])
def test_the_chain_has_the_steps_of_orbax(tmp_path, background, prefix):
    names = ocp.path.step.standard_name_format(step_prefix=prefix, step_format_fixed_length=8)
    handler = LCCheckpointHandler(tmp_path / "chain", background=background)
    with manager(tmp_path / "steps", handler, step_name_format=names) as steps:
        for step in (100, 250):
            steps.save(step, args=LCSave({"x": jnp.full(3, step)}))
        steps.wait_until_finished()
        assert steps.restore(100, args=LCRestore())["x"].tolist() == [100, 100, 100]
    assert lccodec.Chain(tmp_path / "chain" / "process-0").steps == [100, 250]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_in_the_background_the_tree_at_the_call_is_stored(tmp_path, asynchronous):
    saved, host = state(), np.arange(300_000.0)
    handler = LCCheckpointHandler(tmp_path / "chain", background=True)
    options = {"max_to_keep": 2, "enable_async_checkpointing": asynchronous}
    with manager(tmp_path / "steps", handler, **options) as steps:
        for step in range(4):
            saved |= {"epoch": step, "host": host}
            expected = {**saved, "host": host.copy()}
            steps.save(step, args=LCSave(saved))
            host += 1
        steps.wait_until_finished()
        assert steps.all_steps() == [2, 3]
        check_same(steps.restore(3, args=LCRestore(abstract(expected))), expected)
    assert children() == []


@pytest.mark.filterwarnings("ignore:.* step 0, which was saved last, is missing")
def test_a_failure_in_the_background_is_orbax_to_tell_once(tmp_path, monkeypatch):
    def refuse(*_):
        raise StorageError(28, "no room for the link")

    handler = LCCheckpointHandler(tmp_path / "chain", background=True)
    with manager(tmp_path / "steps", handler) as steps:
        with monkeypatch.context() as patch:
            patch.setattr(saver, "write_link", refuse)
            steps.save(0, args=LCSave({"x": jnp.ones(3)}))
            with pytest.raises(StorageError, match="no room for the link"):
                steps.wait_until_finished()
        (tmp_path / "chain").rename(tmp_path / "moved")
        (tmp_path / "chain").write_bytes(b"not a directory")
        with pytest.raises(StorageError):  # at once, or from the worker
            steps.save(1, args=LCSave({"x": jnp.ones(3)}))
            steps.wait_until_finished()
        (tmp_path / "chain").unlink()
        (tmp_path / "moved").rename(tmp_path / "chain")
        steps.save(2, args=LCSave({"x": jnp.zeros(3)}))
        steps.wait_until_finished()
        assert steps.restore(2, args=LCRestore())["x"].tolist() == [0, 0, 0]


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


@pytest.mark.parametrize("background", [False, True])
def test_a_handler_of_version_1_with_a_chain(tmp_path, background):
    class Deltas(LCHandler):
        options = {"chain": tmp_path / "chain", "policy": "lc-3", "background": background}  # noqa: RUF012

    with context(Deltas):
        for step in (70, 90):
            ocp1.save_checkpointables(tmp_path / str(step), {"training": {"x": np.full(9, step / 2)}})
        found = ocp1.load_checkpointables(tmp_path / "90", {"training": {"x": np.zeros(9)}})
    assert np.allclose(found["training"]["x"], 45)
    with lccodec.Chain(tmp_path / "chain" / "process-0") as chain:
        assert chain.steps == [70, 90]


@pytest.mark.slow
def test_two_processes_save_their_shards_and_restore_others(tmp_path):
    environment = {**os.environ, "XLA_FLAGS": with_devices(2)}
    with coordinator() as address:
        command = [sys.executable, "-W", "ignore", str(WORKER), str(tmp_path), address]
        processes = [
            subprocess.Popen(
                [*command, str(process), "2"],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for process in range(2)
        ]
        outputs = [process.communicate(timeout=240)[0].decode() for process in processes]
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


def test_each_checkpoint_is_exact(tmp_path):
    rng = np.random.default_rng(0)
    trees = [{"params": {"kernel": rng.standard_normal((200, 100), np.float32)}} for _ in range(3)]
    handler = LCCheckpointHandler(tmp_path / "chain", "lc-2", newest="exact")
    for step, tree in enumerate(trees):
        (tmp_path / f"{step}").mkdir()
        handler.save(tmp_path / f"{step}", LCSave(tree))
    found = [handler.restore(tmp_path / f"{step}")["params"]["kernel"] for step in range(3)]
    same = [np.array_equal(a, b["params"]["kernel"]) for a, b in zip(found, trees, strict=True)]
    assert same == [True, True, True]


def test_some_leaves_are_saved_once_all_of_them_are(tmp_path):
    handler = LCCheckpointHandler(tmp_path / "chain", only=["arrays/*lora*"])
    for step in range(3):
        tree = {"base": jnp.full(300, step), "lora": {"a": jnp.full(3, step)}, "step": step}
        (tmp_path / f"{step}").mkdir()
        handler.save(tmp_path / f"{step}", LCSave(tree))
    handler.close()
    found = handler.restore(tmp_path / "2")
    assert (found["base"][0], found["lora"]["a"][0], found["step"]) == (0, 2, 2)  # base was left out


def test_a_part_of_several_knows_the_names_of_its_arrays():
    part = {"processes": 2, "arrays": {"lora/a": np.ones(2), "w": np.ones(1)}}
    assert handler_module._names(part) == ["arrays/lora~1a", "arrays/w"]
    assert handler_module._names({**part, "processes": 1}) is None


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
    flip(saved[1], PAYLOAD_OFFSET + 28)
    with pytest.raises(ChecksumError):
        saved[0].restore(0, args=LCRestore())


def test_a_file_that_is_no_part(saved):
    lccodec.save_file({"x": 1}, saved[1])
    with pytest.raises(FormatError, match="not a part of a pytree"):
        saved[0].restore(0, args=LCRestore())
    with pytest.raises(ArgumentError, match="a path must be local"):
        LCCheckpointHandler().restore("gs://bucket/x")


SHAPE = (7, 5)
WHOLE = (slice(None),) * 2


def write_parts(directory, array, rows, columns):
    """Store an array in shards between some rows and columns, dealt out to two processes."""
    shards, arrays = [], [{}, {}]
    entry = {"dtype": str(array.dtype), "shape": list(array.shape), "shards": shards}
    bounds = [sorted({0, *cuts, size}) for cuts, size in zip((rows, columns), array.shape, strict=True)]
    for top, bottom in pairwise(bounds[0]):
        for start, stop in pairwise(bounds[1]):
            process = len(shards) % 2
            shards.append([[top, start], [bottom - top, stop - start], process])
    for offsets, sizes, process in shards:
        part = tuple(slice(begin, begin + size) for begin, size in zip(offsets, sizes, strict=True))
        arrays[process][shard_key("w", offsets, entry)] = array[part]
    for process in range(2):
        head = {"kind": KIND, "version": VERSION, "process": process, "processes": 2}
        table = json.dumps([[["w"], entry]] if process == 0 else [])
        more = {"table": table, "values": {}, "arrays": arrays[process]}
        lccodec.save_file({**head, **more}, part_path(directory, process))


def regions(size):
    """Stretches of an axis, as the sharding of a target has them."""
    bounds = st.lists(st.integers(0, size), min_size=2, max_size=2).map(sorted)
    return st.just(slice(None)) | bounds.map(lambda pair: slice(*pair))


@given(
    st.sets(st.integers(1, SHAPE[0] - 1)),
    st.sets(st.integers(1, SHAPE[1] - 1)),
    st.tuples(*map(regions, SHAPE)),
)
def test_any_region_is_put_together_of_any_shards(rows, columns, index):
    array = np.arange(35, dtype=np.int32).reshape(SHAPE)
    with tempfile.TemporaryDirectory() as name:
        write_parts(Path(name), array, rows, columns)
        with Parts(Path(name)) as parts:
            ((path, entry),) = parts.table
            parts.fetch([("w", entry, [index])])
            found = parts.region("w", entry, index)
            np.testing.assert_array_equal(found, array[index])
            parts.fetch([("w", entry, [WHOLE])])
            np.testing.assert_array_equal(parts.leaf(path, entry), array)


def test_only_the_parts_that_a_region_needs_are_opened(tmp_path):
    array = np.arange(35, dtype=np.int32).reshape(SHAPE)
    write_parts(tmp_path, array, {3}, set())
    part_path(tmp_path, 1).unlink()
    with Parts(tmp_path) as parts:
        ((_, entry),) = parts.table
        above = (slice(0, 3), slice(None))
        parts.fetch([("w", entry, [above])])
        np.testing.assert_array_equal(parts.region("w", entry, above), array[:3])
        with pytest.raises(ChainError, match="the part of process 1 is missing"):
            parts.fetch([("w", entry, [WHOLE])])


def test_a_part_of_another_process_is_refused(tmp_path):
    write_parts(tmp_path, np.zeros(SHAPE), {3}, set())
    shutil.copy(part_path(tmp_path, 0), part_path(tmp_path, 1))
    with Parts(tmp_path) as parts, pytest.raises(ChainError, match="the part of another process"):
        parts.fetch([("w", parts.table[0][1], [WHOLE])])


def test_keys_of_shards():
    assert shard_key("a/b", [0, 0], {"shards": [1]}) == "a/b"
    assert shard_key("a/b", [3, 0], {"shards": [1, 2]}) == "a/b/3,0"
    assert path_name(["a", 0, "b"]) == "a/0/b"

"""Orbax saves and restores through lccodec: managers of both APIs, one process and two."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import orbax.checkpoint.experimental.v1 as ocp1
import pytest

import lccodec
from lccodec.adapters import chains as saver
from lccodec.adapters import orbax as handler_module
from lccodec.adapters.orbax import LCCheckpointHandler, LCHandler, LCRestore, LCSave
from lccodec.errors import ArgumentError, ChainError, StorageError

from ...support.jax_processes import coordinator, with_devices
from ...support.orbax_states import abstract, check_same, manager, state
from ...support.processes import children

WORKER = Path(__file__).parents[2] / "support" / "orbax_processes.py"


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
    from ...support.orbax_processes import values

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

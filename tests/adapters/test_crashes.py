"""Every way to write a state for another program, and a kill or a loss of power at any moment.

A path that a program takes for a checkpoint is a whole one: of the state that was there before, or
of the new one; of the new one when that was reported as done. The nightly profile tries all states
of a crash, others a sample.

Of trainers with a lossy chain, a path loads the state that was saved to it bit for bit, whatever
operation a kill comes after.
"""

import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
import zstandard  # noqa: F401 - what is published is compressed with it
from accelerate import Accelerator
from safetensors.torch import load_file as load_weights
from safetensors.torch import save_file as save_weights
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

from lccodec import Chain, LccodecWarning, report
from lccodec.adapters import accelerate as accelerate_adapter
from lccodec.adapters import seals
from lccodec.adapters.accelerate import register
from lccodec.adapters.dcp import LCStorageReader, LCStorageWriter
from lccodec.adapters.files.states import load_file, save_file
from lccodec.adapters.huggingface import pack, unpack
from lccodec.adapters.lightning import LCCheckpointIO
from lccodec.adapters.orbax import LCCheckpointHandler, LCRestore, LCSave
from lccodec.adapters.transformers import LCCallback, unpacked
from lccodec.adapters.weights import publish

from ..support.crashes import Replay, put, tried
from ..support.models import bytes_of, read_file, write_model
from ..support.profiles import LONG

#: States of a crash that are tried of each.
SAMPLE = None if LONG else 8
#: Of the kills of a trainer, every so many is tried.
KILLS_APART = 3


def state(k: int) -> dict[str, Any]:
    return {f"layer{i}": np.full(60, k + i / 8, np.float32) for i in range(4)}


OLD, NEW = state(1), state(2)


@dataclass(frozen=True)
class Export:
    """A way to write the new state below a root.

    Parameters
    ----------
    before
        Writes the old one.
    act
        Writes the new one.
    read
        Returns the arrays that are found, as bytes; ``None`` if nothing is there.
    """

    before: Callable[[Path], object]
    act: Callable[[Path], object]
    read: Callable[[Path], dict[str, bytes] | None]


def file_of(name: str) -> Export:
    """A file of a format, in the place of an older one."""

    def save(root: Path, arrays: dict[str, Any]) -> None:
        save_file(arrays, root / name, {}, max_shard_bytes=300)

    def read(root: Path) -> dict[str, bytes] | None:
        return bytes_of(load_file(root / name)[0])

    return Export(lambda root: save(root, OLD), lambda root: save(root, NEW), read)


def new_file_of(name: str) -> Export:
    old = file_of(name)
    return Export(lambda _: None, old.act, lambda root: old.read(root) if (root / name).exists() else None)


def tensors(arrays: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def plain(found: dict[str, torch.Tensor]) -> dict[str, bytes]:
    return bytes_of({name: tensor.numpy() for name, tensor in found.items()})


def folder_of_weights(root: Path, arrays: dict[str, Any]) -> None:
    (root / "folder").mkdir(exist_ok=True)
    save_weights(tensors(arrays), root / "folder" / "model.safetensors", {"format": "pt"})


def packed(root: Path) -> None:
    folder_of_weights(root, NEW)
    pack(root / "folder")


def read_folder(root: Path) -> dict[str, bytes]:
    if not (root / "folder" / "model.safetensors").exists():
        unpack(root / "folder")
    return plain(load_weights(root / "folder" / "model.safetensors"))


def lightning(arrays: dict[str, Any], step: int) -> Callable[[Path], None]:
    def act(root: Path) -> None:
        plugin = LCCheckpointIO(chain=root / "chains" / "run", policy="lossless")
        plugin.save_checkpoint({"global_step": step, "w": tensors(arrays)}, root / "logs" / "last.ckpt")
        plugin.teardown()

    return act


def read_lightning(root: Path) -> dict[str, bytes] | None:
    if not (root / "logs" / "last.ckpt").exists():
        return None
    return plain(LCCheckpointIO().load_checkpoint(root / "logs" / "last.ckpt")["w"])


def distributed(arrays: dict[str, Any]) -> Callable[[Path], None]:
    def act(root: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch's, of a single process
            writer = LCStorageWriter(root / "dcp" / "run")
            dcp.save(tensors(arrays), storage_writer=writer, no_dist=True)

    return act


def read_distributed(root: Path) -> dict[str, bytes] | None:
    if not Chain(root / "dcp" / "run").steps:
        return None
    found = {name: torch.zeros(60) for name in OLD}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        dcp.load(found, storage_reader=LCStorageReader(root / "dcp" / "run"), no_dist=True)
    return plain(found)


def orbax(arrays: dict[str, Any], number: int) -> Callable[[Path], None]:
    def act(root: Path) -> None:
        handler = LCCheckpointHandler(root / "chains" / "run")
        (root / "steps").mkdir(exist_ok=True)  # by Orbax
        (root / "steps" / str(number)).mkdir()
        handler.save(root / "steps" / str(number), LCSave({n: jnp.asarray(a) for n, a in arrays.items()}))
        handler.close()

    return act


def read_orbax(root: Path) -> dict[str, bytes] | None:
    for number in (1, 0):
        if (root / "steps" / str(number) / "process-0.lcc.h5").exists():
            found = LCCheckpointHandler().restore(root / "steps" / str(number), LCRestore())
            return bytes_of({name: np.asarray(array) for name, array in found.items()})
    return None


def chain_of(root: Path) -> None:
    with Chain(root / "run", "lossless") as chain:
        chain.save(0, {"model": OLD})
        chain.save(1, {"model": NEW})


def model_of(root: Path) -> None:
    chain_of(root)
    write_model(root / "local", OLD, 1)
    (root / "local" / "config.json").write_text('{"precious": true}')


def published(root: Path) -> None:
    publish(root / "run", root / "engines" / "versions", prefix="model", like=root / "local", full=True)


def read_published(root: Path) -> dict[str, bytes] | None:
    versions, found = root / "engines" / "versions", None
    if (version := versions / "weight_v000001").exists():
        assert (version / "config.json").read_text() == '{"precious": true}'
        found = read_file(version / "model.safetensors")
    again = publish(root / "run", versions, prefix="model", like=root / "local")
    assert (again is None) == (found is not None)
    assert sorted(path.name for path in versions.iterdir()) == [".lccodec", "weight_v000001"]
    return found


def sealed(root: Path) -> None:
    save_file(NEW, root / "local" / "m.npz", {})
    seals.seal(root / "local", replace=True)


def read_sealed_folder(root: Path) -> dict[str, bytes]:
    """A seal is whole: it says that the files are as they were, or what has changed."""
    rules = {problem.rule for problem in seals.check(root / "local")}
    assert rules <= {"seal"}
    if not rules:
        return bytes_of(load_file(root / "local" / "m.npz")[0])
    (root / "local" / "lccodec.sha256").unlink()
    return bytes_of(load_file(root / "local" / "m.npz")[0])


def before_seal(root: Path) -> None:
    (root / "local").mkdir()
    save_file(OLD, root / "local" / "m.npz", {})
    seals.seal(root / "local")


def with_page(root: Path, k: int) -> None:
    report.write_page({"k": k}, root / "report.html")


def read_page(root: Path) -> dict[str, bytes]:
    return bytes_of({"1": OLD, "2": NEW}[(root / "report.html").read_text()])


EXPORTS = {
    **{name: file_of(name) for name in ("a.npz", "a.safetensors", "a.h5", "a.pt", "a.lcc.h5")},
    "shards": file_of("a.safetensors.index.json"),
    "new shards": new_file_of("a.safetensors.index.json"),
    "pack": Export(
        lambda root: folder_of_weights(root, NEW), lambda root: pack(root / "folder"), read_folder
    ),
    "unpack": Export(packed, lambda root: unpack(root / "folder"), read_folder),
    "lightning": Export(lightning(OLD, 1), lightning(NEW, 2), read_lightning),
    "lightning, new": Export(lambda _: None, lightning(NEW, 2), read_lightning),
    "dcp": Export(distributed(OLD), distributed(NEW), read_distributed),
    "dcp, new": Export(lambda _: None, distributed(NEW), read_distributed),
    "orbax": Export(orbax(OLD, 0), orbax(NEW, 1), read_orbax),
    "publish": Export(model_of, published, read_published),
    "seal": Export(before_seal, sealed, read_sealed_folder),
    "report": Export(lambda root: with_page(root, 1), lambda root: with_page(root, 2), read_page),
}

#: Of these, the directory of a step is made by somebody else, who does not flush it.
OF_OTHERS = {"orbax"}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTS)
def test_no_crash_leaves_a_part_of_a_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(report, "drawing_library", lambda: "")
    monkeypatch.setattr(report, "page", lambda document, _: str(document["k"]))
    export, root = EXPORTS[name], tmp_path / "root"
    root.mkdir()
    export.before(root)
    before = export.read(Path(shutil.copytree(root, tmp_path / "before")))  # which may go on with it

    def work(replay: Replay) -> None:
        export.act(root)
        replay.done()

    def check(reported: list[object], place: Path) -> None:
        expected = [bytes_of(NEW)] if reported and name not in OF_OTHERS else [before, bytes_of(NEW)]
        assert export.read(place) in expected

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LccodecWarning)
        assert tried(root, work, check, most=SAMPLE) == []


#: What is saved to a lossy chain, by step: weights that move, and moments.
STEPS = (4, 8, 12)


def trained(step: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return {name: torch.randn(40, 50, generator=generator) for name in ("weight", "exp_avg")}


def is_trained(found: dict[str, torch.Tensor], step: int) -> bool:
    return all(torch.equal(found[name], tensor) for name, tensor in trained(step).items())


def run_lightning(root: Path, replay: Replay) -> None:
    plugin = LCCheckpointIO(chain=root / "chain", policy="balanced")
    for step in STEPS:
        state = {"global_step": step, "state_dict": trained(step)}
        plugin.save_checkpoint(state, root / "logs" / f"best-{step}.ckpt")
        plugin.save_checkpoint({**state, "callbacks": {"last": step}}, root / "logs" / "last.ckpt")
        plugin.remove_checkpoint(root / "logs" / f"best-{step - 4}.ckpt")
        replay.done(step)
    plugin.teardown()


def check_lightning(reported: list[object], root: Path) -> None:
    paths = sorted((root / "logs").glob("*.ckpt"))
    assert len(paths) >= min(2, len(reported) + 1) or not reported
    for path in paths:
        found = LCCheckpointIO().load_checkpoint(path)
        assert path.name in ("last.ckpt", f"best-{found['global_step']}.ckpt")
        assert is_trained(found["state_dict"], found["global_step"])
        if path.name == "last.ckpt":
            assert found["global_step"] >= max(reported, default=0)


def run_transformers(root: Path, replay: Replay, *, best: bool) -> None:
    callback = LCCallback(root / "chain", "balanced")
    args = SimpleNamespace(output_dir=root, load_best_model_at_end=best, save_total_limit=2)
    callback.on_train_begin(args, SimpleNamespace(global_step=0), None)
    for step in STEPS:
        folder = root / f"checkpoint-{step}"
        folder.mkdir()
        arrays = trained(step)
        torch.save(
            {"state": {0: {"exp_avg": arrays["exp_avg"]}}, "param_groups": []}, folder / "optimizer.pt"
        )
        save_weights({"weight": arrays["weight"]}, folder / "model.safetensors", {"format": "pt"})
        replay.done(step)  # from now on the folder is a checkpoint
        callback.on_save(args, SimpleNamespace(global_step=step, is_world_process_zero=True), None)
    callback.on_train_end(args, None, None)


def check_folder(folder: Path, step: int) -> None:
    """It is what it was, or it is refused as long as it is packed."""
    for _ in range(2):
        if (folder / "model.safetensors").exists():
            arrays = load_weights(folder / "model.safetensors")
            moments = torch.load(folder / "optimizer.pt", weights_only=True)["state"][0]
            assert is_trained({**arrays, **moments}, step)
        unpacked(folder)
    assert (folder / "model.safetensors").exists()


def check_transformers(reported: list[object], root: Path) -> None:
    for step in reported:
        check_folder(root / f"checkpoint-{step}", int(str(step)))


def run_accelerate(root: Path, replay: Replay) -> None:
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(torch.nn.ParameterDict({"weight": torch.zeros(40, 50)}))
    register(accelerator, chain=root / "chain", policy="balanced")
    pack_with = accelerate_adapter.pack_with

    def packed(saver: Any, folder: Path, **options: Any) -> None:
        replay.done(folder.name)
        pack_with(saver, folder, **options)

    with mock.patch.object(accelerate_adapter, "pack_with", packed):
        for step in STEPS:
            with torch.no_grad():
                model["weight"].copy_(trained(step)["weight"])
            accelerator.save_state(str(root / str(step)))
    accelerator.end_training()


def check_accelerate(reported: list[object], root: Path) -> None:
    for name in reported:
        unpack(root / str(name)) if (root / str(name) / "lccodec.lcc.h5").exists() else None
        found = load_weights(root / str(name) / "model.safetensors")
        assert torch.equal(found["weight"], trained(int(str(name)))["weight"])


def run_dcp(root: Path, replay: Replay, *, shared: bool) -> None:
    """Two ranks, each with one of the tensors."""
    chain = None if shared else root / "chain"
    writers = [LCStorageWriter(root / "x", chain, "balanced") for _ in range(2)]
    for step in STEPS:
        planners = [DefaultSavePlanner(), DefaultSavePlanner()]
        for rank, (writer, planner) in enumerate(zip(writers, planners, strict=True)):
            name, tensor = list(trained(step).items())[rank]
            state = {name: tensor, "step": step} if rank == 0 else {name: tensor}
            writer.reset(root / "run" if shared else root / str(step))
            writer.set_up_storage_writer(rank == 0, rank=rank)
            planner.set_up_planner(state, None, rank == 0)
        plans, metadata = planners[0].create_global_plan([each.create_local_plan() for each in planners])
        results = []
        for writer, planner, plan in zip(writers, planners, plans, strict=True):
            results.append(writer.write_data(planner.finish_plan(plan), planner).wait())
        writers[0].finish(metadata, results)
        replay.done(step)


def check_dcp(reported: list[object], root: Path) -> None:
    places = [path.parent for path in root.glob("*/000*.lcc.h5")]
    assert len(set(places)) >= min(1, len(reported))
    for place in set(places):
        found: dict[str, Any] = {name: torch.zeros(40, 50) for name in trained(4)} | {"step": 0}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            dcp.load(found, storage_reader=LCStorageReader(place), no_dist=True)
        assert is_trained(found, found["step"])
        assert place.name in ("run", str(found["step"]))
        assert place.name != "run" or found["step"] >= max(reported, default=0)


TRAINERS: dict[str, tuple[Callable[[Path, Replay], None], Callable[[list[Any], Path], None]]] = {
    "lightning": (run_lightning, check_lightning),
    "transformers": (partial(run_transformers, best=False), check_transformers),
    "transformers, best": (partial(run_transformers, best=True), check_transformers),
    "accelerate": (run_accelerate, check_accelerate),
    "dcp": (partial(run_dcp, shared=False), check_dcp),
    "dcp, one path": (partial(run_dcp, shared=True), check_dcp),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINERS)
def test_each_path_loads_what_it_promised_whenever_it_is_killed(tmp_path: Path, name: str) -> None:
    run, check = TRAINERS[name]
    (root := tmp_path / "root").mkdir()
    with Replay(root) as replay:
        run(root, replay)
    states = list(replay.states(power=False))
    assert len(states) > 30
    for number, (reported, found) in enumerate(states):
        if LONG or number % KILLS_APART == 0 or number == len(states) - 1:
            place = put(found, tmp_path / str(number))
            check(reported, place)
            shutil.rmtree(place)

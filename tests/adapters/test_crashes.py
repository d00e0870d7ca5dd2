"""Every way to write a state for another program, and a kill or a loss of power at any moment.

A path that a program takes for a checkpoint is a whole one: of the state that was there before, or
of the new one; of the new one when that was reported as done. The nightly profile tries all states
of a crash, others a sample.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
import zstandard  # noqa: F401 - what is published is compressed with it
from safetensors.torch import load_file as load_weights
from safetensors.torch import save_file as save_weights

from lccodec import Chain, LccodecWarning
from lccodec.adapters import seals
from lccodec.adapters.dcp import LCStorageReader, LCStorageWriter
from lccodec.adapters.files.formats import load_file, save_file
from lccodec.adapters.huggingface import pack, unpack
from lccodec.adapters.lightning import LCCheckpointIO
from lccodec.adapters.orbax import LCCheckpointHandler, LCRestore, LCSave
from lccodec.adapters.weights import publish, pull
from lccodec.report import page

from ..support.crashes import Replay, tried
from ..support.models import bytes_of, read_file, read_model, write_model
from ..support.profiles import LONG

#: States of a crash that are tried of each.
SAMPLE = None if LONG else 8


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


def model_of(shards: int) -> Callable[[Path], None]:
    def before(root: Path) -> None:
        chain_of(root)
        write_model(root / "local", OLD, shards)
        (root / "local" / "config.json").write_text('{"precious": true}')

    return before


def pulled(root: Path) -> None:
    pull(root / "run", root / "local", prefix="model", start=0)


def read_local(root: Path) -> dict[str, bytes]:
    assert (root / "local" / "config.json").read_text() == '{"precious": true}'
    found = read_model(root / "local")
    pull(root / "run", root / "local", prefix="model")
    assert read_model(root / "local") == bytes_of(NEW)
    return found


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
    page.write_page({"k": k}, root / "report.html")


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
    "pull": Export(model_of(1), pulled, read_local),
    "pull, shards": Export(model_of(2), pulled, read_local),
    "publish": Export(model_of(1), published, read_published),
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
    monkeypatch.setattr(page, "drawing_library", lambda: "")
    monkeypatch.setattr(page, "page", lambda document, _: str(document["k"]))
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

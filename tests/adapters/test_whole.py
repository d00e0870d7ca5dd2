"""Whatever a path is: `convert`, `restore` and `load_file` give its whole state, or say why not."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

import lccodec
from lccodec import ArgumentError, Chain, FormatError
from lccodec.adapters import torch as adapter
from lccodec.adapters.chains import save_linked
from lccodec.adapters.dcp import LCStorageReader, LCStorageWriter, RankFile, Value, to_record
from lccodec.adapters.files.states import load_file, open_whole
from lccodec.adapters.huggingface import pack
from lccodec.adapters.orbax import LCCheckpointHandler, LCSave
from lccodec.adapters.weights import pull
from lccodec.chain.read.links import RECORD_KIND, Bounds
from lccodec.inspect.examination import examine

from ..support.commands import run, run_json

WEIGHT = torch.arange(40, dtype=torch.bfloat16).reshape(5, 8)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A checkpoint of DCP by one rank."""
    state = {"model": {"w": WEIGHT, "b": torch.ones(3)}, "steps": [1, torch.ones(2)], "rng": (1, None)}
    writer = LCStorageWriter(tmp_path / "latest", chain=tmp_path / "chain")
    dcp.save(state, checkpoint_id=tmp_path / "0", storage_writer=writer, no_dist=True)
    return tmp_path / "0"


def of_two_ranks(directory: Path, **changes: Any) -> Path:
    """A checkpoint of DCP with a tensor in two chunks, as two ranks write it."""
    parts, chunks = [], []
    for rank, rows in enumerate([slice(0, 2), slice(2, 5)]):
        with Chain(directory / f"rank-{rank}", "lossless", adapter=adapter) as chain:
            chain.save(0, {"model.w" if rank == 0 else "model.w/2,0": WEIGHT[rows]}, {"rank": str(rank)})
            parts.append(RankFile(f"rank-{rank}/000000000000.lcc.h5", chain.info(0).root))
        chunks.append(
            ChunkStorageMetadata(torch.Size([rows.start, 0]), torch.Size([rows.stop - rows.start, 8]))
        )
    properties = TensorProperties(dtype=torch.bfloat16)
    metadata = Metadata(
        {
            "model.w": TensorStorageMetadata(properties, torch.Size([5, 8]), chunks),
            "epoch": BytesStorageMetadata(),
        },
        {"model.w": ("model", "w"), "epoch": ("epoch",)},
        {
            **{MetadataIndex("model.w", c.offsets): part for c, part in zip(chunks, parts, strict=True)},
            MetadataIndex("epoch"): Value(7),
        },
    )
    record = to_record(metadata, ".") | changes
    with Chain(directory, "lossless") as chain:
        chain.save(0, *adapter.to_numpy(record, {"kind": RECORD_KIND}))
    return directory


def test_a_distributed_checkpoint_is_converted_whole(recorded: Path, tmp_path: Path) -> None:
    run("convert", recorded, tmp_path / "out.safetensors")
    found = safetensors.torch.load_file(tmp_path / "out.safetensors")
    assert torch.equal(found["model/w"], WEIGHT)
    run("restore", recorded, "-o", tmp_path / "out.pt")
    found = torch.load(tmp_path / "out.pt")
    assert torch.equal(found["model"]["w"], WEIGHT)
    assert (found["steps"][0], found["rng"]) == (1, (1, None))


@pytest.mark.parametrize("suffix", [".npz", ".lcc.h5", ".h5"])
def test_every_format_gets_the_tensors_of_all_ranks(tmp_path: Path, suffix: str) -> None:
    directory = of_two_ranks(tmp_path / "run")
    run("restore", directory, "-o", tmp_path / f"out{suffix}", "--dtype", "float32")
    state, _ = load_file(tmp_path / f"out{suffix}")
    flat = state if suffix == ".npz" else {"model/w": state["model"]["w"]}
    np.testing.assert_array_equal(flat["model/w"], WEIGHT.float().numpy())


def test_some_arrays_of_a_distributed_checkpoint(tmp_path: Path) -> None:
    directory = of_two_ranks(tmp_path / "run")
    run("restore", directory, "-o", tmp_path / "w.safetensors", "--key", "model", "--strip")
    assert torch.equal(safetensors.torch.load_file(tmp_path / "w.safetensors")["w"], WEIGHT)
    with open_whole(directory) as file:
        assert (file.keys(), file.state(["epoch"])) == (["model/w"], {"epoch": 7})
    _, stderr = run("restore", directory, "-o", tmp_path / "w.npz", "--key", "modle", code=2)
    assert "modle" in stderr


def test_the_state_without_a_target(tmp_path: Path) -> None:
    state = LCStorageReader(of_two_ranks(tmp_path / "run")).state()
    assert state["epoch"] == 7
    assert torch.equal(state["model"]["w"], WEIGHT)


def test_the_record_file_itself_and_a_file_saved_from_it(tmp_path: Path) -> None:
    file = of_two_ranks(tmp_path / "run") / "000000000000.lcc.h5"
    assert load_file(file)[0]["epoch"] == 7
    run("save", tmp_path / "chain", file)
    assert torch.equal(Chain(tmp_path / "chain", adapter=adapter).restore()["model"]["w"], WEIGHT)


ENTRY = {"dtype": "bfloat16", "requires_grad": False, "size": [5, 8]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"entries": {"model.w": {**ENTRY, "chunks": [[[0, 0], [2, 8], 0]]}}}, "do not make up"),
        (
            {"entries": {"model.w": {**ENTRY, "size": [1 << 40, 8], "chunks": [[[0, 0], [2, 8], 0]]}}},
            "do not make up",
        ),
        ({"entries": {"model.w": {**ENTRY, "chunks": [[[0, 0], [5, 8], 0]] * 2}}}, "do not make up"),
        (
            {"entries": {"model.w": {**ENTRY, "chunks": [[[0, 0], [3, 8], 0], [[3, 0], [2, 8], 1]]}}},
            "not as noted",
        ),
        ({"planner_data": {"model.w": ("model", "w"), "epoch": ("model", "w")}}, "two values"),
        ({"planner_data": {"model.w": ("model",), "epoch": ("model", "x")}}, "below another"),
        ({"planner_data": {"model.w": ("model", 1.5)}}, "path"),
        ({"planner_data": {"model.w": ("a",) * 100}}, "path"),
    ],
)
def test_a_record_that_lies_is_refused(tmp_path: Path, changes: Any, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        LCStorageReader(of_two_ranks(tmp_path / "run", **changes)).state()


def test_a_record_is_not_shown_as_a_state(recorded: Path, tmp_path: Path) -> None:
    path = recorded / "000000000000.lcc.h5"
    for call in (
        lambda: lccodec.load_file(path),
        lambda: lccodec.open(recorded).state(),
        lambda: lccodec.open(path).get("model.w"),
        lambda: next(iter(lccodec.follow(recorded, timeout=0))),
        lambda: Chain(recorded).average(last=1),
        lambda: lccodec.bundle(recorded, tmp_path / "run.lccb"),
        lambda: examine(recorded),
        lambda: examine(path),
    ):
        with pytest.raises(ArgumentError, match="the record of a distributed checkpoint: its tensors"):
            call()
    assert "the record of a distributed checkpoint" in run("info", recorded)[0]
    assert "the record of a distributed checkpoint" in run("ls", recorded)[0]


def test_a_model_is_not_pulled_from_a_record(recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    safetensors.torch.save_file({"w": WEIGHT}, tmp_path / "local" / "model.safetensors")
    with pytest.raises(ArgumentError, match="the record of a distributed checkpoint"):
        pull(recorded, tmp_path / "local")


def test_a_link_is_followed_or_refused(tmp_path: Path) -> None:
    with Chain(tmp_path / "chain", "lossless", newest="history") as chain:
        save_linked({"w": np.ones(3)}, tmp_path / "last.ckpt", {}, chain)
    path = tmp_path / "last.ckpt"
    with pytest.raises(ArgumentError, match=r"a link: .* `lccodec convert`"):
        lccodec.load_file(path)
    assert "a link" in run("info", path)[0]
    run("convert", path, tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as found:
        np.testing.assert_array_equal(found["w"], np.ones(3))


def test_the_folder_of_a_packed_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-3"
    folder.mkdir()
    safetensors.torch.save_file({"w": WEIGHT}, folder / "model.safetensors", {"format": "pt"})
    with Chain(tmp_path / "chain", "lossless") as chain:
        pack(folder, chain)
    run("convert", folder, tmp_path / "out.pt")
    found = torch.load(tmp_path / "out.pt")
    assert torch.equal(found["files"]["model.safetensors"]["w"], WEIGHT)


def test_a_checkpoint_of_orbax(tmp_path: Path) -> None:
    with ocp.CheckpointManager(tmp_path / "run", item_handlers=LCCheckpointHandler()) as manager:
        for step in range(2):
            manager.save(step, args=LCSave({"params": [jnp.ones((3, 2)), jax.random.key(1)], "epoch": step}))
        manager.wait_until_finished()
    _, stderr = run("convert", tmp_path / "run", tmp_path / "out.npz", code=2)
    place = tmp_path / "run" / "1" / "default"
    assert "2 steps of Orbax" in stderr and str(place) in stderr
    for path in (place, place / "process-0.lcc.h5"):
        run("convert", path, tmp_path / "out.npz")
        with np.load(tmp_path / "out.npz") as found:
            assert (found["params/0"].shape, found["epoch"]) == ((3, 2), 1)


def test_the_share_of_a_rank_is_said_to_be_one(tmp_path: Path) -> None:
    directory = of_two_ranks(tmp_path / "run")
    for place in (directory / "rank-1", directory / "rank-1" / "000000000000.lcc.h5"):
        _, stderr = run("convert", place, tmp_path / "out.safetensors")
        assert "only the share of rank 1" in stderr


def test_what_is_no_state_names_the_way_to_one(tmp_path: Path) -> None:
    of_two_ranks(tmp_path / "ranks")
    (tmp_path / "ranks" / "000000000000.lcc.h5").unlink()
    (tmp_path / "dcp").mkdir()
    (tmp_path / "dcp" / ".metadata").touch()
    (tmp_path / "versions" / "weight_v000001").mkdir(parents=True)
    (tmp_path / "skyrl" / "delta-00000001").mkdir(parents=True)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").touch()
    words = {
        "ranks": "2 ranks, each with its share",
        "dcp": "dcp_to_torch_save",
        "versions": "weight versions",
        "skyrl": "weight versions",
        "model": "model.safetensors",
    }
    for name, text in words.items():
        for verb in (["convert", tmp_path / name], ["restore", tmp_path / name, "-o"]):
            _, stderr = run(*verb, tmp_path / "out.npz", code=2)
            assert text in stderr
    assert not (tmp_path / "out.npz").exists()


def test_a_delta_between_weight_versions_is_no_model(tmp_path: Path) -> None:
    version = tmp_path / "weight_v000002"
    version.mkdir()
    safetensors.torch.save_file({"w": WEIGHT.view(torch.uint8)}, version / "model-00000-of-00001.safetensors")
    about = {"version": "000002", "base_version": "000001", "delta_encoding": "xor"}
    about |= {"compression_format": "zstd", "checksum_format": "adler32"}
    index = {"metadata": about, "weight_map": {"w": "model-00000-of-00001.safetensors"}}
    (version / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in ("model.safetensors.index.json", "model-00000-of-00001.safetensors"):
        _, stderr = run("convert", version / name, tmp_path / "out.npz", code=2)
        assert "a delta between weight versions" in stderr


def test_bounds_are_of_single_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="bounds"):
        open_whole(of_two_ranks(tmp_path / "run"), bounds=Bounds(max_bytes=10))
    document = run_json("info", tmp_path / "run" / "rank-0")
    assert document["metadata"]["rank"] == "0"

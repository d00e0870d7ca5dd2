"""The large files of a folder go into one checkpoint, and come back as they were."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import lccodec
from lccodec.adapters.chains import PACKED
from lccodec.adapters.huggingface import pack, unpack
from lccodec.adapters.transformers import unpacked
from lccodec.errors import ArgumentError, ChainError, FormatError, StorageError


@pytest.fixture
def folder(tmp_path):
    tensors = {
        "w": torch.randn(5, 3),
        "half": torch.ones(2).bfloat16(),
        "f8": torch.ones(3).to(torch.float8_e5m2),
    }
    place = tmp_path / "folder"
    (place / "sub").mkdir(parents=True)
    save_file(tensors, place / "model-00001-of-00002.safetensors", {"format": "pt"})
    save_file({"v": torch.zeros(2)}, place / "sub" / "adapter_model.safetensors")
    moments = {0: {"exp_avg": torch.ones(2), "step": torch.tensor(3.0)}}
    torch.save({"state": moments, "param_groups": [{"params": [0]}]}, place / "optimizer.pt")
    (place / "config.json").write_text("{}")
    return place


def contents(folder):
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".safetensors":
            found[path.name] = load_file(path)
        elif path.suffix == ".pt":
            found[path.name] = torch.load(path, weights_only=True)
        elif path.is_file() and path.name != PACKED:
            found[path.name] = path.read_text()
    return found


def test_all_files_come_back_as_they_were(folder):
    before = contents(folder)
    assert len(pack(folder)) == 3
    assert [path.name for path in folder.iterdir() if path.is_file()] != []
    assert list(contents(folder)) == ["config.json"]
    assert lccodec.validate(folder / PACKED, deep=True) == []
    assert len(unpack(folder)) == 3
    after = contents(folder)
    assert after.pop("config.json") == before.pop("config.json")
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert unpack(folder) == []  # what is there stays
    assert pack(folder.parent / "empty") == []


@pytest.mark.parametrize("name", ["../optimizer.pt", "/tmp/optimizer.pt", "config.json", "link/optimizer.pt"])  # noqa: S108
def test_files_outside_of_the_folder_are_never_written(folder, name, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (folder / "link").symlink_to(outside)
    lccodec.save_file({"files": {name: {}}, "metadata": {}}, folder / PACKED)
    with pytest.raises(FormatError, match="not a large file of the folder"):
        unpack(folder)
    assert list(outside.iterdir()) == []
    lccodec.save_file({"x": 1}, folder / PACKED)
    with pytest.raises(FormatError, match="not the large files"):
        unpack(folder)


def test_what_cannot_be_packed_is_named_and_nothing_is_removed(folder):
    torch.save({"x": test_all_files_come_back_as_they_were}, folder / "optimizer_1.pt")
    with pytest.raises(ArgumentError, match=r"optimizer_1.pt: holds objects"):
        pack(folder)
    (folder / "optimizer_1.pt").write_bytes(b"PK\x03\x04")
    with pytest.raises(FormatError, match=r"optimizer_1.pt"):
        pack(folder)
    (folder / "optimizer_1.pt").unlink()
    (folder / "a.safetensors").write_bytes(b"nothing")
    with pytest.raises(FormatError, match=r"a.safetensors"):
        pack(folder)
    assert (folder / "optimizer.pt").exists()
    assert not (folder / PACKED).exists()
    with pytest.raises(StorageError):
        unpack(folder)
    assert unpacked(folder) == str(folder)


@pytest.mark.parametrize("policy", ["lossless", "balanced"])
def test_a_folder_needs_no_chain(folder, tmp_path, policy):
    (folder / "config.json").unlink()
    model = torch.nn.ModuleDict({"fc": torch.nn.Linear(90, 90)})
    save_file(model.state_dict(), folder / "model.safetensors")
    before = contents(folder)
    with lccodec.Chain(tmp_path / "chain", policy) as chain:
        pack(folder, chain, models=[model])
        assert any(array.lossy for array in chain.info().arrays) == (policy == "balanced")
    shutil.rmtree(tmp_path / "chain")
    unpacked(folder)
    torch.testing.assert_close(contents(folder), before, rtol=0, atol=0)


def test_a_history_that_is_gone(folder, tmp_path):
    with lccodec.Chain(tmp_path / "chain", newest="history") as chain:
        pack(folder, chain)
    shutil.rmtree(tmp_path / "chain")
    with pytest.raises(ChainError, match="is missing"):
        unpacked(folder)


def test_files_of_weights_go_first_and_come_last(folder, monkeypatch):
    """A library that finds weights without the optimizer's state resumes without a word."""
    gone = []
    monkeypatch.setattr(Path, "unlink", lambda path, **_: gone.append(path.name))
    pack(folder)
    monkeypatch.undo()
    assert [name for name in gone if not name.startswith(".")][-1] == "optimizer.pt"
    for path in (*folder.rglob("*.safetensors"), folder / "optimizer.pt"):
        path.unlink()
    assert next(path.name for path in unpack(folder)) == "optimizer.pt"


def test_shards_that_are_not_packed_are_named(folder):
    (folder / "optimizer_0").mkdir()
    (folder / "optimizer_0" / "__0_0.distcp").write_bytes(b"x")
    (folder / "global_step4").mkdir()
    (folder / "global_step4" / "zero_pp_rank_0_mp_rank_00_optim_states.pt").write_bytes(b"x")
    with pytest.warns(lccodec.LccodecWarning, match=r"not packed.*optim_states.pt, .*__0_0.distcp"):
        pack(folder)

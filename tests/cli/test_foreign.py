"""What info says of files of other kinds, and that the commands it names do what it says."""

import shlex

import h5py
import numpy as np
import pytest
import torch

import lccodec
from lccodec.adapters import npz, safetensors
from lccodec.cli.convert import describe_foreign

from ..support.commands import run, run_json


def written(directory):
    state = {"w": np.arange(6.0)}
    safetensors.save_file(state, directory / "a model.safetensors")
    safetensors.save_file(state, directory / "model.safetensors.index.json")
    npz.save_file(state, directory / "a.npz")
    torch.save({"w": torch.arange(6.0)}, directory / "a.ckpt")
    with h5py.File(directory / "a.weights.h5", "w") as file:
        file["w"] = state["w"]
    return {
        "a model.safetensors": "safetensors",
        "model.safetensors.index.json": "safetensors-index",
        "a.npz": "npz",
        "a.ckpt": "torch",
        "a.weights.h5": "hdf5",
    }


def test_files_that_are_read_come_with_commands(tmp_path):
    for name, kind in written(tmp_path).items():
        path = tmp_path / name
        document = run_json("info", path)
        assert (document["kind"], document["bytes"]) == (kind, path.stat().st_size)
        stdout, _ = run("info", path)
        assert stdout.startswith(f"{path}: {document['title']}, ")
        for command in document["commands"]:
            assert command in stdout
            words = shlex.split(command)[1:]
            run(*[str(tmp_path / f"run-{kind}") if word == "DIR" else word for word in words])
        output = shlex.split(document["commands"][0])[-1]
        for made in (output, tmp_path / f"run-{kind}" / "000000000000.lcc.h5"):
            with lccodec.open(made) as file:
                assert file.get("w").tolist() == [0, 1, 2, 3, 4, 5]


def test_a_suffix_of_another_kind(tmp_path):
    torch.save({"w": torch.ones(2)}, tmp_path / "model.bin")
    document = run_json("info", tmp_path / "model.bin")
    assert document["commands"] == []
    assert document["advice"].startswith("give it the suffix .pt")
    assert "give it the suffix .pt" in run("info", tmp_path / "model.bin")[0]


@pytest.mark.parametrize(("data", "advice"), [(b"", "nothing is in it"), (b"\x80\x04N.", "if you trust it")])
def test_files_that_are_not_read_come_with_advice(tmp_path, data, advice):
    (tmp_path / "a").write_bytes(data)
    assert advice in run("info", tmp_path / "a")[0]


def test_what_is_no_known_kind_is_an_error_as_before(tmp_path):
    (tmp_path / "a").write_bytes(b"hello")
    assert describe_foreign(tmp_path / "a") is None
    assert "not an lccodec checkpoint" in run("info", tmp_path / "a", code=1)[1]
    data = lccodec.save({"w": np.ones(3)})
    for damaged in (data[:-1], data + b"!", data[:200]):
        (tmp_path / "a").write_bytes(damaged)
        run("info", tmp_path / "a", code=1)

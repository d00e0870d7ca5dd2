"""Paths that the adapters get: an address, or what is no path, is refused wherever it comes in."""

import contextlib
import os
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from click.testing import CliRunner

import lccodec
from lccodec.adapters import files, folder, npz, safetensors, transformers
from lccodec.adapters import jax as in_jax
from lccodec.adapters import torch as in_torch
from lccodec.adapters.accelerate import register
from lccodec.adapters.dcp import LCStorageReader, LCStorageWriter
from lccodec.adapters.lightning import LCCheckpointIO
from lccodec.adapters.orbax import LCCheckpointHandler, LCRestore, LCSave
from lccodec.cli import program
from lccodec.errors import ArgumentError, LccodecError
from lccodec.system import checked_path

STATE = {"w": np.ones(3)}

ADDRESSES = [
    "s3://bucket/run",
    "gs://bucket/run",
    "memory://run",
    "file:///tmp/run",
    "hf://user/repo",
    "simplecache::s3://bucket/run",
    Path("s3://bucket/run"),
    Path("memory://run"),
    PurePosixPath("gs://bucket/run"),
]

#: Every door by which a path comes in. What it does with a path of the file system does not matter here.
DOORS = {
    "save_file": lambda path: lccodec.save_file(STATE, path),
    "load_file": lccodec.load_file,
    "open": lccodec.open,
    "npz.save_file": lambda path: npz.save_file(STATE, path),
    "npz.load_file": npz.load_file,
    "safetensors.save_file": lambda path: safetensors.save_file(STATE, path),
    "safetensors.load_file": safetensors.load_file,
    "safetensors.load_metadata": safetensors.load_metadata,
    "torch.save_file": lambda path: in_torch.save_file({"w": torch.ones(3)}, path),
    "torch.load_file": in_torch.load_file,
    "jax.save_file": lambda path: in_jax.save_file(STATE, path),
    "jax.load_file": in_jax.load_file,
    "files.save_file": lambda path: files.save_file(STATE, path, {}),
    "files.load_file": files.load_file,
    "folder.pack": folder.pack,
    "folder.unpack": folder.unpack,
    "transformers.unpacked": transformers.unpacked,
    "transformers chain": transformers.LCCallback,
    "accelerate chain": lambda path: register(Accelerator(cpu=True), path),
    "lightning chain": LCCheckpointIO,
    "lightning save": lambda path: LCCheckpointIO().save_checkpoint({}, path),
    "lightning load": lambda path: LCCheckpointIO().load_checkpoint(path),
    "lightning remove": lambda path: LCCheckpointIO().remove_checkpoint(path),
    "dcp writer": LCStorageWriter,
    "dcp chain": lambda path: LCStorageWriter("run", path),
    "dcp writer reset": lambda path: LCStorageWriter("run").reset(path),
    "dcp reader": LCStorageReader,
    "dcp reader reset": lambda path: LCStorageReader("run").reset(path),
    "orbax chain": LCCheckpointHandler,
    "orbax save": lambda path: LCCheckpointHandler().save(path, LCSave(STATE)),
    "orbax restore": lambda path: LCCheckpointHandler().restore(path, LCRestore()),
    "orbax metadata": lambda path: LCCheckpointHandler().metadata(path),
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """What a door makes of an address would be a directory here."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("door", DOORS)
def test_an_address_is_refused_by_name_and_leaves_nothing(tmp_path, door):
    for address in ADDRESSES:
        with pytest.raises(ArgumentError, match="remote stores are not there yet") as caught:
            DOORS[door](address)
        assert str(address) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        "save s3://bucket/run a.npz",
        "restore s3://bucket/run -o a.npz",
        "restore run -o s3://bucket/a.npz",
        "convert a.npz s3://bucket/a.npz",
        "convert s3://bucket/a.npz b.npz",
        "ls s3://bucket/run",
        "info gs://bucket/run",
        "check memory://run",
        "demo --directory s3://bucket/run",
    ],
)
def test_the_command_refuses_addresses(tmp_path, words):
    np.savez(tmp_path / "a.npz", w=np.ones(3))
    with lccodec.Chain(tmp_path / "run") as chain:
        chain.save(0, STATE)
    result = CliRunner().invoke(program, words.split())
    assert result.exit_code == 2
    assert "remote stores are not there yet" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "run"]


def test_what_looks_like_an_address_and_is_a_path(tmp_path):
    paths = ["C:/run", "C:\\run", "a:b", "a/b:/c", "/s3:/b", "./run", str(tmp_path), "12:/x", "-a:/x"]
    for path in paths:
        assert checked_path(path) == Path(path)
        assert checked_path(Path(path)) == Path(path)


ODD = [None, "", "a\0b", "x" * 300, 3.5, 3, b"x", object(), "a\ud800", ".", "fifo", "file/x"]


@pytest.mark.parametrize("door", DOORS)
def test_an_odd_path_is_an_error_of_the_taxonomy_or_fine(tmp_path, door):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_bytes(b"")
    for odd in ODD:
        with contextlib.suppress(LccodecError):
            DOORS[door](odd)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".lcc.h5", ".safetensors.index.json"])
def test_a_fifo_and_a_directory_are_told_and_do_not_hang(tmp_path, suffix):
    os.mkfifo(tmp_path / f"fifo{suffix}")
    (tmp_path / f"directory{suffix}").mkdir()
    for name in ("fifo", "directory"):
        with pytest.raises(LccodecError):
            files.load_file(tmp_path / f"{name}{suffix}")
    for load in (safetensors.load_file, safetensors.load_metadata, npz.load_file):
        with pytest.raises(LccodecError, match="not a regular file"):
            load(tmp_path / f"fifo{suffix}")

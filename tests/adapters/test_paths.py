"""Paths that the adapters get: an address, or what is no path, is refused wherever it comes in."""

import contextlib
import json
import os
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from click.testing import CliRunner

import lccodec
from lccodec.adapters import hdf5, npz, safetensors, transformers
from lccodec.adapters import huggingface as folder
from lccodec.adapters import jax as in_jax
from lccodec.adapters import torch as in_torch
from lccodec.adapters.accelerate import register
from lccodec.adapters.dcp import LCStorageReader, LCStorageWriter
from lccodec.adapters.files import shards, states, structure
from lccodec.adapters.files.formats import recognize
from lccodec.adapters.lightning import LCCheckpointIO
from lccodec.adapters.orbax import LCCheckpointHandler, LCRestore, LCSave
from lccodec.adapters.torch.archive import load_archive
from lccodec.cli.program import program
from lccodec.container.system import checked_path
from lccodec.errors import ArgumentError, LccodecError

STATE = {"w": np.ones(3, np.float32)}

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

#: Every door by which a path comes in. What it does with a path of the file system does not matter
#: here.
DOORS = {
    "save_file": lambda path: lccodec.save_file(STATE, path),
    "load_file": lccodec.load_file,
    "npz.save_file": lambda path: npz.save_file(STATE, path),
    "npz.load_file": npz.load_file,
    "hdf5.save_file": lambda path: hdf5.save_file(STATE, path),
    "hdf5.load_state": hdf5.load_state,
    "torch.load_archive": load_archive,
    "files.recognize": recognize,
    "safetensors.save_file": lambda path: safetensors.save_file(STATE, path),
    "safetensors.load_file": safetensors.load_file,
    "safetensors.load_metadata": safetensors.load_metadata,
    "torch.save_file": lambda path: in_torch.save_file({"w": torch.ones(3)}, path),
    "torch.load_file": in_torch.load_file,
    "jax.save_file": lambda path: in_jax.save_file(STATE, path),
    "jax.load_file": in_jax.load_file,
    "files.save_file": lambda path: states.save_file(STATE, path, {}),
    "files.load_file": states.load_file,
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
        with pytest.raises(ArgumentError, match="a path must be local") as caught:
            DOORS[door](address)
        assert str(address) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        "save s3://bucket/run a.npz",
        "restore run -o s3://bucket/a.npz",
        "convert a.npz s3://bucket/a.npz",
        "convert s3://bucket/a.npz b.npz",
        "demo --directory s3://bucket/run",
    ],
)
def test_the_command_refuses_addresses(tmp_path, words):
    np.savez(tmp_path / "a.npz", w=np.ones(3))
    with lccodec.Chain(tmp_path / "run") as chain:
        chain.save(0, STATE)
    result = CliRunner().invoke(program, words.split())
    assert result.exit_code == 2
    assert "a path must be local" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "run"]


def test_what_looks_like_an_address_and_is_a_path(tmp_path):
    paths = ["C:/run", "C:\\run", "a:b", "a/b:/c", "/s3:/b", "./run", str(tmp_path), "12:/x", "-a:/x"]
    for path in paths:
        assert checked_path(path) == Path.cwd() / path
        assert checked_path(Path(path)) == Path.cwd() / path


ODD = [None, "", "a\0b", "x" * 300, 3.5, 3, b"x", object(), "a\ud800", ".", "fifo", "file/x"]


@pytest.mark.parametrize("door", DOORS)
def test_an_odd_path_is_an_error_of_the_taxonomy_or_fine(tmp_path, door):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_bytes(b"")
    for odd in ODD:
        with contextlib.suppress(LccodecError):
            DOORS[door](odd)


@pytest.mark.parametrize(
    "suffix", [".npz", ".safetensors", ".lcc.h5", ".safetensors.index.json", ".h5", ".pt"]
)
def test_a_fifo_and_a_directory_are_told_and_do_not_hang(tmp_path, suffix):
    os.mkfifo(tmp_path / f"fifo{suffix}")
    (tmp_path / f"directory{suffix}").mkdir()
    for name in ("fifo", "directory"):
        with pytest.raises(LccodecError):
            states.load_file(tmp_path / f"{name}{suffix}")
    for load in (safetensors.load_file, safetensors.load_metadata, npz.load_file):
        with pytest.raises(LccodecError, match="not a regular file"):
            load(tmp_path / f"fifo{suffix}")


ARGUMENTS = [*ODD, [], {}, {1: 2}, {"a": 1}, {"a": "\ud800"}, {"\ud800": "a"}, {"a": None}, np.ones(2), -1]

#: Functions of the file formats, with arguments that are fine; each in turn becomes an odd one.
FUNCTIONS = {
    "npz.save_file": (npz.save_file, [STATE, "a.npz", {}]),
    "npz.load_file": (npz.load_file, ["there.npz"]),
    "hdf5.save_file": (hdf5.save_file, [STATE, "a.h5", {"k": "v"}]),
    "hdf5.load_state": (hdf5.load_state, ["there.h5"]),
    "hdf5.load_metadata": (hdf5.load_metadata, ["there.h5"]),
    "files.save_file index": (states.save_file, [STATE, "a.safetensors.index.json", {}, 100]),
    "safetensors.save_file": (safetensors.save_file, [STATE, "a.safetensors", {"k": "v"}]),
    "safetensors.load_file": (safetensors.load_file, ["there.safetensors"]),
    "safetensors.load_metadata": (safetensors.load_metadata, ["there.safetensors"]),
    "files.check_suffix": (states.check_suffix, ["a.npz"]),
    "files.save_file npz": (states.save_file, [STATE, "a.npz", {}]),
    "files.save_file safetensors": (states.save_file, [STATE, "a.safetensors", {}]),
    "files.save_file lcc": (states.save_file, [STATE, "a.lcc.h5", {}]),
    "files.load_file": (states.load_file, ["there.npz"]),
    "shards.read_index": (shards.read_index, ["there.safetensors.index.json"]),
    "shards.load_shards": (
        lambda path: shards.load_shards(path, safetensors.load_file),
        ["there.safetensors.index.json"],
    ),
    "structure.named_leaves": (structure.named_leaves, [STATE]),
    "torch.save": (in_torch.save, [STATE, {}]),
    "torch.save_file": (in_torch.save_file, [STATE, "a.lcc.h5", {}]),
    "torch.load": (in_torch.load, [in_torch.save({}), "cpu"]),
    "torch.check": (in_torch.check, [STATE]),
    "jax.load": (in_jax.load, [in_jax.save({}), None]),
    "safetensors.load_state": (safetensors.load_state, ["there.safetensors"]),
    "torch.load_file": (in_torch.load_file, ["there.lcc.h5", "cpu"]),
    "torch.to_numpy": (in_torch.to_numpy, [STATE, {}]),
    "torch.from_numpy": (in_torch.from_numpy, [STATE, {}, ""]),
    "jax.save": (in_jax.save, [STATE, {}]),
    "jax.save_file": (in_jax.save_file, [STATE, "a.lcc.h5", {}]),
    "jax.load_file": (in_jax.load_file, ["there.lcc.h5", None]),
    "jax.to_numpy": (in_jax.to_numpy, [STATE, {}]),
    "jax.from_numpy": (in_jax.from_numpy, [STATE, {}, ""]),
    "jax.load_into": (in_jax.load_into, [STATE, STATE]),
    "torch.load_into": (in_torch.load_into, [{"w": torch.ones(3)}, {"w": torch.ones(3)}]),
    "folder.pack": (folder.pack, ["folder"]),
    "folder.unpack": (folder.unpack, ["folder"]),
    "lightning.save_checkpoint": (LCCheckpointIO().save_checkpoint, [{}, "a.ckpt", None]),
    "lightning.load_checkpoint": (LCCheckpointIO().load_checkpoint, ["there.lcc.h5", "cpu"]),
    "lightning.remove_checkpoint": (LCCheckpointIO().remove_checkpoint, ["a.ckpt"]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_odd_arguments_are_errors_of_the_taxonomy_or_fine(tmp_path, name):
    function, fine = FUNCTIONS[name]
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    for suffix in (".npz", ".safetensors", ".lcc.h5", ".h5"):
        states.save_file({"w": np.ones(3, np.float32)}, f"there{suffix}", {})
    index = {"weight_map": {"w": "there.safetensors"}}
    (tmp_path / "there.safetensors.index.json").write_text(json.dumps(index))
    if not name.startswith("folder.unpack"):
        function(*fine)
    for position in range(len(fine)):
        for odd in ARGUMENTS:
            arguments = [*fine[:position], odd, *fine[position + 1 :]]
            try:
                function(*arguments)
            except LccodecError as error:
                assert str(error)
            except Exception as error:
                raise AssertionError(f"{name}{tuple(arguments)!r}: {error!r}") from error

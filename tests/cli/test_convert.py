"""The verb convert: files of every format, steps of a chain, with and without --json.

Sizes as people write them, and what is said of a file that was written.
"""

from pathlib import Path

import click
import h5py
import ml_dtypes
import numpy as np
import pytest

import lccodec
from lccodec.adapters import safetensors
from lccodec.cli.convert import save_output
from lccodec.cli.program import Size

from ..support.commands import run, run_json, state


def test_convert_there_and_back_keeps_every_byte(tmp_path):
    a, b, c = (str(tmp_path / name) for name in ("a.safetensors", "b.lcc.h5", "c.safetensors"))
    arrays = {"w/x": np.linspace(0, 1, 900, dtype=ml_dtypes.bfloat16), "f8": np.arange(250, dtype=np.uint8)}
    metadata = {"format": "pt", "lccodec.types": '{"float8_e5m2":["f8"]}'}
    safetensors.save_file(arrays, a, metadata)
    document = run_json("convert", a, b)
    assert document == {
        "source": a,
        "file": b,
        "bytes": Path(b).stat().st_size,
        "metadata": metadata,
        "left_out": [],
    }
    assert run("convert", b, c)[0].startswith(f"{b}: ")
    assert Path(a).read_bytes() == Path(c).read_bytes()
    assert run("check", b, "--deep")[0] == f"{b}: sound\n"


def test_convert_of_an_index_and_to_npz(tmp_path):
    safetensors.save_file({"w": np.arange(3.0)}, tmp_path / "m-1.safetensors", {"format": "pt"})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"w": "m-1.safetensors"}}')
    run("convert", index, tmp_path / "m.lcc.h5")
    with lccodec.open(tmp_path / "m.lcc.h5") as file:
        assert (file.keys(), file.metadata()) == (["w"], {"format": "pt"})
    _, stderr = run("convert", tmp_path / "m.lcc.h5", tmp_path / "m.npz")
    assert stderr == "lccodec: note: .npz files cannot hold metadata; left out: format\n"
    assert np.load(tmp_path / "m.npz")["w"].tolist() == [0, 1, 2]
    (tmp_path / "m-1.safetensors").unlink()
    _, stderr = run("convert", index, tmp_path / "n.lcc.h5", code=1)
    assert "1 of 1 shards are missing: m-1.safetensors" in stderr
    assert not (tmp_path / "n.lcc.h5").exists()
    _, stderr = run("convert", tmp_path / "m.lcc.h5", tmp_path / "m.ckpt", code=2)
    assert "not one of .npz, .safetensors, .safetensors.index.json, .lcc.h5, " in stderr
    assert ".h5, .hdf5, .nc, .pt, .pth\n" in stderr


def test_a_step_of_a_chain_to_plain_hdf5(chain, tmp_path):
    document = run_json("convert", chain, "--step", 20, tmp_path / "state.h5")
    assert document["metadata"] == {"author": "me"}
    with h5py.File(tmp_path / "state.h5") as file:
        expected = lccodec.Chain(chain).restore(20)
        np.testing.assert_array_equal(file["model/weight"], expected["model"]["weight"])
        assert file["model/bias"].dtype == np.float64
        assert (file["step"][()], file["lr"][()], file["note"].asstr()[()]) == (20, 0.1, "text")
        assert file.attrs["author"] == "me"
    run("convert", chain, tmp_path / "newest.h5")
    with h5py.File(tmp_path / "newest.h5") as file:
        assert file["step"][()] == 30
    run("save", tmp_path / "back", tmp_path / "state.h5")
    with lccodec.open(tmp_path / "back" / "000000000000.lcc.h5") as file:
        assert file.metadata() == {"author": "me"}
        assert file.get("model/weight").tobytes() == expected["model"]["weight"].tobytes()
        assert {**state(20), "model": 0} == {**file.state(), "model": 0}


def test_a_step_is_of_a_chain(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones(2))
    _, stderr = run("convert", tmp_path / "a.npz", tmp_path / "b.npz", "--step", 3, code=2)
    assert "a step needs a chain or a bundle" in stderr


def test_shards_of_a_size(tmp_path):
    arrays = {name: np.full(1000, number, np.float32) for number, name in enumerate("abcde")}
    safetensors.save_file(arrays, tmp_path / "a.safetensors", {"format": "pt", "run": "7"})
    index = tmp_path / "model.safetensors.index.json"
    document = run_json("convert", tmp_path / "a.safetensors", index, "--max-shard-size", "8KB")
    names = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    files = [tmp_path / name for name in names]
    assert document["bytes"] == sum(file.stat().st_size for file in [index, *files])
    run("convert", index, tmp_path / "b.safetensors")
    back = safetensors.load_file(tmp_path / "b.safetensors")
    assert {name: array.tolist() for name, array in back.items()} == {
        name: array.tolist() for name, array in arrays.items()
    }
    run("convert", tmp_path / "a.safetensors", index, "--max-shard-size", "none", code=2)


@pytest.mark.parametrize(
    ("text", "size"),
    [("5GB", 5 * 10**9), ("512MiB", 512 * 2**20), ("7", 7), ("7B", 7), ("3 kB", 3000), ("1T", 10**12)],
)
def test_sizes(text, size):
    assert Size().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5GB", "GB", "1XB", "1e9", "9" * 40])
def test_what_is_not_a_size(text):
    with pytest.raises(click.BadParameter, match="must be a size such as 5GB"):
        Size().convert(text, None, None)


def test_metadata_that_are_left_out_are_told(tmp_path, capsys):
    path = tmp_path / "a.npz"
    document = save_output({"x": np.ones(3)}, path, {"author": "me"})
    assert document == {"file": str(path), "bytes": path.stat().st_size, "metadata": {}}
    assert "left out: author" in capsys.readouterr().err

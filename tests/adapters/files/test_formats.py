"""A file's format is told by its suffix: a state and its metadata go in, and come out again."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import lccodec
from lccodec.adapters.files.formats import check_suffix, load_file, save_file
from lccodec.errors import ArgumentError, StorageError

STATE = {"m/w": np.arange(6, dtype=np.float32), "n": np.array(3)}
METADATA = {"format": "pt"}


@pytest.mark.parametrize(
    ("name", "kept"), [("a.npz", {}), ("a.safetensors", METADATA), ("a.lcc.h5", METADATA)]
)
def test_a_state_comes_back_from_every_format(tmp_path, name, kept):
    assert save_file(STATE, tmp_path / name, METADATA) == kept
    state, metadata = load_file(tmp_path / name)
    assert metadata == kept
    assert {key: (a.dtype, a.tolist()) for key, a in sorted(state.items())} == {
        key: (a.dtype, a.tolist()) for key, a in sorted(STATE.items())
    }


def test_a_checkpoint_keeps_a_state_as_it_is(tmp_path):
    state = {"a": [1, ("text", None)], "b": np.ones(2)}
    save_file(state, tmp_path / "a.lcc.h5", {"epoch": 3})
    found, metadata = load_file(tmp_path / "a.lcc.h5")
    assert found["a"] == state["a"]
    assert metadata == {"epoch": "3"}


def test_bfloat16_comes_as_bits(tmp_path):
    values = np.ones(3, ml_dtypes.bfloat16)
    save_file({"x": values}, tmp_path / "a.lcc.h5", {})
    found, _ = load_file(tmp_path / "a.lcc.h5")
    assert found["x"].dtype == lccodec.BFLOAT16_BITS
    assert found["x"].tobytes() == values.tobytes()


def test_an_index_is_read_and_not_written(tmp_path):
    save_file(STATE, tmp_path / "m-1.safetensors", {})
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": dict.fromkeys(STATE, "m-1.safetensors")}))
    state, metadata = load_file(path)
    assert set(state) == set(STATE)
    assert metadata == {}
    with pytest.raises(ArgumentError, match=r"not one of \.npz, \.safetensors, \.lcc\.h5$"):
        save_file(STATE, path, {})


@pytest.mark.parametrize("name", ["a", "a.pt", "a.npz.gz", "a.h5", "a.index.json", ".npz.", "a.NPZ"])
def test_other_suffixes_are_refused(tmp_path, name):
    for call in (load_file, check_suffix, lambda path: save_file(STATE, path, {})):
        with pytest.raises(ArgumentError, match=r"not one of \.npz"):
            call(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a.npz", "x.y.safetensors", "a.lcc.h5", "m.safetensors.index.json"])
def test_a_path_stays_as_it_is(name):
    assert check_suffix(f"run/{name}") == Path("run", name)


@pytest.mark.parametrize("name", ["a.npz", "a.safetensors", "a.lcc.h5", "a.safetensors.index.json"])
def test_a_file_that_is_missing(tmp_path, name):
    with pytest.raises(StorageError):
        load_file(tmp_path / name)

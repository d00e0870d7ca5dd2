"""Originals in files of every format, named by step."""

import numpy as np
import pytest

import lccodec
from lccodec.adapters.files.formats import save_file
from lccodec.adapters.files.steps import open_originals
from lccodec.inspect.examination import examine

from ...support.commands import run
from ...support.runs import arrays_of, run_states, save_run


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".h5", ".lcc.h5"])
def test_files_beside_the_chain_that_they_were_saved_to(tmp_path, suffix):
    (tmp_path / "files").mkdir()
    states = [arrays_of(state) for state in run_states(4)]
    for number, state in enumerate(states):
        save_file(state, tmp_path / "files" / f"state-{number}{suffix}", {})
    run("save", tmp_path / "run", *sorted((tmp_path / "files").iterdir()), "--policy", "balanced")
    originals = open_originals(tmp_path / "files")
    assert list(originals.steps) == [0, 1, 2, 3]
    (found,) = examine(tmp_path / "run", against=originals).runs
    assert found.loss.against == f"the files in {tmp_path / 'files'}"
    assert found.loss.steps == [0, 1, 2, 3]
    chain = lccodec.Chain(tmp_path / "run")
    for index, row in enumerate(found.arrays):
        for step in range(4):
            restored = lccodec.Chain(chain.directory).restore(step, exact=False)
            name = row.name.replace("~1", "/")
            array = restored[name] if name in restored else arrays_of(restored)[row.name]
            exact = states[step][name]
            assert found.loss.largest[index][step] == np.abs(array.astype(float) - exact).max()


def test_nested_states_of_torch(tmp_path):
    import torch

    weights = {"fc.weight": torch.randn(4, 4), "fc.bias": torch.ones(4)}
    torch.save({"model": weights, "step": 3}, tmp_path / "step3.pt")
    found = open_originals(tmp_path).state(3)
    np.testing.assert_array_equal(found["model/fc.weight"], weights["fc.weight"].numpy())


def test_chains_and_bundles(tmp_path):
    chain = save_run(tmp_path / "run", run_states(2))
    lccodec.bundle(chain.directory, tmp_path / "run.lccb")
    for path in (chain.directory, tmp_path / "run.lccb"):
        assert open_originals(path) == path
        assert examine(chain.directory, against=path).runs[0].loss.steps == [0, 10]


def test_what_are_no_originals(tmp_path):
    with pytest.raises(lccodec.ArgumentError, match="no file of a state"):
        open_originals(tmp_path)
    (tmp_path / "final.npz").write_bytes(b"")
    with pytest.raises(lccodec.ArgumentError, match="not a chain, and its files have no numbers in"):
        open_originals(tmp_path)
    with pytest.raises(lccodec.ArgumentError, match="originals must be a directory"):
        open_originals(tmp_path / "final.npz")
    for name in ("a1.npz", "b1.npz"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "final.npz").unlink()
    with pytest.raises(lccodec.ArgumentError, match="are both of step 1"):
        open_originals(tmp_path)


def test_shards_are_parts_of_a_state(tmp_path):
    state = {"a": np.ones(1000), "b": np.zeros(1000)}
    save_file(state, tmp_path / "model-7.safetensors.index.json", {}, 8000)
    assert len(list(tmp_path.iterdir())) == 3
    originals = open_originals(tmp_path)
    assert list(originals.steps) == [7]
    np.testing.assert_array_equal(originals.state(7)["a"], state["a"])

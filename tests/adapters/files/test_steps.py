"""The steps of files, by their names and their folders; nothing is guessed."""

from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec import ArgumentError
from lccodec.adapters.files.formats import files_below, number_files
from lccodec.adapters.files.states import open_originals, save_file
from lccodec.inspect.examination import examine

from ...support.commands import run
from ...support.runs import arrays_of, run_states, save_run

#: Paths, and their steps in the same order.
FOUND = {
    "an underscore": (["v2_step10.npz", "v2_step9.npz"], [10, 9], "names"),
    "Lightning": (["epoch=3-step=0070.ckpt"], [70], "names"),
    "transformers": (
        ["hf/checkpoint-1000/model.safetensors", "hf/checkpoint-500/model.safetensors"],
        [1000, 500],
        "folders",
    ),
    "one of transformers": (["hf/checkpoint-1500/model.safetensors"], [1500], "folders"),
    "Megatron": (["iter_0001000/weights.npz"], [1000], "folders"),
    "Orbax": (["run/100/default/state.h5", "run/20/default/state.h5"], [100, 20], "folders"),
    "folders without a word": (["a7/x.npz", "a8/x.npz"], [7, 8], "folders"),
    "a loss beside the epoch": (["epoch3_loss0.4512.npz", "epoch4_loss0.3.npz"], [3, 4], "names"),
    "a loss beside a number": (["run_300_loss=0.25.npz"], [300], "names"),
    "words": (["vit_b16_224_ckpt_300.pth"], [300], "names"),
    "a word of a word": (["global_step10.pt", "global_step9.pt"], [10, 9], "names"),
    "the number that differs": (["m_512_100.npz", "m_512_200.npz"], [100, 200], "names"),
    "a size is of the name": (["llama-7b-step20.safetensors"], [20], "names"),
    "a number that all share": (["1/model2.npz", "2/model2.npz"], [1, 2], "folders"),
    "a checkpoint": (["run/000000000010.lcc.h5"], [10], "names"),
    "an index": (["checkpoint-3/model.safetensors.index.json"], [3], "folders"),
    "a number of the model": (["checkpoint-500/llama2.npz"], [500], "folders"),
    "numbers of models": (
        ["checkpoint-500/llama2.npz", "checkpoint-1000/llama3.npz"],
        [500, 1000],
        "folders",
    ),
    "a version of the model": (["checkpoint-500/qwen2.5.safetensors"], [500], "folders"),
    "two numbers of the model": (
        ["checkpoint-1/llama_2_7.npz", "checkpoint-2/llama_2_7.npz"],
        [1, 2],
        "folders",
    ),
    "a number below a word": (["ckpt2/10.npz"], [10], "names"),
    "two words": (["checkpoint-500/epoch3.npz"], [3], "names"),
    "words that say nothing": (["a20.npz", "x3.npz"], [20, 3], "names"),
    "nothing but numbers": (["7.npz", "30.npz"], [7, 30], "names"),
}

REFUSED = {
    "a decimal": (["step-1.5.npz"], r"step-1\.5\.npz: a step must be a whole number; got 1\.5"),
    "a measure alone": (["loss0.25.npz", "loss0.5.npz"], r"a step must be a whole number; got 0\.25"),
    "an abbreviation": (["step_10k.npz"], "a step must be a whole number; got 10k"),
    "dates": (["2024-01-01.npz", "2024-01-02.npz"], "a step must be a whole number; got 2024-01-01"),
    "a date behind a word": (["run_2024_01_03.npz"], "a step must be a whole number; got 2024_01_03"),
    "one without": (
        ["step100.npz", "step900.npz", "final.npz"],
        r"step100\.npz has a number, but final\.npz has none: all files need one",
    ),
    "two": (["a1b20.npz"], "which number is the step: 1 and 20"),
    "two that differ": (["1_20.npz", "2_30.npz"], "which number is the step: 1 and 20"),
    "other names": (["1_20.npz", "x3.npz"], "which number is the step"),
    "the same step": (["a/7.npz", "b/07.npz"], r"a/7\.npz and b/07\.npz are both of step 7"),
    "the same step of several runs": (["1/step5.npz", "2/step5.npz"], "are both of step 5"),
    "different words": (["step10.npz", "epoch3.npz"], r"step10\.npz, epoch3\.npz: .* different words"),
    "a word and another": (["model_10.npz", "step20.npz"], "different words"),
    "a word and none": (["10.npz", "step20.npz"], "different words"),
    "words of one kind": (["iter10.npz", "update20.npz"], "different words"),
    "a shard": (["model-00001-of-00002.safetensors"], "is one shard of a state"),
}


@pytest.mark.parametrize(("names", "steps", "source"), FOUND.values(), ids=FOUND.keys())
def test_steps(names, steps, source):
    found = number_files([Path(name) for name in names])
    assert found.steps == {step: Path(name) for step, name in zip(steps, names, strict=True)}
    assert list(found.steps) == sorted(steps)
    assert found.source == source


@pytest.mark.parametrize(("names", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_clear_is_refused(names, message):
    with pytest.raises(ArgumentError, match=message):
        number_files([Path(name) for name in names])


@pytest.mark.parametrize(
    "names", [["final.npz"], ["a.npz", "b.npz"], ["run3/weights.npz"], ["llama-7b.npz"], []]
)
def test_no_number(names):
    assert number_files([Path(name) for name in names]) is None


def make(directory, *names):
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()


def test_the_files_of_a_directory(tmp_path):
    make(tmp_path, "b.npz", "a.npz", "notes.txt", "x-00001-of-00002.safetensors", "x.safetensors.index.json")
    names = [path.name for path in files_below(tmp_path)]
    assert names == ["a.npz", "b.npz", "x.safetensors.index.json"]


def test_the_only_files_of_folders(tmp_path):
    make(tmp_path, "checkpoint-1/model.npz", "checkpoint-2/model.npz", "logs/a.txt", ".hidden/a.npz")
    found = [path.relative_to(tmp_path).as_posix() for path in files_below(tmp_path)]
    assert found == ["checkpoint-1/model.npz", "checkpoint-2/model.npz"]


def test_folders_of_several_files_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="no file of a state"):
        files_below(tmp_path)
    make(tmp_path, "checkpoint-1/model.safetensors", "checkpoint-1/optimizer.pt")
    with pytest.raises(
        ArgumentError, match=r"has several files: model.safetensors, optimizer.pt.*as in .*/\*/model"
    ):
        files_below(tmp_path)


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

"""Importing files as a new user would: which step each becomes, what it takes, what it loses."""

import numpy as np
import pytest

import lccodec
from lccodec.adapters import npz

from ..support.commands import run, run_json


@pytest.fixture
def files(tmp_path):
    """Folders as transformers writes them: a state that moves little."""
    rng = np.random.default_rng(0)
    weight = rng.normal(0, 0.05, (200, 300)).astype(np.float32)
    for step in (500, 1000, 1500, 2000):
        folder = tmp_path / "hf" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        npz.save_file({"model.weight": weight}, folder / "model.npz")
        weight = weight + rng.normal(0, 1e-5, weight.shape).astype(np.float32)
    return tmp_path / "hf"


def test_the_mapping_is_printed_first_and_nothing_is_written(files, tmp_path):
    stdout, _ = run("save", tmp_path / "run", files, "--dry-run")
    lines = stdout.splitlines()
    assert lines[0] == "steps, from the numbers in the folder names:"
    assert lines[1] == f"   500  {files}/checkpoint-500/model.npz"
    assert [int(line.split()[0]) for line in lines[1:5]] == [500, 1000, 1500, 2000]
    assert lines[6].endswith("--policy lossless")
    assert lines[7].endswith("--policy balanced, with the newest state exact")
    assert not (tmp_path / "run").exists()


def test_a_directory_and_its_files_are_the_same(files, tmp_path):
    paths = sorted(files.glob("*/model.npz"))  # by name: 1000, 1500, 2000, 500
    run("save", tmp_path / "one", *paths)
    stdout, _ = run("save", tmp_path / "other", files)
    assert lccodec.Chain(tmp_path / "one").steps == [500, 1000, 1500, 2000]
    left, right = (sorted(path.read_bytes() for path in (tmp_path / n).iterdir()) for n in ("one", "other"))
    assert left == right
    assert (
        stdout.index("steps, from") < stdout.index("--policy balanced") < stdout.index("step 500, keyframe")
    )


@pytest.mark.parametrize("newest", ["exact", "history"])
def test_what_a_dry_run_forecasts_comes_true(files, tmp_path, newest):
    words = ("save", tmp_path / "run", files, "--policy", "balanced", "--newest", newest)
    assert ("with the newest state exact" in run(*words, "--dry-run")[0]) == (newest == "exact")
    forecasts = run_json(*words, "--dry-run")["forecasts"]
    assert [each["policy"] for each in forecasts] == ["lossless", "balanced"]
    run(*words)
    taken = sum(path.stat().st_size for path in (tmp_path / "run").glob("*.lcc.h5"))
    assert 0.9 < forecasts[1]["chain_bytes"] / taken < 1.1


def test_an_import_goes_on_after_an_interruption(files, tmp_path):
    paths = sorted(files.glob("*/model.npz"))
    run("save", tmp_path / "run", *paths[-1:], *paths[:1])  # 500 and 1000
    _, stderr = run("save", tmp_path / "run", files, code=2)
    assert "step 500 exists already" in stderr
    assert "--skip-existing skips it" in stderr
    stdout, _ = run("save", tmp_path / "run", files, "--skip-existing")
    assert "skipped 2 steps that exist already" in stdout
    assert lccodec.Chain(tmp_path / "run").steps == [500, 1000, 1500, 2000]
    stdout, _ = run("save", tmp_path / "run", files, "--skip-existing")
    assert stdout.splitlines() == ["nothing to save", "skipped 4 steps that exist already"]
    assert run_json("save", tmp_path / "run", files, "--skip-existing")["skipped"] == [500, 1000, 1500, 2000]


def test_a_step_that_no_longer_fits_is_refused_before_anything_is_saved(files, tmp_path):
    paths = sorted(files.glob("*/model.npz"))
    run("save", tmp_path / "run", paths[0])  # 1000
    _, stderr = run("save", tmp_path / "run", files, "--skip-existing", code=2)
    assert "checkpoint-500" in stderr and "must be above the latest" in stderr
    assert lccodec.Chain(tmp_path / "run").steps == [1000]


def test_a_lossy_import_says_what_it_lost(files, tmp_path):
    stdout, _ = run("save", tmp_path / "run", files, "--policy", "balanced")
    (line,) = [line for line in stdout.splitlines() if line.startswith("errors (rms)")]
    assert "model.weight at step" in line
    run("save", tmp_path / "exact", files)
    loss = run_json("save", tmp_path / "json", files, "--policy", "balanced")["loss"]
    assert 0 < loss["typical"] <= loss["worst"] < 2
    chain, exact = lccodec.Chain(tmp_path / "json"), lccodec.Chain(tmp_path / "exact")
    before = exact.restore(500)["model.weight"]
    for step in (1000, 1500):
        weight, back = (each.restore(step)["model.weight"].astype(float) for each in (exact, chain))
        error = np.sqrt(np.mean((back - weight) ** 2) / np.mean((weight - before) ** 2))
        assert error <= loss["worst"] * (1 + 1e-6)
        before = weight


def test_one_lossy_file_does_not_count_as_one_that_lost_nothing(files, tmp_path):
    (file,) = files.glob("checkpoint-500/model.npz")
    words = "save", tmp_path / "run", file, "--policy", "balanced"
    assert "1 times an array with unknown movement lost something" in run(*words)[0]
    exact = lccodec.Chain(tmp_path / "run").restore()["model.weight"]
    history = lccodec.Chain(tmp_path / "run").restore(exact=False)["model.weight"]
    assert (exact != history).any()


def test_a_chain_that_has_only_its_exact_file_is_not_new(files, tmp_path):
    first, second = (files / f"checkpoint-{step}/model.npz" for step in (500, 1000))
    run("save", tmp_path / "run", first, "--policy", "balanced")
    (tmp_path / "run" / "000000000500.lcc.h5").unlink()  # as if the disk had been full
    _, stderr = run("save", tmp_path / "run", first, code=2)
    assert "step 500 exists already" in stderr
    stdout, _ = run("save", tmp_path / "run", first, second, "--skip-existing")
    assert "policy balanced" in stdout
    chain = lccodec.Chain(tmp_path / "run")
    assert (chain.steps, chain.policy.name) == ([500, 1000], "balanced")


def test_nothing_is_offered_that_takes_no_less(tmp_path):
    for step in (1, 2):
        npz.save_file({"counts": np.arange(step, 9000 + step)}, tmp_path / f"{step}.npz")
    stdout, _ = run("save", tmp_path / "run", tmp_path / "1.npz", tmp_path / "2.npz")
    assert "balanced" not in stdout


@pytest.mark.parametrize(
    ("names", "words", "message"),
    [
        (
            ["step100", "step900", "final"],
            [],
            "final.npz has none: all files need one; give the steps: --steps 100,200",
        ),
        (["step-1.5"], [], "a step must be a whole number; got 1.5"),
        (["2024-01-01", "2024-01-02"], [], "a step must be a whole number; got 2024-01-01"),
        (["1", "2"], ["--steps", "5"], "--steps must have a different step for each of 2 files; got 1"),
        (["1", "2"], ["--steps", "5,5"], "--steps must have a different step for each of 2 files; got 1"),
        (["1"], ["--steps", "5,x"], "'x' is not a valid integer"),
        (["1"], ["--steps", "-5"], "-5 is not in the range"),
        (["1"], ["--steps", "5", "--step", "1"], "--step or --steps, not both"),
    ],
)
def test_what_is_refused(tmp_path, names, words, message):
    files = [tmp_path / f"{name}.npz" for name in names]
    for file in files:
        npz.save_file({"x": np.ones(2)}, file)
    _, stderr = run("save", tmp_path / "run", *files, *words, code=2)
    assert message in stderr
    assert not (tmp_path / "run").exists()

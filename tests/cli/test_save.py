"""The verb plan: what a save would do, as the save then does it; its text and its document.

Importing files as a new user would: which step each becomes, what it takes, what it loses.
"""

import numpy as np
import pytest

import lccodec
from lccodec.adapters import npz
from lccodec.adapters.files.states import save_file
from lccodec.chain.overview import figures_words
from lccodec.cli.demonstration import Network, Task
from lccodec.cli.save import plan_document, plan_text

from ..support.commands import run, run_json
from ..support.estimates import check_estimates
from ..support.runs import arrays_of, run_states, save_run
from ..support.tuning import tune

STATE = {"weight": np.linspace(-1, 1, 300, dtype=np.float32).reshape(3, 100), "running_mean": np.ones(3)}


@pytest.fixture
def states(tmp_path):
    for number, state in enumerate(run_states(3)):
        save_file(arrays_of(state), tmp_path / f"state-{number}.npz", {})
    return sorted(tmp_path.glob("*.npz"))


def test_a_plan_is_what_the_save_does(states, tmp_path):
    run("save", tmp_path / "run", states[0], states[1], "--policy", "balanced")
    before = sorted((tmp_path / "run").iterdir())
    document = run_json("plan", tmp_path / "run", states[2])
    assert sorted((tmp_path / "run").iterdir()) == before
    run("save", tmp_path / "run", states[2])
    info = lccodec.Chain(tmp_path / "run").info(2)
    assert document["parent"] == info.parent == 1
    for planned, saved in zip(document["arrays"], info.arrays, strict=True):
        assert (planned["name"], planned["role"], planned["why"]) == (saved.name, saved.role, saved.why)
        assert planned["estimated_bytes"] == pytest.approx(saved.stored_bytes, abs=1)
        assert (planned["stored"] == "unchanged") == (saved.method == "unchanged")
    assert "about " in run("plan", tmp_path / "run", states[2])[0]
    assert document["last"]["step"] == 1
    assert document["last"]["figures"]["weight"]["error"] > 0


def test_a_newest_checkpoint_that_cannot_be_read(states, tmp_path):
    run("save", tmp_path / "run", states[0], states[1], "--policy", "balanced", "--newest", "history")
    newest = max((tmp_path / "run").glob("*.lcc.h5"))
    newest.write_bytes(newest.read_bytes()[:-1])
    document = run_json("plan", tmp_path / "run", states[2])
    assert (document["parent"], document["last"]) == (None, None)


def test_a_new_chain(states, tmp_path):
    document = run_json("plan", tmp_path / "new", states[0])
    assert not (tmp_path / "new").exists()
    assert document["last"] is None
    assert (document["parent"], {array["estimated_error"] for array in document["arrays"]}) == (None, {0.0})
    lossy = run_json("plan", tmp_path / "new", states[0], "--policy", "small")
    assert lossy["totals"]["estimated_bytes"] < document["totals"]["estimated_bytes"]
    assert "This would be a keyframe" in run("plan", tmp_path / "new", states[0])[0]


def test_roles_of_a_file_of_torch(tmp_path):
    import torch

    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "s.pt")
    document = run_json("plan", tmp_path / "new", tmp_path / "s.pt")
    assert {"weight", "first_moment", "second_moment"} <= {array["role"] for array in document["arrays"]}


def test_what_cannot_be_planned(tmp_path):
    (tmp_path / "state.txt").write_text("")
    assert "state.txt: not one of" in run("plan", tmp_path, tmp_path / "state.txt", code=2)[1]
    np.savez(tmp_path / "text.npz", a=np.array(["text"]))
    assert "lccodec: error" in run("plan", tmp_path / "new", tmp_path / "text.npz", code=2)[1]


# --- the text and the document --------------------------------------------------------------------


def planned(tmp_path, policy, state=STATE):
    with lccodec.Chain(tmp_path / "run", policy) as chain:
        chain.save(3, STATE)
        plan = chain.plan(state)
        return plan, plan.estimates()


def test_a_delta(tmp_path):
    policy = lccodec.Policy("bounded", {"weight": lccodec.UniformDeadzone(max_error=0.002)})
    state = {**STATE, "weight": STATE["weight"] + np.float32(0.01)}
    plan, estimates = planned(tmp_path, policy, state)
    text = plan_text(plan, estimates)
    assert "UniformDeadzone(max_error=0.002)" in text
    assert "error at most 0.002" in text
    assert "unchanged" in text
    assert "This would be a delta to step 3: about " in text
    document = plan_document(plan, estimates)
    assert document["parent"] == 3
    weight, other = document["arrays"]
    assert (weight["name"], weight["role"], weight["why"], weight["stored"]) == (
        "weight",
        "weight",
        "named 'weight'",
        "delta",
    )
    assert weight["estimated_bytes"] == estimates[0].stored_bytes > 0
    assert (other["estimated_bytes"], other["estimated_error"]) == (0, 0.0)
    assert document["totals"]["estimated_bytes"] == estimates[0].stored_bytes
    assert document["totals"]["nbytes"] == 1200 + 24


def digits(count):
    """States of a network that learns handwritten digits; one array has 200,000 weights."""
    task, network, states = Task(), Network.initial(), []
    for iteration in range(1, 4 * count + 1):
        task.train(network, iteration)
        if iteration % 4 == 0:
            state = network.to_state(iteration)
            states.append({n.replace("/", "."): array.copy() for n, array in arrays_of(state).items()})
    return states


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["balanced", "lossless", "small"])
def test_estimates_of_a_network_that_learns(tmp_path, policy, monkeypatch):
    tune(monkeypatch, estimate_stretches=32, estimate_stretch_components=1024)
    assert check_estimates(tmp_path, digits(4), policy) == {True, False}


def test_a_keyframe_and_an_empty_state(tmp_path):
    with lccodec.Chain(tmp_path / "new", "lossless") as chain:
        plan = chain.plan(STATE)
        assert "This would be a keyframe: about " in plan_text(plan, plan.estimates())
        empty = chain.plan({"epoch": 1})
        assert "about 0 bytes for 0 (-)" in plan_text(empty, empty.estimates())


def test_what_the_last_save_lost(tmp_path):
    chain = save_run(tmp_path / "run", run_states(3), policy="balanced")
    plan, last = chain.plan(run_states(4)[3]), chain.info(20)
    estimates = plan.estimates()
    text, document = plan_text(plan, estimates, last), plan_document(plan, estimates, last)
    assert f"The last save, of step 20, lost:\n  weights: {figures_words(last.figures['weight'])}\n" in text
    assert document["last"]["step"] == 20
    assert document["last"]["figures"]["weight"] == last.figures["weight"].numbers()


def test_names_are_escaped(tmp_path):
    with lccodec.Chain(tmp_path / "new") as chain:
        plan = chain.plan({"\x1b[2J\u202e[red]weight": np.ones(3)})
        text = plan_text(plan, plan.estimates())
    assert not {"\x1b", "\u202e"} & set(text)
    assert "[red]" in text


def test_a_bound_alone_means_fields(tmp_path):
    x = np.linspace(0, 6, 60)
    for step in range(2):
        wave = np.sin(x + 0.1 * step)[:, None] * np.cos(x)
        np.savez(tmp_path / f"state-{step}.npz", wave=wave, ids=np.arange(3000))
    states = sorted(tmp_path.glob("*.npz"))
    document = run_json("plan", tmp_path / "run", states[0], "--relative-error", 1e-4)
    assert [array["lossy"] for array in document["arrays"]] == [True, False]
    assert run_json("plan", tmp_path / "run", states[0], "--policy", "fields", "--max-error", 1e-4)["arrays"]
    forecast = run_json("save", tmp_path / "run", *states, "--dry-run", "--max-error", 1e-3)["forecasts"]
    assert [each["policy"] for each in forecast] == ["lossless", "balanced", "fields"]
    run("save", tmp_path / "run", *states, "--relative-error", 1e-4, "--newest", "history")
    restored = lccodec.Chain(tmp_path / "run").restore(1)
    assert abs(restored["wave"] - wave).max() <= 1e-4 * np.ptp(wave)
    run("plan", tmp_path / "run", states[0], "--policy", "fields", code=2)
    run("plan", tmp_path / "run", states[0], "--policy", "small", "--max-error", 1, code=2)
    run("plan", tmp_path / "run", states[0], "--max-error", 0, code=2)


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

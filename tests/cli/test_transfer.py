"""The verbs that move states: save, restore, average, convert, with and without --json."""

import re
import sys

import ml_dtypes
import numpy as np
import pytest
import torch

import lccodec
from lccodec.adapters import npz, safetensors
from lccodec.adapters.files.states import load_file

from ..support.commands import run, run_json, step_file


@pytest.mark.parametrize("adapter", [npz, safetensors])
def test_save_and_restore(tmp_path, adapter):
    suffix = "." + adapter.__name__.rpartition(".")[2]
    arrays = {"a/b": np.arange(1000.0), "n": np.array(3)}
    for step in (9, 10):
        adapter.save_file({**arrays, "n": np.array(step)}, tmp_path / f"v2_step{step}{suffix}")
    files = [tmp_path / f"v2_step{step}{suffix}" for step in (10, 9)]
    document = run_json("save", tmp_path / "run", *files, "--policy", "lossless")
    assert [(entry["step"], entry["parent"]) for entry in document["saved"]] == [(9, None), (10, 9)]
    assert document["saved"][1]["policy"] == "lossless"
    assert document["saved"][0]["ratio"] > 1
    document = run_json("restore", tmp_path / "run", "-o", tmp_path / f"out{suffix}")
    assert document["step"] == 10
    assert document["bytes"] == (tmp_path / f"out{suffix}").stat().st_size
    back = adapter.load_file(tmp_path / f"out{suffix}")
    assert set(back) == set(arrays)
    assert back["n"] == 10
    assert np.array_equal(back["a/b"], arrays["a/b"])
    stdout, _ = run("restore", tmp_path / "run", "--step", 9, "-o", tmp_path / f"out{suffix}")
    assert stdout.startswith("step 9: ")
    assert adapter.load_file(tmp_path / f"out{suffix}")["n"] == 9


def test_some_arrays_are_saved(tmp_path):
    base, lora = np.arange(3000.0), np.arange(9.0)
    npz.save_file({"base": base, "lora.a": lora}, tmp_path / "1.npz")
    npz.save_file({"lora.a": lora + 1}, tmp_path / "2.npz")
    npz.save_file({"base": base, "lora.a": lora + 2}, tmp_path / "3.npz")
    chain, some = tmp_path / "run", ("--only", "lora.*", "--only", "*.a")
    _, stderr = run("save", chain, tmp_path / "2.npz", *some, code=2)
    assert "only= could add to" in stderr
    run("save", chain, tmp_path / "1.npz")
    plan = run_json("plan", chain, tmp_path / "2.npz", *some)
    assert {a["name"]: a["stored"] for a in plan["arrays"]} == {"base": "unchanged", "lora.a": "delta"}
    document = run_json("save", chain, tmp_path / "2.npz", tmp_path / "3.npz", *some)
    assert [entry["step"] for entry in document["saved"]] == [2, 3]
    run("restore", chain, "-o", tmp_path / "out.npz")
    back = npz.load_file(tmp_path / "out.npz")
    assert np.array_equal(back["base"], base)
    assert np.array_equal(back["lora.a"], lora + 2)


@pytest.mark.parametrize(
    ("names", "options", "steps"),
    [
        (["a20.npz", "x3.npz"], [], [3, 20]),
        (["b.npz", "a.npz"], [], [0, 1]),
        (["a7.npz", "a2.npz"], ["--step", 5], [5, 6]),
        (["a7.npz", "final.npz"], ["--steps", "900, 100"], [100, 900]),
    ],
)
def test_the_steps_of_files(tmp_path, names, options, steps):
    for name in names:
        npz.save_file({"x": np.ones(2)}, tmp_path / name)
    files = [tmp_path / name for name in names]
    document = run_json("save", tmp_path / "run", *files, *options)
    assert [entry["step"] for entry in document["saved"]] == steps
    npz.save_file({"x": np.ones(2)}, tmp_path / "next.npz")
    stdout, _ = run("save", tmp_path / "run", tmp_path / "next.npz")
    assert stdout.splitlines()[2].startswith(f"step {steps[-1] + 1}, delta to {steps[-1]}: ")


def test_two_files_of_one_step_are_refused_before_anything_is_written(tmp_path):
    files = [tmp_path / f"{name}.npz" for name in ("a2", "b2")]
    for file in files:
        npz.save_file({"x": np.ones(2)}, file)
    _, stderr = run("save", tmp_path / "run", *files, code=2)
    assert "both of step 2; give the steps: --steps" in stderr
    assert not (tmp_path / "run").exists()


def test_the_policy_of_a_chain_goes_on(tmp_path):
    for step in (1, 2, 3):
        npz.save_file({"x": np.ones(2)}, tmp_path / f"{step}.npz")
    run("save", tmp_path / "run", tmp_path / "1.npz", "--policy", "lossless")
    assert run_json("save", tmp_path / "run", tmp_path / "2.npz")["saved"][0]["policy"] == "lossless"
    _, stderr = run("save", tmp_path / "run", tmp_path / "3.npz", "--policy", "lc-2")
    assert "warning" in stderr and "'lossless', and now continues with 'lc-2'" in stderr
    assert len(stderr.splitlines()) == 1
    _, stderr = run("save", tmp_path / "run", tmp_path / "3.npz", "--step", 4)
    assert not stderr
    assert run_json("info", tmp_path / "run")["policy"] == "lc-2"


def test_save_and_info_say_what_is_lossy(tmp_path, caplog):
    values = 1 + np.random.default_rng(0).random(600)
    files = [tmp_path / "1.npz", tmp_path / "2.npz"]
    for file in files:
        names = ("fc/weight", "opt/nu/weight", "bn/running_var", "x")
        npz.save_file(dict.fromkeys(names, values) | {"x": values[::-1]}, file)
        values = values * 1.5
    stdout, _ = run("save", tmp_path / "run", *files, "--policy", "lc-3")
    assert caplog.text.count("the policy 'lc-3' is lossy for 9600 bytes of arrays and exact for 9600.") == 1
    line = (
        "2 other exact; 1 second moment lossy; 1 weight lossy; exact, not known to be weights or safe"
        " moments: x"
    )
    assert stdout.splitlines()[-2:] == [
        f"policy lc-3: {line}",
        "the newest state, step 2, is also kept bit for bit",
    ]
    stdout, _ = run("info", tmp_path / "run")
    assert re.search(rf"^arrays +{line}$", stdout, re.MULTILINE)
    assert re.search(r"fc~1weight .* weight +a parameter of the optimizer .* codebook, delta +lossy ", stdout)
    assert re.search(r"bn~1running_var .* other +'running_var' is exact .* planes", stdout)
    run("save", tmp_path / "exact", *files)
    assert "running_var" not in run("info", tmp_path / "exact", "--step", 1)[0].split("name ")[0]


def test_files_are_kept_exactly_unless_asked_otherwise(tmp_path):
    for step in (1, 2):
        safetensors.save_file(
            {"weight": np.random.default_rng(step).normal(size=(90, 90))}, tmp_path / f"{step}.safetensors"
        )
    saved = run_json("save", tmp_path / "run", tmp_path / "1.safetensors", tmp_path / "2.safetensors")[
        "saved"
    ]
    assert [info["policy"] for info in saved] == ["lossless", "lossless"]
    weight = safetensors.load_file(tmp_path / "2.safetensors")["weight"]
    np.testing.assert_array_equal(lccodec.Chain(tmp_path / "run").restore()["weight"], weight)


def test_a_checkpoint_of_a_chain_is_not_restored_over(chain):
    before = step_file(chain, 10).read_bytes()
    for name in ("000000000010.lcc.h5", "000000000099.lcc.h5"):
        _, stderr = run("restore", chain, "--step", 20, "-o", chain / name, code=2)
        assert "is a checkpoint of a chain" in stderr
    assert step_file(chain, 10).read_bytes() == before
    assert lccodec.Chain(chain).steps == [10, 20, 30]


def test_a_restore_onto_a_private_file_leaves_it_private(chain, tmp_path):
    target = tmp_path / "mine.lcc.h5"
    target.write_bytes(b"")
    target.chmod(0o600)
    run("restore", chain, "-o", target)
    assert target.stat().st_mode & 0o777 == 0o600


def test_metadata_and_bfloat16_travel_with_safetensors(tmp_path, monkeypatch):
    path, back = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    safetensors.save_file({"x": np.linspace(0, 1, 9).astype(ml_dtypes.bfloat16)}, path, {"format": "pt"})
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    run("save", tmp_path / "run", path)
    assert run_json("restore", tmp_path / "run", "-o", back)["metadata"] == {"format": "pt"}
    assert back.read_bytes() == path.read_bytes()
    _, stderr = run("restore", tmp_path / "run", "-o", tmp_path / "b.npz", code=2)
    assert "'x' is bfloat16" in stderr
    _, stderr = run("restore", tmp_path / "run", "-o", tmp_path / "b.npz", "--dtype", "float32")
    assert "left out: format" in stderr
    assert npz.load_file(tmp_path / "b.npz")["x"].dtype == np.float32


def test_files_of_torch_bring_the_roles_of_their_optimizers(tmp_path):
    model = torch.nn.Linear(30, 40)
    optimizer = torch.optim.RMSprop(model.parameters())
    for step in (1, 2):
        model(torch.ones(1, 30)).sum().backward()
        optimizer.step()
        parts = {f"part{i}": value for i, value in enumerate(model.state_dict().values())}
        state = {"net": parts, "optimizer_states": [optimizer.state_dict()]}
        torch.save(state, tmp_path / f"epoch=0-step={step}.ckpt")
    files = [tmp_path / f"epoch=0-step={step}.ckpt" for step in (1, 2)]
    run("save", tmp_path / "run", *files, "--policy", "lc-3")
    arrays = {array["name"]: array for array in run_json("info", tmp_path / "run", "--step", 2)["arrays"]}
    assert arrays["net/part0"]["why"] == "a parameter of the optimizer"
    assert arrays["net/part0"]["lossy"]
    assert arrays["optimizer_states/0/state/0/square_avg"]["role"] == "second_moment"


def test_workers_change_no_byte(chain, tmp_path):
    for workers in ("1", "2", "0"):
        output = tmp_path / f"{workers}.safetensors"
        run("restore", chain, "-o", output, "--key", "model")
        run("save", tmp_path / workers, output, "--step", "5", "-j", workers)
    files = [(tmp_path / n / "000000000005.lcc.h5").read_bytes() for n in ("1", "2", "0")]
    assert files[0] == files[1] == files[2]
    run("save", tmp_path / "x", output, "-j", "-1", code=2)


def test_restore_of_some_keys(chain, tmp_path):
    _, stderr = run("restore", chain, "-o", tmp_path / "a.npz", code=2)
    assert "'note' is a str" in stderr
    run("restore", chain, "-o", tmp_path / "a.npz", "--key", "model", "--key", "step")
    assert list(npz.load_file(tmp_path / "a.npz")) == ["model/weight", "model/bias", "step"]
    npz.save_file({"a/b": np.ones(2), "c": np.ones(1)}, tmp_path / "flat.npz")
    run("save", tmp_path / "flat", tmp_path / "flat.npz")
    run("restore", tmp_path / "flat", "-o", tmp_path / "a.npz", "--key", "a~1b")
    assert list(npz.load_file(tmp_path / "a.npz")) == ["a/b"]


def test_the_newest_state_is_kept_exact(tmp_path):
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((90, 90)).astype(np.float32) for _ in range(3)]
    for step, weight in enumerate(weights):
        npz.save_file({"weight": weight}, tmp_path / f"{step}.npz")
    chain = tmp_path / "run"
    stdout, _ = run(
        "save", chain, tmp_path / "0.npz", tmp_path / "1.npz", "--policy", "lc-2", "--newest", "exact"
    )
    assert stdout.splitlines()[-1] == "the newest state, step 1, is also kept bit for bit"
    document = run_json("save", chain, tmp_path / "2.npz")  # goes on
    assert [saved["exact"] for saved in document["saved"]] == [True]

    def restored(*options):
        document = run_json("restore", chain, "-o", tmp_path / "back.npz", *options)
        step = document["step"]
        same = np.array_equal(npz.load_file(tmp_path / "back.npz")["weight"], weights[step])
        assert document["exact"] == same or step == 0
        return same

    assert restored()
    assert restored("--step", 2)
    assert not restored("--history")
    assert not restored("--step", 1)
    stdout, _ = run("restore", chain, "-o", tmp_path / "back.npz")
    assert stdout.startswith("step 2, exact: ")
    (chain / "exact.lcc.h5").write_bytes(b"")
    _, stderr = run("restore", chain, "-o", tmp_path / "back.npz")
    assert stderr.startswith("lccodec: warning: ")
    assert "the exact file cannot be used" in stderr
    run("save", chain, tmp_path / "2.npz", "--step", 3, "--newest", "history")
    assert not (chain / "exact.lcc.h5").exists()
    run("save", chain, tmp_path / "2.npz", "--newest", "oldest", code=2)


def test_files_are_saved_in_groups(tmp_path):
    weights = np.cumsum(np.random.default_rng(0).standard_normal((7, 90, 90), np.float32), 0)
    for step, weight in enumerate(weights):
        npz.save_file({"weight": weight}, tmp_path / f"{step}.npz")
    files = [tmp_path / f"{step}.npz" for step in range(7)]
    _, stderr = run("save", tmp_path / "run", *files, "--hindsight", 3, code=2)
    assert "'lossless' loses nothing" in stderr
    run("save", tmp_path / "run", *files, "--policy", "balanced", "--hindsight", 3)
    shown, _ = run("ls", tmp_path / "run")
    assert shown.count("interp") == 4
    run("restore", tmp_path / "run", "-o", tmp_path / "back.npz")
    assert np.array_equal(npz.load_file(tmp_path / "back.npz")["weight"], weights[6])


@pytest.mark.parametrize("suffix", [".safetensors", ".lcc.h5"])
def test_average(chain, tmp_path, suffix):
    output = tmp_path / f"avg{suffix}"
    stdout, _ = run("average", chain, "--last", 2, "-o", output)
    line = rf"mean of 2 steps, 20 to 30: [\d,]+ bytes, arrays averaged: 2, others of step 30  {output}\n"
    assert re.fullmatch(line, stdout)
    found, metadata = load_file(output)
    assert metadata["author"] == "me"
    expected = lccodec.Chain(chain).average(last=2)
    np.testing.assert_array_equal(found["model"]["weight"], expected["model"]["weight"])
    assert (found["step"], found["note"]) == (30, "text")


def test_average_with_options(chain, tmp_path):
    output = tmp_path / "avg.npz"
    words = ("average", chain, "--step", 30, "--step", 10, "--decay", 0.25, "-o", output)
    document = run_json(*words, "--key", "model", "--strip", "--role", "weight")
    assert (document["steps"], document["shares"]) == ([10, 30], [0.2, 0.8])
    assert "model/weight" in document["averaged"]
    assert document["bytes"] == output.stat().st_size
    back = npz.load_file(output)
    assert set(back) == {"weight", "bias"}
    mean = lccodec.Chain(chain).average([10, 30], decay=0.25)
    np.testing.assert_array_equal(back["weight"], mean["model"]["weight"])
    stdout, _ = run("average", chain, "--step", 20, "--key", "model", "-o", output)
    assert stdout.startswith("step 20: ")


def test_average_refuses(chain, tmp_path):
    output = tmp_path / "avg.npz"
    for words, message, code in [
        ((), "either steps= or last=", 2),
        (("--last", 1, "--step", 10), "either steps= or last=", 2),
        (("--last", 0), "not in the range", 2),
        (("--last", 2, "--decay", 2), "decay must be a number", 2),
        (("--last", 2, "--role", "momentum"), "momentum", 2),
        (("--last", 2, "--role", "first_moment"), "no floating point array", 2),
        (("--last", 2, "--strip"), "--strip needs --key", 2),
        (("--step", 11), "has no step 11", 1),
    ]:
        _, stderr = run("average", chain, *words, "-o", output, code=code)
        assert message in stderr
    _, stderr = run("average", chain, "--last", 2, "-o", tmp_path / "avg.ckpt", code=2)
    assert "not one of .npz" in stderr
    assert not output.exists()


def test_a_file_of_torch_is_restored(chain, tmp_path):
    stdout, _ = run("restore", chain, "--step", 10, "--key", "model", "-o", tmp_path / "x.pt")
    assert stdout.startswith("step 10: ")
    found = torch.load(tmp_path / "x.pt", weights_only=True)
    expected = {f"model/{name}": a for name, a in lccodec.Chain(chain).restore(10)["model"].items()}
    assert {name: tensor.tolist() for name, tensor in found.items()} == {
        name: array.tolist() for name, array in expected.items()
    }
    run("save", tmp_path / "again", tmp_path / "x.pt")
    np.testing.assert_array_equal(
        lccodec.Chain(tmp_path / "again").restore()["model/weight"], expected["model/weight"]
    )

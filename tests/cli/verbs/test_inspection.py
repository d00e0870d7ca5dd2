"""The verbs that show and check: info, show, diff, check, with and without --json."""

import re

import numpy as np
import pytest

import lccodec

from ...support.commands import damage, run, run_json, state, step_file
from ...support.runs import run_states, save_run


def test_info(chain):
    stdout, _ = run("info", chain)
    assert "parent           20\n" in stdout
    assert "metadata author  me\n" in stdout
    assert "model/weight  float32  40 x 50" in stdout
    assert re.search(r"model/weight .* codebook, delta +lossy ", stdout)
    assert re.search(r"model/bias .* unchanged +exact ", stdout)
    assert "unchanged" in stdout
    document = run_json("info", chain, "--step", 10)
    assert (document["step"], document["parent"], document["policy"]["policy"]) == (10, None, "lc-3")
    assert document["metadata"] == {"author": "me"}
    assert document["arrays"][1] == {
        "name": "model/bias",
        "dtype": "float64",
        "shape": [5],
        "method": document["arrays"][1]["method"],
        "relative": False,
        "stored_bytes": document["arrays"][1]["stored_bytes"],
        "nbytes": 40,
        "lossy": False,
        "role": "weight",
        "why": "named 'bias'",
        "quantizer": "ExponentBuckets()",
        "figures": document["arrays"][1]["figures"],
    }
    found = document["arrays"][1]["figures"]
    assert (found["spread"], found["movement"], found["error"], found["lag"]) == (1.0, None, 0.0, None)
    assert found["rms"] is None  # nothing was lost, and every reader can measure it
    assert run_json("info", step_file(chain, 30))["step"] == 30
    lccodec.save_file({}, chain / "single.lcc.h5")
    assert run_json("info", chain / "single.lcc.h5")["step"] is None
    assert "-" in run("info", chain / "single.lcc.h5")[0]


def test_info_says_what_was_lost(tmp_path):
    chain = save_run(tmp_path / "run", run_states(3), policy="balanced", newest="exact")
    found = chain.info(20).figures["weight"]
    words = f"error {found.error_in_movements:.3g} movements, {100 * found.error_in_spreads:.3g} % of the "
    assert re.search(f"^lost, weights +{re.escape(words)}", run("info", chain.directory)[0], re.MULTILINE)
    first = run("info", chain.directory, "--step", 0)[0]
    assert re.search(r"^lost, weights +error [0-9.]+ % of the spread$", first, re.MULTILINE)
    lccodec.save_file({"weight": np.ones(3)}, tmp_path / "single.lcc.h5")
    assert "lost" not in run("info", tmp_path / "single.lcc.h5")[0]
    assert run_json("info", tmp_path / "single.lcc.h5")["figures"] == {}


def test_show(chain):
    stdout, _ = run("show", chain, "model/weight", "--step", 10)
    assert "dtype     float32\n" in stdout
    assert "shape     40 x 50\n" in stdout
    assert stdout.count("#") > 100
    document = run_json("show", chain, "model/weight")
    assert document["size"] == 2000
    assert sum(bar["count"] for bar in document["distribution"]["histogram"]) == 2000
    assert run_json("show", step_file(chain, 10), "model/bias")["distribution"]["std"] == 0


def test_show_tells_role_and_policy(chain):
    document = run_json("show", chain, "model/weight", "--step", 20)
    assert (document["role"], document["why"]) == ("weight", "named 'weight'")
    assert document["quantizer"] == "ExponentBuckets()"
    stdout, _ = run("show", chain, "model/weight", "--step", 20)
    assert "role      weight, named 'weight'\n" in stdout
    assert "deltas    ExponentBuckets()\n" in stdout


def test_show_over_time(chain, tmp_path):
    document = run_json("show", chain, "model/weight", "--over-time")["over_time"]
    assert document["steps"] == [10, 20, 30]
    opened = lccodec.Chain(chain)
    found = [opened.info(step).arrays[0].figures for step in (10, 20, 30)]
    weights = [opened.restore(step)["model"]["weight"] for step in (10, 20, 30)]
    sizes = [float(np.sqrt(np.mean(np.square(weight)))) for weight in weights]
    assert document["rms"] == pytest.approx(sizes, rel=2**-8)
    assert document["movement"][2] == pytest.approx(found[2].movement / sizes[1], rel=2**-7)
    assert document["error"][1:] == [figures.error_in_movements for figures in found[1:]]
    stdout, _ = run("show", chain, "model/weight", "--over-time")
    assert "\nover 3 steps, 10 to 30\nmovement " in stdout
    lccodec.bundle(chain, tmp_path / "run.lccb")
    assert run_json("show", tmp_path / "run.lccb", "model/weight", "--over-time")["over_time"] == document
    error = run("show", step_file(chain, 10), "model/weight", "--over-time", code=2)[1]
    assert "--over-time needs a chain" in error


def test_show_some_rows(chain):
    whole = lccodec.Chain(chain).restore()["model"]["weight"]
    document = run_json("show", chain, "model/weight", "--rows", "-5:")
    assert document["shape"] == [5, 50]
    assert document["distribution"]["maximum"] == float(whole[-5:].max())
    assert "shape     3 x 50\n" in run("show", chain, "model/weight", "--rows", "2:5")[0]
    for words, message in {
        ("model/weight", "--rows", "0:9:2"): "must be START:STOP",
        ("model/weight", "--rows", "3"): "must be START:STOP",
        ("lr", "--rows", "0:1"): "'lr' is not an array",
        ("model/weight", "--rows", "0:1", "--over-time"): "leave --rows out",
    }.items():
        assert message in run("show", chain, *words, code=2)[1]


def test_show_of_a_scalar(chain):
    assert run("show", chain, "lr")[0] == "0.1\n"
    assert run_json("show", chain, "note")["value"] == "text"
    assert run_json("show", chain, "key")["value"] == {"base64": "YQ=="}


def test_show_of_what_is_not_finite(tmp_path):
    lccodec.save_file({"x": np.array([np.nan, np.inf]), "e": np.ones((0, 2))}, tmp_path / "a.lcc.h5")
    document = run_json("show", tmp_path / "a.lcc.h5", "x")
    assert (document["nans"], document["infinities"], document["distribution"]) == (1, 1, None)
    assert "NaN       1\n" in run("show", tmp_path / "a.lcc.h5", "x")[0]
    assert "0 x 2" in run("show", tmp_path / "a.lcc.h5", "e")[0]


def test_diff(chain):
    stdout, _ = run("diff", chain, 10, 30)
    assert "model/weight" in stdout
    assert "step     10   30" in stdout
    assert "unchanged: 1 arrays, 3 scalars" in stdout
    document = run_json("diff", chain, 10, 30)
    (weight,) = document["changed"]
    assert (weight["name"], weight["changed"], weight["share"]) == ("model/weight", 1000, 0.5)
    assert weight["lossy"] and "1 of 1 changed arrays lost something" in stdout
    assert (weight["role"], weight["cosine"]) == ("weight", pytest.approx(1, abs=1e-3))
    assert ["model/weight", "weight"] in [line.split()[:2] for line in stdout.splitlines()]
    assert weight["max_abs"] == pytest.approx(0.001, rel=1e-3)
    assert document["scalars"] == [{"name": "step", "old": 10, "new": 30}]
    assert (document["unchanged"], document["unchanged_scalars"]) == (1, 3)


def test_diff_of_exact_states_does_not_speak_of_a_loss(tmp_path):
    with lccodec.Chain(tmp_path, "lossless") as chain:
        for step in (1, 2):
            chain.save(step, {"model": {"weight": np.full(2000, step, np.float32)}})
    assert "lost something" not in run("diff", tmp_path, 1, 2)[0]
    assert [each["lossy"] for each in run_json("diff", tmp_path, 1, 2)["changed"]] == [False]


def test_diff_of_states_of_another_form(tmp_path):
    with lccodec.Chain(tmp_path) as chain:
        chain.save(1, {"a": np.ones(2), "gone": 1, "loss": float("nan"), "b": np.array([1.0])})
        chain.save(2, {"a": np.ones(3), "new": None, "loss": float("inf"), "b": np.array([np.inf])})
    stdout, _ = run("diff", tmp_path, 1, 2)
    assert "a        float64 (2,)  float64 (3,)" in stdout
    assert "appeared:\n  new\n" in stdout
    assert "disappeared:\n  gone\n" in stdout
    document = run_json("diff", tmp_path, 1, 2)
    assert document["scalars"] == [{"name": "loss", "old": "NaN", "new": "Infinity"}]
    assert document["replaced"] == [{"name": "a", "old": "float64 (2,)", "new": "float64 (3,)"}]
    assert document["changed"][0]["max_abs"] is None


def test_check(chain):
    assert run("check", chain)[0] == f"{chain}: sound\n"
    document = run_json("check", chain, step_file(chain, 10), "--deep")
    assert (document["sound"], document["deep"], len(document["paths"])) == (True, True, 2)
    damage(step_file(chain, 20))
    stdout, _ = run("check", chain, code=1)
    assert "[LCC-" in stdout
    document = run_json("check", chain, step_file(chain, 10), code=1)
    assert not document["sound"]
    problem = document["paths"][0]["problems"][0]
    assert set(problem) == {"rule", "where", "message"}
    assert document["paths"][1]["problems"] == []


def test_a_problem_names_its_path_once(chain, tmp_path):
    damage(step_file(chain, 20))
    alone = tmp_path / "alone.lcc.h5"
    alone.write_bytes(step_file(chain, 20).read_bytes())
    (tmp_path / "text").write_text("text")
    name = step_file(chain, 20).name
    assert run("check", chain, code=1)[0].startswith(f"{chain}: {name}: frame ")
    assert run("check", alone, code=1)[0].startswith(f"{alone}: frame ")
    assert run("check", tmp_path / "text", code=1)[0].startswith(f"{tmp_path / 'text'}: not an lccodec")


def test_what_the_exact_file_is(chain):
    assert run_json("ls", chain)["exact"] is None
    assert run_json("ls", chain)["checkpoints"][-1]["policy"] == {"policy": "lc-3", "newest": "history"}
    lccodec.Chain(chain, newest="exact").save(40, state(40))
    path = chain / "exact.lcc.h5"
    assert run("ls", chain)[0].splitlines()[-1] == f"exact file: step 40, {path.stat().st_size:,} bytes"
    assert run_json("ls", chain)["exact"] == {"step": 40, "bytes": path.stat().st_size, "problem": None}
    assert re.search(r"^exact +the exact file holds this state", run("info", chain)[0], re.MULTILINE)
    assert not run_json("info", chain, "--step", 30)["exact"]
    assert run_json("info", path)["exact"]
    name = run_json("info", chain)["arrays"][0]["name"]
    assert re.search(r"^step +40, of the exact file$", run("show", chain, name)[0], re.MULTILINE)
    assert re.search(r"^step +40$", run("show", chain, name, "--history")[0], re.MULTILINE)
    assert run("check", chain, "--deep")[0] == f"{chain}: sound\n"
    data = path.read_bytes()
    lccodec.Chain(chain, newest="history").save(50, state(50))
    path.write_bytes(data)
    problem = "the exact file is of step 40, and the newest checkpoint of step 50"
    assert run("ls", chain)[0].splitlines()[-1].endswith(problem)
    assert run("check", chain)[0] == f"{chain}: sound\n"
    assert problem in run("show", chain, name)[1]
    path.write_bytes(data[:-1])
    assert "cut off" in run("ls", chain)[0].splitlines()[-1]
    assert "LCC-H5-01" in run("check", chain, code=1)[0]

"""The verbs that show and check: info, show, diff, check, with and without --json.

The verbs that read files of strangers refuse what asks for more than they are allowed.

The verb report: its page, its document, its text, events, and what it refuses.
"""

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec.adapters.files.states import save_file
from lccodec.cli.look import report_text
from lccodec.inspect.examination import examine
from lccodec.inspect.report import Compared, Flag, document

from ..support.commands import damage, run, run_json, state, step_file
from ..support.reports import made_up_report
from ..support.runs import arrays_of, run_states, save_run


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


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bounding") / "run"
    with lccodec.Chain(path, "lossless") as bounded:
        for step in range(4):
            bounded.save(step, {"w": np.arange(1001.0) + step})
    lccodec.bundle(path, path.parent / "run.lcc")
    shutil.copy(path / "000000000003.lcc.h5", path / "renamed.h5")
    return path


@pytest.mark.parametrize(
    "words",
    [
        ["check", "run"],
        ["check", "--deep", "run.lcc"],
        ["restore", "run", "-o", "out.npz"],
        ["average", "run", "--last", "2", "-o", "out.npz"],
        ["show", "run", "w"],
        ["diff", "run", "0", "3"],
        ["convert", "run", "out.safetensors"],
        ["convert", "run/000000000003.lcc.h5", "out.safetensors"],
        ["convert", "run/renamed.h5", "out.safetensors"],
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_verbs(bounded: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bounded.parent)
    for option, value in (("--max-bytes", "8kB"), ("--max-deltas", "2")):
        document = run_json(*words, option, value, code=1)
        assert document["error"]["rule"] == option[2:].replace("-", "_")
    assert not list(bounded.parent.glob("out.*"))


def test_files_of_others_have_no_bounds(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", w=np.zeros(10))
    said = run("convert", tmp_path / "a.npz", tmp_path / "b.npz", "--max-bytes", "1MB", code=2)[1]
    assert "bound checkpoints, not other files" in said
    assert not (tmp_path / "b.npz").exists()


STATES = run_states(6)


@pytest.fixture(name="directory", scope="module")
def _directory(tmp_path_factory):
    return save_run(tmp_path_factory.mktemp("report") / "run", STATES, newest="exact").directory


def test_the_document_is_that_of_an_examination(directory):
    found = run_json("report", directory)
    assert found == json.loads(json.dumps(document(examine(directory, version=lccodec.__version__))))


def test_steps(directory):
    for text, expected in (
        ("0,30", [0, 30]),
        ("20:40", [20, 30, 40]),
        (":10", [0, 10]),
        ("40:", [40, 50]),
        ("0:50:20, 50", [0, 20, 40, 50]),
    ):
        assert run_json("report", directory, "--steps", text)["runs"][0]["steps"] == expected
    for text in ("x", "1:2:0", "", "-3", "1;2"):
        assert "must be steps such as" in run("report", directory, "--steps", text, code=2)[1]
    assert "has none of the given steps" in run("report", directory, "--json", "--steps", "7", code=2)[1]


def test_against_files(directory, tmp_path):
    for number, original in enumerate(STATES):
        save_file(arrays_of(original), tmp_path / f"state-{10 * number}.npz", {})
    loss = run_json("report", directory, "--against", tmp_path)["runs"][0]["loss"]
    assert loss["steps"] == [0, 10, 20, 30, 40, 50]
    assert loss["error"][0][0] is None
    assert 0 < loss["error"][0][1] < 10
    (tmp_path / "none").mkdir()
    assert "no file of a state" in run("report", directory, "--against", tmp_path / "none", code=2)[1]


def test_two_runs(directory, tmp_path):
    other = save_run(tmp_path / "other", run_states(4, seed=2)).directory
    found = run_json("report", directory, other)
    assert found["comparison"]["left"] == f"{directory} step 30 (as the history decodes)"
    assert (
        "--tensorboard needs exactly one PATH"
        in run("report", directory, other, "--tensorboard", tmp_path, code=2)[1]
    )
    assert (
        "needs exactly one path" in run("report", directory, other, "--against", other, "--json", code=2)[1]
    )


@pytest.mark.slow
def test_the_page(directory, tmp_path, monkeypatch):
    import vl_convert  # noqa: F401 - it draws the page

    monkeypatch.chdir(tmp_path)
    stdout, _ = run("report", directory)
    assert "6 checkpoints, all sound, 1 keyframes" in stdout
    assert "\nbytes     " in stdout
    assert "\nmovement  " in stdout
    assert "lost      weights: error " in stdout
    assert "Movement is not quality" in stdout
    size = (tmp_path / "report.html").stat().st_size
    assert f"page: report.html, {size:,} bytes" in stdout
    run("report", directory, "-o", "other.html", "--json")
    assert (tmp_path / "other.html").read_bytes().startswith(b"<!doctype html>")


def test_a_page_that_cannot_be_written_is_refused_at_once(directory, tmp_path):
    for output, why in ((tmp_path, "is a directory"), (tmp_path / "no" / "x.html", "does not exist")):
        assert why in run("report", directory, "-o", output, code=2)[1]


def test_without_the_library(directory, tmp_path, monkeypatch):
    monkeypatch.setattr("lccodec.cli.look.find_spec", lambda _: None)
    assert "pip install 'lccodec[report]'" in run("report", directory, code=2)[1]
    assert run_json("report", directory)["runs"]
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    stderr = run("report", directory, "--tensorboard", tmp_path, code=2)[1]
    assert "pip install 'lccodec[tensorboard]'" in stderr


def test_events(directory, tmp_path):
    import tensorboard  # noqa: F401 - its reader is not needed

    stdout, _ = run("report", directory, "--tensorboard", tmp_path / "logs")
    assert f"events: {tmp_path / 'logs'}, " in stdout
    (events,) = (tmp_path / "logs").iterdir()
    assert events.name.startswith("events.out.tfevents.")
    assert not (tmp_path / "report.html").exists()


def test_what_is_no_chain(tmp_path):
    assert "holds no checkpoint" in run("report", tmp_path, "--json", code=2)[1]
    (tmp_path / "text").write_text("a text")
    assert "not an lccodec checkpoint" in run("report", tmp_path / "text", "--json", code=1)[1]


def test_a_damaged_chain_is_reported(tmp_path):
    directory = save_run(tmp_path / "run", STATES, keyframe_every=2).directory
    damage(step_file(directory, 10))
    step_file(directory, 30).unlink()
    found = run_json("report", directory)["runs"][0]
    assert {each["step"] for each in found["checkpoints"] if not each["sound"]} >= {10, 40}
    assert found["flags"][0]["severity"] == "error"


def test_hostile_names_and_metadata_are_escaped(tmp_path):
    evil = "w\x1b[2J\u202e\x07\nweight"
    with lccodec.Chain(tmp_path / "run", "lossless") as chain:
        for step in range(3):
            array = np.full(3, 1.0 + step)
            array[0] = np.nan
            chain.save(step, {evil: array, "zero": np.zeros(2)}, {"note\x1b[1m": "a\x1b]0;title\x07"})
    stdout, stderr = run("report", tmp_path / "run", "--json")
    assert not {"\x1b", "\x07", "\u202e"} & set(stdout + stderr)


# --- the text -------------------------------------------------------------------------------------


def test_the_main_figures():
    report = made_up_report()
    text = report_text(report, {"page": "report.html, 5 bytes"})
    assert text.count("13 checkpoints, 1 of them damaged, 1 keyframes") == 2
    assert "\nloss      " in text and "  3 to 0.2308\n" in text
    assert "measured  first moments, step 1100: error 0.625 movements, 1.4 % of the spread; lag 0.12" in text
    assert "error: m/layers.1.weight" not in text
    assert "not finite" not in text.splitlines()[0]
    assert "run-a step 1100 beside run-b step 1100: 2 arrays differ" in text
    assert "  model/layers.0.weight: relative difference 0.31, cosine 0.9500" in text
    assert "  v/layers.0.weight: relative difference -, cosine -" in text
    assert text.endswith("\npage: report.html, 5 bytes")


def test_nothing_reaches_the_terminal_unescaped():
    report = made_up_report()
    evil = "\x1b[2J\u202e\n"
    flags = [Flag("error", "dead", evil, 1, evil)] * 20
    run = replace(report.runs[0], path=evil, flags=flags, notes=[evil])
    rows = [Compared(evil, "weight", 1.0, 1.0, 1.0, 1.0)]
    comparison = replace(report.comparison, left=evil, right=evil, rows=rows)
    text = report_text(replace(report, runs=[run], comparison=comparison, notes=[evil]), {"page": evil})
    assert not {"\x1b", "\u202e"} & set(text)
    assert "and 8 flags more" in text


def test_a_run_of_one_step_has_no_movement():
    run = replace(made_up_report().runs[0], steps=[0], loss=None)
    assert "\nmovement" not in report_text(replace(made_up_report(), runs=[run]), {})


def test_a_run_of_which_nothing_can_be_read():
    run = replace(made_up_report().runs[0], arrays=[], steps=[], figures={"movement": []}, loss=None)
    assert "\nmovement" not in report_text(replace(made_up_report(), runs=[run]), {})

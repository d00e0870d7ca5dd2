"""The verb report: its page, its document, its text, events, and what it refuses."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

import lccodec
from lccodec.adapters.files.states import save_file
from lccodec.cli.look import report_text
from lccodec.inspect.examination import examine
from lccodec.inspect.report import Compared, Flag, document

from ...support.commands import damage, run, run_json, step_file
from ...support.reports import made_up_report
from ...support.runs import arrays_of, run_states, save_run

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
    for number, state in enumerate(STATES):
        save_file(arrays_of(state), tmp_path / f"state-{10 * number}.npz", {})
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

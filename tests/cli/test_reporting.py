"""The text of a report in the shell."""

from dataclasses import replace

from lccodec.cli.reporting import report_text
from lccodec.inspect.report import Compared, Flag

from ..support.reports import made_up_report


def test_the_main_figures():
    report = made_up_report()
    text = report_text(report, {"page": "report.html, 5 bytes"})
    assert text.count("13 checkpoints, 1 of them damaged, 1 keyframes") == 2
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

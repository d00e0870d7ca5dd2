"""The document of a report: plain, finite, rounded."""

import json
import math
import sys

from lccodec.container.manifest import Figures
from lccodec.inspect.report import FIGURES, STREAMS, Checkpoint, Histogram, Report, Run, document

from ..support.reports import made_up_report


def test_the_document_is_json_of_finite_numbers():
    found = document(made_up_report())
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    run = found["runs"][0]
    assert list(run["figures"]) == list(FIGURES)
    assert set(run["streams"]) == set(STREAMS)
    assert all(len(rows) == len(run["arrays"]) for rows in run["figures"].values())
    assert {len(series) for rows in run["figures"].values() for series in rows} == {len(run["steps"])}


def test_what_a_save_measured_has_all_of_its_numbers():
    known = Figures(spread=3.0, movement=0.1, error=0.075, lag=0.0123456, quantiles=(1.234567, 2.0))
    figures = {"weight": known}
    run = Run("x", "file", (), [Checkpoint(1, "delta", figures=figures)], (), [], {}, (), {})
    (found,) = document(Report("1", (), [run]))["runs"][0]["checkpoints"]
    assert found["figures"]["weight"] == {
        "spread": 3.0,
        "movement": 0.1,
        "error": 0.075,
        "lag": 0.012346,
        **dict.fromkeys(["rms", "minimum", "maximum", "zeros", "not_finite"]),
        "quantiles": [1.2346, 2.0],
        "error_in_movements": 0.75,
        "error_in_spreads": 0.025,
    }


def test_numbers_are_rounded_and_finite():
    figures = {"rms": [[1.23456789e-7, math.nan, math.inf, None]]}
    run = Run(
        "x",
        "file",
        (),
        [Checkpoint(None, "keyframe")],
        (),
        [0],
        figures,
        [Histogram(-1.0, 2.0, [[3]]), None],
        {},
    )
    found = document(Report("1", (), [run]))["runs"][0]
    assert found["figures"]["rms"] == [[1.2346e-7, None, None, None]]
    assert found["checkpoints"][0]["metadata"] == found["checkpoints"][0]["roles"] == {}
    assert found["histograms"] == [{"low": -1.0, "high": 2.0, "counts": [[3]]}, None]
    assert found["loss"] is None


def test_the_largest_numbers_are_not_rounded_to_infinity():
    largest = sys.float_info.max
    run = Run("x", "file", (), [], (), [0], {"rms": [[largest, -largest]]}, [], {})
    found = document(Report("1", (), [run]))["runs"][0]
    assert found["figures"]["rms"] == [[largest, -largest]]

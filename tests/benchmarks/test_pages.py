"""The benchmark of reports, at a small size."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.pages.large import large
from benchmarks.pages.program import measure_large


def test_the_large_report_has_the_size_that_is_asked_for() -> None:
    run = large(steps=4, arrays=7, bins=8)["runs"][0]
    assert len(run["steps"]) == len(run["checkpoints"]) == 4
    assert len(run["arrays"]) == len(run["figures"]["rms"]) == len(run["histograms"]) == 7


@pytest.mark.browser
def test_a_page_is_written_and_opened(tmp_path: Path) -> None:
    found = measure_large(tmp_path / "page.html", 3, 6, openings=1)
    assert [goal.unit for goal in found] == ["s", "MB", "s"]
    assert all(goal.measured for goal in found)

"""The numbers in the page are those of the document."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..support.browser import Opened, opened
from ..support.documents import one_run, two_runs
from .conftest import Write

if TYPE_CHECKING:
    from playwright.sync_api import Browser


DIGITS = """(rows) => rows.map((row) => Array.from(row, (value) =>
    value === null ? null : Number(value.toPrecision(5))))"""

CELLS = """(caption) => {
    const found = [...document.querySelectorAll("table")]
        .find((table) => table.caption.textContent === caption);
    return [...found.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent));
}"""


def number(text: str) -> float | None:
    """The number that a cell of a table shows."""
    return None if text == "\N{EN DASH}" else float(text.replace(",", "").replace("\N{MINUS SIGN}", "-"))


def assert_shown(cells: list[str], stored: list[float | None], digits: int) -> None:
    """Assert that cells have the stored numbers, rounded to so many digits."""
    rounded = [None if value is None else float(f"{value:.{digits}g}") for value in stored]
    assert [number(cell) for cell in cells] == rounded


def test_the_page_has_the_numbers_of_the_document(browser: Browser, write: Write) -> None:
    document = two_runs()
    with opened(browser, write(document)) as report:
        for index, run in enumerate(document["runs"]):
            compare(report, f"lccodecReport.runs[{index}]", run)
        assert report.run("lccodecReport.comparison") == document["comparison"]


def compare(report: Opened, inside: str, run: dict) -> None:
    for name, rows in run["figures"].items():
        assert report.run(f"({DIGITS})({inside}.figures.{name})") == rows
    for name in ("error", "bias", "largest"):
        assert report.run(f"({DIGITS})({inside}.loss.{name})") == run["loss"][name]
    for name in ("checkpoints", "arrays", "steps", "streams", "flags", "notes"):
        assert report.run(f"{inside}.{name}") == run[name]
    for index, rows in enumerate(run["quantiles"]):
        expected = None if rows is None else [row or [None] * 9 for row in rows]
        found = f"{inside}.quantiles[{index}]"
        assert report.run(f"{found} && ({DIGITS})({found})") == expected
    unpacked = report.run(
        f"""{inside}.histograms.map((each) => each && each.counts.map((heights, step) =>
            Array.from(heights, (height) => (height / 255) ** 2 * each.peaks[step])))"""
    )
    for histogram, steps in zip(run["histograms"], unpacked, strict=True):
        if histogram is None:
            assert steps is None
            continue
        for counts, shown in zip(histogram["counts"], steps, strict=True):
            expected = counts or [0] * len(shown)
            assert shown == pytest.approx(expected, abs=0.004 * max(counts, default=0))


def test_tables_show_them(browser: Browser, write: Write) -> None:
    document = one_run()
    run = document["runs"][0]
    with opened(browser, write(document)) as report:
        report.run("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
        report.wait("document.querySelectorAll('details.data table').length >= 6")
        shown = report.run(CELLS, f"{run['arrays'][1]['name']}, by step")
        assert [number(row[0]) for row in shown] == run["steps"]
        for column, name in enumerate(run["figures"], 1):
            stored = run["figures"][name][1]
            assert_shown([row[column] for row in shown], stored, digits=4)
        movement = report.run(CELLS, "Movement of weights, by step")
        for row, stored in zip(movement, run["figures"]["movement"], strict=False):
            assert_shown(row[1:], stored, digits=3)
        numbers = report.run(CELLS, "Numbers by step")
        for column, name in enumerate(run["scalars"], 1):
            assert_shown([row[column] for row in numbers], run["scalars"][name], digits=4)
        measured = report.run(CELLS, "Error and lag of each save")
        assert measured[0][1:4] == ["\N{EN DASH}", "\N{EN DASH}", "20 %"]  # no movement is known
        for row, point in zip(measured, run["checkpoints"], strict=False):
            assert number(row[0]) == point["step"]
            for place, found in enumerate(point["figures"].values()):
                numbers = found["error_in_movements"], found["lag"]
                assert_shown(row[3 * place + 1 : 3 * place + 3], list(numbers), digits=4)
                assert row[3 * place + 3] == f"{100 * found['error_in_spreads']:.3g} %"
        points = report.run(CELLS, "All 13 checkpoints, with the policy balanced")
        assert [number(row[0]) for row in points] == [point["step"] for point in run["checkpoints"]]
        assert [row[1].split(",")[0] for row in points] == [point["kind"] for point in run["checkpoints"]]
        assert points[0][4:8] == ["9.00 kB", "9.00 kB", "10.9\N{MULTIPLICATION SIGN}", "yes"]
        assert points[-1][7] == "no: the file is cut off [LCC-TRL-06]"
        assert [row[8] for row in points[:3]] == ["3.000", "1.500", "1.000"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("null", "\N{EN DASH}"),
        ("0", "0"),
        ("1234.56", "1,235"),
        ("-0.0012344", "\N{MINUS SIGN}0.001234"),
        ("1.2344e-9", "1.234e\N{MINUS SIGN}9"),
        ("2e20", "2e20"),
        ("100", "100"),
        ("0.1 + 4e-7", "0.1"),
    ],
)
def test_numbers_as_text(value: str, shown: str, text: Opened) -> None:
    assert text.run(f"formatNumber({value})") == shown


@pytest.fixture(scope="module")
def text(browser: Browser):
    """A tab with the functions of ``text.js`` alone."""
    from lccodec.report import _WEB

    page = browser.new_page()
    page.add_script_tag(content=(_WEB / "text.js").read_text(encoding="utf-8"))
    yield Opened(page)
    page.close()


def test_what_saves_measured_is_drawn_as_it_is_known(browser: Browser, write: Write) -> None:
    """Of an array that lost something there is a box of quantiles, and no histogram."""
    document = one_run()
    run = document["runs"][0]
    with opened(browser, write(document)) as report:
        for index, kinds in ((0, (False, True)), (1, (True, True)), (2, (True, False))):
            report.page.locator("select[id$=-found]").select_option(str(index))
            text = report.text("section:has(select[id$=-found])")
            assert ("measured at the save" in text, "Histogram over time" in text) == kinds
        report.run("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
        caption = f"What the saves measured of {run['arrays'][2]['name']}, by step"
        report.wait(f"[...document.querySelectorAll('caption')].some((c) => c.textContent === '{caption}')")
        shown = report.run(CELLS, caption)
        for row, stored in zip(shown, run["quantiles"][2], strict=True):
            assert_shown(row[1:], stored, digits=4)

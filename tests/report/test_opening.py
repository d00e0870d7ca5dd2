"""Every kind of report opens, stays in its file, and can be read by everyone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from ..support import documents
from ..support.browser import Opened, opened
from .conftest import Write

KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "one run": documents.one_run,
    "two runs": documents.two_runs,
    "damaged": documents.damaged,
    "hostile": documents.hostile,
    "no arrays": documents.no_arrays,
    "one step": documents.one_step,
    "nothing finite": documents.nothing_finite,
}
CHARTS = {"one run": 15, "two runs": 32, "damaged": 0, "hostile": 17, "no arrays": 2}

any_kind = pytest.mark.parametrize("kind", KINDS)


def check(report: Opened) -> None:
    assert report.complaints == []
    assert report.requests == []
    assert report.run("document.documentElement.dataset.state") == "ready"


def sideways(report: Opened) -> int:
    """By how many pixels the page is wider than its window."""
    return report.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")


@any_kind
@pytest.mark.parametrize("width", [1280, 390])
def test_it_opens(kind: str, width: int, browser: Browser, write: Write) -> None:
    with opened(browser, write(KINDS[kind]()), width) as report:
        check(report)
        assert sideways(report) <= 0
        assert report.run("document.querySelectorAll('.chart').length") == report.run(
            "document.querySelectorAll('.chart svg').length"
        )
        if kind in CHARTS:
            assert report.page.locator(".chart svg").count() == CHARTS[kind]


@any_kind
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_left_out(kind: str, scheme: Any, browser: Browser, write: Write) -> None:
    with opened(browser, write(KINDS[kind]()), color_scheme=scheme) as report:
        report.run("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
        found = Axe().run(report.page)
        assert found.violations_count == 0, found.generate_report()
        check(report)


@any_kind
def test_it_prints_whole(kind: str, browser: Browser, write: Write, tmp_path: Path) -> None:
    with opened(browser, write(KINDS[kind]()), 720) as report:  # the width of a page of paper
        report.page.emulate_media(media="print")
        assert sideways(report) <= 0
        cut = "node => node.scrollHeight > node.clientHeight + 2 || node.scrollWidth > node.clientWidth + 2"
        assert (
            report.run(f"[...document.querySelectorAll('.scroll, .long, .chart')].filter({cut}).length") == 0
        )
        pdf = report.page.pdf(path=tmp_path / "report.pdf", format="A4")
        assert pdf.startswith(b"%PDF")
        check(report)


def test_a_page_that_cannot_be_read_says_so(browser: Browser, write: Write) -> None:
    file = write(documents.one_run())
    before, data = file.read_text(encoding="utf-8").split('id="data">')
    file.write_text(f'{before}id="data">AAAA{data}', encoding="utf-8")
    with opened(browser, file) as report:
        assert report.run("document.documentElement.dataset.state") == "failed"
        assert "cannot show the report" in report.text("main")


def test_thousands_of_arrays(browser: Browser, write: Write) -> None:
    with opened(browser, write(documents.many_arrays())) as report:
        check(report)
        assert sideways(report) <= 0
        assert "500 are listed" in report.text("#array [role=status]")

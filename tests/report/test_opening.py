"""Every kind of report opens, stays in its file, and can be read by everyone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ..support import documents
from ..support.browser import Opened, opened
from .conftest import Write

if TYPE_CHECKING:
    from playwright.sync_api import Browser


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "one run": documents.one_run,
    "fields": documents.fields,
    "two runs": documents.two_runs,
    "damaged": documents.damaged,
    "hostile": documents.hostile,
    "no arrays": documents.no_arrays,
    "one step": documents.one_step,
    "nothing finite": documents.nothing_finite,
}
CHARTS = {
    "one run": 23,
    "fields": 23 + 4 + 3 + 3,  # slices, errors, spectra
    "two runs": 8,
    "damaged": 0,
    "hostile": 36,
    "no arrays": 2,
    "one step": 5,
    "nothing finite": 8,
}


@pytest.fixture(scope="module", params=KINDS)
def report(request: pytest.FixtureRequest, browser: Browser, write: Write) -> Iterator[Opened]:
    with opened(browser, write(KINDS[request.param]())) as made:
        yield made


def check(report: Opened) -> None:
    assert report.complaints == []
    assert report.requests == []
    assert report.run("document.documentElement.dataset.state") == "ready"
    assert report.run("document.querySelectorAll('.chart:not(:has(svg))').length") == 0
    # By how many pixels the page is wider than its window.
    assert report.run("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


def test_it_opens(report: Opened, request: pytest.FixtureRequest) -> None:
    check(report)
    kind = request.node.callspec.params["report"]
    assert report.page.locator(".chart svg").count() == CHARTS[kind]


@pytest.mark.parametrize(
    "report", ["two runs", "fields", "damaged", "no arrays"], indirect=True
)  # all parts of pages
def test_nobody_is_left_out(report: Opened, request: pytest.FixtureRequest) -> None:
    from axe_playwright_python.sync_playwright import Axe

    report.run("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    if request.node.callspec.params["report"] == "two runs":  # each is drawn when its fold is opened
        report.page.wait_for_selector("#chain-1 svg")
        report.page.wait_for_selector("#chain-2 svg")
        report.wait("!document.querySelector('.chart:not(:has(svg))')")
    report.page.emulate_media(color_scheme="dark")
    dark = Axe().run(report.page, options={"runOnly": ["color-contrast"]})
    assert dark.violations_count == 0, dark.generate_report()
    report.page.emulate_media(color_scheme="light")
    light = Axe().run(report.page)
    assert light.violations_count == 0, light.generate_report()
    check(report)


@pytest.mark.parametrize("report", ["fields"], indirect=True)
def test_pictures_have_words_and_the_colours_of_the_theme(report: Opened) -> None:
    labels = report.run("[...document.querySelectorAll('.raster')].map((x) => x.getAttribute('aria-label'))")
    assert labels[0] == "A slice of model/layers.0.weight, from \u22121.996 to 2"
    assert [label.split()[1] for label in labels] == ["slice", "error", "slice", *["slice", "error"] * 2]
    assert report.page.locator(".key", has_text="no number").count() == 1
    colours = []
    for theme in ("light", "dark"):
        report.page.emulate_media(color_scheme=theme)
        colours.append(report.run("getComputedStyle(document.querySelector('.raster path')).fill"))
    assert colours[0] != colours[1]
    report.page.emulate_media(color_scheme="light")


def test_it_prints_whole(report: Opened) -> None:
    report.page.emulate_media(media="print")
    report.page.set_viewport_size({"width": 720, "height": 1000})  # about a page of paper
    cut = "(node) => node.scrollHeight > node.clientHeight + 2 || node.scrollWidth > node.clientWidth + 2"
    shown = "[...document.querySelectorAll('.scroll, .long, .chart')].filter((node) => node.clientHeight)"
    assert report.run(f"{shown}.filter({cut}).map((node) => node.textContent.slice(0, 40))") == []
    assert report.page.pdf(format="A4").startswith(b"%PDF")
    assert report.page.locator(".more").count() == 0  # all rows are on paper
    check(report)
    report.page.emulate_media(media="screen")


def test_on_a_phone(report: Opened) -> None:
    report.page.set_viewport_size({"width": 390, "height": 800})
    report.page.reload()
    report.page.wait_for_selector("html[data-state]", state="attached")
    check(report)


#: Notes what the page has when its first chart is there.
WATCH = """
new MutationObserver((_, observer) => {
  if (!document.querySelector(".chart svg")) return;
  const count = (what) => document.querySelectorAll(what).length;
  window.atFirst = { sections: count("main section"), figures: count(".chart") };
  observer.disconnect();
}).observe(document, { childList: true, subtree: true });
"""


@pytest.mark.parametrize(("kind", "figures"), [("one run", 2), ("two runs", 6)])
def test_the_first_chart_waits_for_nothing(browser: Browser, write: Write, kind: str, figures: int) -> None:
    """What comes after the part of the first chart is made later, and so are most matrices."""
    context = browser.new_context()
    context.add_init_script(WATCH)
    page = context.new_page()
    page.goto(write(KINDS[kind]()).as_uri())
    page.wait_for_selector("html[data-state=ready]", state="attached")
    assert page.evaluate("atFirst") == {"sections": 1, "figures": figures}
    assert page.locator("main section").count() > 1 or kind == "two runs"
    decoded = """lccodecReport.runs[0].histograms.filter((each) => each
        && !Object.getOwnPropertyDescriptor(each, "counts").get).length"""
    assert page.evaluate(decoded) == (kind == "one run")
    context.close()


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
        assert "500 are listed" in report.text("#array [role=status]")

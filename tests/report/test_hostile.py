"""Names, metadata and sentences of strangers are text and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ..support.browser import Opened, opened
from ..support.documents import HOSTILE, hostile
from .conftest import Write

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def report(browser: Browser, write: Write) -> Iterator[Opened]:
    with opened(browser, write(hostile())) as made:
        yield made


def test_nothing_runs_and_nothing_is_made(report: Opened) -> None:
    for place in range(len(HOSTILE)):
        report.run(
            """(index) => {
                const found = document.querySelector("#array-found");
                found.value = String(index);
                found.dispatchEvent(new Event("change"));
            }""",
            place,
        )
        report.run("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    assert report.run("window.harmed === undefined")
    assert report.page.locator("main img, main script, main svg svg[onload], iframe, object").count() == 0
    assert report.complaints == []
    assert report.requests == []


def test_nothing_hides_or_reorders_what_is_beside_it(report: Opened) -> None:
    report.run("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    text = report.run("document.body.textContent + document.title")
    for character in ("\u202e", "\x07", "\x1b", "\x00", "\u200b", "\ufeff", "\ud800"):
        assert character not in text
    for shown in ("\\u202e", "\\x07", "\\x1b[2J\\x0d\\x0a", "\\x00", "\\u200b", "\\ufeff", "\\ud800"):
        assert shown in text
    assert report.run("getComputedStyle(document.querySelector('.name')).unicodeBidi") == "isolate"


def test_a_long_name_is_short_in_lists_and_whole_where_asked_for(report: Opened) -> None:
    place = HOSTILE.index("a" * 10_000)
    assert (
        len(report.run("(index) => document.querySelector('#array-found').options[index].textContent", place))
        == 80
    )
    report.page.select_option("#array-found", value=str(place))
    report.wait("document.querySelector('#array h3').textContent.length === 10000")
    assert report.page.locator("#array h3").bounding_box()["height"] < 200


def test_the_title_is_the_name_of_the_run(report: Opened) -> None:
    assert report.text("h1").startswith("<img src=x onerror=")
    assert report.page.title().endswith("\N{EN DASH} lccodec report")


def test_even_a_script_could_load_nothing(browser: Browser, write: Write) -> None:
    with opened(browser, write(hostile())) as report:
        for address in ("https://example.com/", "data:text/plain,a", "blob:null/a"):
            assert not report.run(f"fetch('{address}').then(() => true, () => false)")
        refused = """new Promise((done) => {
            document.addEventListener("securitypolicyviolation", (event) => done(event.violatedDirective));
            const made = document.createElement("script");
            made.textContent = "window.harmed = 1";
            document.body.append(made);
        })"""
        assert report.run(refused).startswith("script-src")
        assert report.run("window.harmed === undefined")
        assert report.requests == []

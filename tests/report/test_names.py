"""Names and findings as a reader sees them: with their slashes, marked, and on a phone.

Names, metadata and sentences of strangers are text and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ..support.browser import Opened, opened
from ..support.documents import HOSTILE, hostile, one_run
from .conftest import Write

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FLAT = "model~1blocks.{}.a_part_with_a_long_name.w~0eight"
SHOWN = "model/blocks.{}.a_part_with_a_long_name.w~eight"


def flat_run() -> dict[str, Any]:
    """A run whose state is a flat dictionary: keys with slashes, which names of arrays escape."""
    document = one_run()
    run = document["runs"][0]
    for place in range(3):
        run["arrays"][place]["name"] = FLAT.format(place)
    flag = {"severity": "warning", "kind": "exploding", "array": FLAT.format(0), "since": 500, "step": 600}
    flag["arrays"] = [FLAT.format(0), FLAT.format(2)]
    flag["sentence"] = f"2 weights move farther: {SHOWN.format(0)}, {SHOWN.format(2)}."
    run["flags"] = [flag]
    words = f"Look at what happened between steps 500 and 600: {flag['sentence']}"
    run["verdict"] = {"state": "look", "sentence": words}
    return document


@pytest.fixture(scope="module")
def report(browser: Browser, write: Write) -> Iterator[Opened]:
    with opened(browser, write(flat_run())) as made:
        yield made
        assert made.complaints == []


def test_names_have_their_slashes(report: Opened) -> None:
    body = report.text("body")
    assert "~1" not in body and "~0" not in body
    assert SHOWN.format(1) in body
    assert report.texts("#array-found option")[0] == SHOWN.format(0)


def test_every_array_of_a_finding_is_linked(report: Opened) -> None:
    for where in (".verdict", "#findings li"):
        assert report.texts(f"{where} a") == [SHOWN.format(0), SHOWN.format(2)]
        stored = [report.page.locator(f"{where} a").nth(i).get_attribute("href") for i in (0, 1)]
        assert stored == [
            f"#array=model%7E1blocks.{i}.a_part_with_a_long_name.w%7E0eight&step=600" for i in (0, 2)
        ]


def test_a_finding_says_between_which_saves_it_lies(report: Opened) -> None:
    assert report.texts("#findings .flag-when") == ["between steps 500 and 600"]


def test_arrays_with_findings_are_marked(report: Opened) -> None:
    rows = "[...document.querySelectorAll('#arrays tbody tr')].filter((row) => row.querySelector('a'))"
    assert report.run(f"{rows}.map((row) => row.querySelectorAll('.mark').length)") == [1, 0, 1]
    block = report.page.locator("#arrays tbody tr:first-child .mark")
    assert block.count() == 1
    assert block.get_attribute("title") == "2 findings"


def test_the_largest_movement_has_its_step(report: Opened) -> None:
    run = flat_run()["runs"][0]
    series = run["figures"]["movement"][0]
    most = max(x for x in series if x is not None)
    cells = report.run(
        """[...document.querySelectorAll('#arrays tbody tr')].find((row) => row.querySelector('a'))
            .innerText.split('\\t')"""
    )
    assert float(cells[3]) == pytest.approx(most, rel=1e-2)
    assert cells[4] == f"{run['steps'][series.index(most)]:,}"


def test_a_phone_shows_all_of_a_long_name(report: Opened) -> None:
    report.page.set_viewport_size({"width": 400, "height": 800})
    report.wait("document.querySelector('#movement .chart svg').getBoundingClientRect().width < 400")
    assert report.run("document.documentElement.scrollWidth") == 400
    names = "new Set([...document.querySelectorAll('#movement .chart text')].map((text) => text.textContent)"
    report.wait(f"{names}.filter((name) => name.endsWith('w~eight'))).size === 3")  # they differ


if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def outside(browser: Browser, write: Write) -> Iterator[Opened]:
    with opened(browser, write(hostile())) as made:
        yield made


def test_nothing_runs_and_nothing_is_made(outside: Opened) -> None:
    for place in range(len(HOSTILE)):
        outside.run(
            """(index) => {
                const found = document.querySelector("#array-found");
                found.value = String(index);
                found.dispatchEvent(new Event("change"));
            }""",
            place,
        )
        outside.run("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    assert outside.run("window.harmed === undefined")
    assert outside.page.locator("main img, main script, main svg svg[onload], iframe, object").count() == 0
    assert outside.complaints == []
    assert outside.requests == []


def test_nothing_hides_or_reorders_what_is_beside_it(outside: Opened) -> None:
    outside.run("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    text = outside.run("document.body.textContent + document.title")
    for character in ("\u202e", "\x07", "\x1b", "\x00", "\u200b", "\ufeff", "\ud800"):
        assert character not in text
    for shown in ("\\u202e", "\\x07", "\\x1b[2J\\x0d\\x0a", "\\x00", "\\u200b", "\\ufeff", "\\ud800"):
        assert shown in text
    assert outside.run("getComputedStyle(document.querySelector('.name')).unicodeBidi") == "isolate"


def test_a_long_name_is_short_in_lists_and_whole_where_asked_for(outside: Opened) -> None:
    place = HOSTILE.index("a" * 10_000)
    text = outside.run("(index) => document.querySelector('#array-found').options[index].textContent", place)
    assert len(text) == 80
    outside.page.select_option("#array-found", value=str(place))
    outside.wait("document.querySelector('#array h3').textContent.length === 10000")
    assert outside.page.locator("#array h3").bounding_box()["height"] < 200


def test_the_title_is_the_name_of_the_run(outside: Opened) -> None:
    assert outside.text("h1").startswith("<img src=x onerror=")
    assert outside.page.title().endswith("\N{EN DASH} lccodec report")


def test_even_a_script_could_load_nothing(browser: Browser, write: Write) -> None:
    with opened(browser, write(hostile())) as outside:
        for address in ("https://example.com/", "data:text/plain,a", "blob:null/a"):
            assert not outside.run(f"fetch('{address}').then(() => true, () => false)")
        refused = """new Promise((done) => {
            document.addEventListener("securitypolicyviolation", (event) => done(event.violatedDirective));
            const made = document.createElement("script");
            made.textContent = "window.harmed = 1";
            document.body.append(made);
        })"""
        assert outside.run(refused).startswith("script-src")
        assert outside.run("window.harmed === undefined")
        assert outside.requests == []

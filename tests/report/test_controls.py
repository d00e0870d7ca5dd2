"""Each control does what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..support.browser import Opened, opened
from ..support.documents import many_arrays, one_run
from .conftest import Write

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def file(write: Write) -> Path:
    return write(one_run())


@pytest.fixture
def report(browser: Browser, file: Path) -> Iterator[Opened]:
    with opened(browser, file) as made:
        yield made
        assert made.complaints == []


def background(report: Opened) -> str:
    return report.run("getComputedStyle(document.body).backgroundColor")


def labels(report: Opened) -> str:
    """The texts in the heatmap."""
    return report.run("document.querySelector('#movement .chart').textContent")


def test_search_lists_what_matches(report: Opened) -> None:
    report.page.fill("#array-search", "V 1")
    assert report.texts("#array-found option") == ["v/layers.1.weight"]
    assert report.text("#array [role=status]") == "1 of 12 names found"
    report.wait("document.querySelector('#array h3').textContent === 'v/layers.1.weight'")
    report.page.fill("#array-search", "nothing has this name")
    assert report.texts("#array-found option") == []
    assert report.text("#array h3") == "v/layers.1.weight"
    report.page.fill("#array-search", "")
    assert len(report.texts("#array-found option")) == 12


def test_the_list_shows_an_array(report: Opened) -> None:
    report.page.select_option("#array-found", label="m/layers.2.weight")
    report.wait("document.querySelector('#array h3').textContent === 'm/layers.2.weight'")
    assert "first moment" in report.text("#array .facts")


def test_the_slider_chooses_a_step(report: Opened) -> None:
    assert report.text("#array output") == "1,100"
    stored = report.run("lccodecReport.runs[0].figures.rms[1]")
    rule = """[...document.querySelectorAll("#array .multiples .role-mark line[stroke='var(--mark)']")]
        .map((line) => line.getBoundingClientRect().x)"""
    before = report.run(rule)
    report.page.focus("#array-step")
    report.page.keyboard.press("ArrowLeft")
    report.page.keyboard.press("ArrowLeft")
    assert report.text("#array output") == "900"
    assert report.page.get_attribute("#array-step", "aria-valuetext") == "step 900"
    shown = report.text("#array .facts >> nth=1")
    assert f"{stored[9]:.3}"[:5] in shown
    assert all(now < then for now, then in zip(report.run(rule), before, strict=True))
    bars = report.run("[...document.querySelectorAll('#array .pair .chart .mark-rect path')].length")
    assert bars > 24
    report.page.keyboard.press("Home")
    assert report.text("#array output") == "0"


def test_buttons_choose_a_role(report: Opened) -> None:
    assert "model/layers.0.weight" in labels(report)
    report.page.check("#movement >> text=second moments", force=True)
    report.wait("document.querySelector('#movement .chart').textContent.includes('v/layers.0')")
    assert "model/layers.0.weight" not in labels(report)
    report.run("document.querySelectorAll('#movement details').forEach((fold) => { fold.open = true; })")
    report.page.wait_for_selector("#movement table")
    assert "Movement of second moments" in report.texts("#movement caption")


def test_themes_change_colours_of_page_and_charts(report: Opened) -> None:
    fill = "getComputedStyle(document.querySelector('#movement .chart .mark-rect path')).fill"
    light, chart = background(report), report.run(fill)
    report.page.check("#theme >> text=Dark", force=True)
    dark = background(report)
    assert dark != light
    assert report.run(fill) != chart
    report.page.check("#theme >> text=System", force=True)
    assert background(report) == light
    report.page.emulate_media(color_scheme="dark")
    assert background(report) == dark
    report.page.check("#theme >> text=Light", force=True)
    assert background(report) == light
    report.page.check("#theme >> text=Dark", force=True)
    report.page.emulate_media(media="print")
    assert report.run("getComputedStyle(document.documentElement).colorScheme") == "light"


def test_a_pointer_sees_values(report: Opened) -> None:
    cell = report.page.locator("#movement .chart .mark-rect path").first
    cell.scroll_into_view_if_needed()
    cell.hover()
    report.page.wait_for_selector("#tip:not([hidden])")
    assert report.text("#tip").startswith("model/layers.0.weight\nstep 100: ")
    report.page.mouse.move(2, 2)
    report.page.wait_for_selector("#tip", state="hidden")


def test_a_row_of_the_heatmap_shows_its_array(report: Opened) -> None:
    report.page.locator("#movement .chart .mark-rect path").last.click()
    report.wait("document.querySelector('#array h3').textContent === 'model/layers.2.weight'")


def names_of_rows(report: Opened) -> list[str]:
    return report.texts("#arrays tbody th")


def test_the_tree_of_arrays_folds(report: Opened) -> None:
    assert report.text("#arrays caption") == "3 arrays: weights"
    blocks = report.page.locator("#arrays .fold")
    opened_at_first = names_of_rows(report)
    assert opened_at_first == ["model/layers. (3)", "0.weight", "1.weight", "2.weight"]
    blocks.first.focus()
    report.page.keyboard.press("Enter")
    assert report.run("document.activeElement.getAttribute('aria-expanded')") == "false"  # it keeps the focus
    assert names_of_rows(report) == opened_at_first[:1]
    report.page.keyboard.press("Enter")
    assert names_of_rows(report) == opened_at_first
    report.page.check("#arrays >> text=second moments", force=True)
    assert report.text("#arrays caption").endswith("second moments")


def test_the_tree_of_arrays_is_sorted_by_any_column(report: Opened) -> None:
    movements = """[...document.querySelectorAll('#arrays tbody tr')].filter((row) => row.querySelector('a'))
        .map((row) => row.children[2].textContent)"""
    names = "[...document.querySelectorAll('#arrays tbody a')].map((name) => name.textContent)"
    before, order = report.run(movements), report.run(names)
    head = report.page.locator("#arrays thead th").nth(2)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    falling = report.run(movements)
    assert [float(each) for each in falling] == sorted(map(float, before), reverse=True)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert report.run(movements) == falling[::-1]
    head.locator("button").click()
    assert report.run(movements) == before
    assert report.run(names) == order


def test_an_array_of_the_tree_is_a_link(report: Opened) -> None:
    report.page.locator("#arrays tbody a").last.click()
    report.wait("document.activeElement.id === 'array-found'")
    assert report.text("#array h3") == report.run("new URLSearchParams(location.hash.slice(1)).get('array')")
    assert report.text("#array h3") != "model/layers.0.weight"


def test_keyframes_are_marked(report: Opened) -> None:
    keyframes = report.run(
        "lccodecReport.runs[0].checkpoints.filter(({ kind }) => kind === 'keyframe').length"
    )
    marks = "[...document.querySelectorAll('#{} .chart')].filter((chart) => chart.querySelector('svg'))"
    count = ".map((chart) => chart.querySelectorAll('[d][fill=\"var(--keyframe)\"]').length)"
    assert keyframes
    for section in ("movement", "run-scalars"):
        found = report.run(marks.format(section) + count)
        assert found
        assert set(found) == {keyframes}


def test_findings_are_marked(report: Opened) -> None:
    steps = report.run("new Set(lccodecReport.runs[0].flags.map(({ step }) => step)).size") - 1  # null
    count = "document.querySelectorAll('#{} .chart:first-of-type [d][fill=\"var(--bad)\"]').length"
    assert report.run(count.format("run-scalars")) == 2 * steps  # in two charts
    assert report.run(count.format("movement")) == steps - 1  # one is of a step that is not shown


def test_what_spans_powers_of_ten_has_a_logarithmic_axis(report: Opened) -> None:
    assert report.texts("#run-scalars figcaption") == ["loss Logarithmic.", "lr Logarithmic."]
    ticks = "[...document.querySelectorAll('#run-scalars .chart')][0].textContent"
    assert all(tick in report.run(ticks) for tick in ("0.5", "1", "2"))


def test_a_finding_shows_its_array(report: Opened) -> None:
    assert report.texts("#findings .severity") == ["error", "error", "warning", "note"]
    report.page.locator("#array-found").select_option(index=2)
    report.wait("document.querySelector('#array h3').textContent === 'model/layers.2.weight'")
    report.run("history.replaceState(null, '', location.pathname)")
    before = report.run("document.querySelector('#array h3').textContent")
    report.page.locator("#findings a").first.click()
    name = "document.querySelector('#array h3').textContent"
    report.wait(f"{name} === 'model/layers.1.weight'")
    assert report.run("document.activeElement.id") == "array-found"
    flag = report.run("lccodecReport.runs[0].flags[0]")
    assert report.run("location.hash") == f"#array={flag['array'].replace('/', '%2F')}&step={flag['step']}"
    steps = report.run("lccodecReport.runs[0].steps")
    shown = report.run("Number(document.querySelector('#array-step').value)")
    assert steps[shown] == flag["step"]
    report.page.locator("#movement-title").scroll_into_view_if_needed()
    report.page.locator("#findings a").first.click()  # the same again leads there again
    report.wait("document.activeElement.id === 'array-found'")
    report.page.go_back()
    assert report.run("location.hash") == ""
    assert before != "model/layers.1.weight"


def test_the_address_says_what_is_shown_and_can_be_shared(report: Opened) -> None:
    report.page.locator("#array-found").select_option(index=1)
    report.page.locator("#array-step").fill("1")
    name = report.run("document.querySelector('#array h3').textContent")
    address = report.run("location.href")
    assert address.endswith(f"step={report.run('lccodecReport.runs[0].steps[1]')}")
    report.page.goto("about:blank")
    report.page.goto(address)
    report.wait("document.documentElement.dataset.state === 'ready'")
    assert report.run("document.querySelector('#array h3').textContent") == name
    assert report.run("document.querySelector('#array-step').value") == "1"


def test_the_verdict_links_the_arrays_that_it_names(report: Opened) -> None:
    sentence = report.run("lccodecReport.runs[0].verdict.sentence")
    assert report.text(".verdict") == sentence
    link = report.page.locator(".verdict a")
    assert link.inner_text() == "model/layers.1.weight"
    assert link.get_attribute("href") == "#array=model%2Flayers.1.weight&step=1100"


def test_the_first_finding_is_open_at_first(report: Opened) -> None:
    assert report.text("#array h3") == "model/layers.1.weight"
    assert report.run("location.hash") == ""
    assert report.page.input_value("#array-found") == "1"


def test_links_lead_to_the_sections(report: Opened) -> None:
    names = ["The run", "What stands out", "Movement", "Arrays", "What was lost", "One array", "The chain"]
    assert report.texts("nav a") == names
    for link in report.run(
        "[...document.querySelectorAll('nav a')].map((link) => link.getAttribute('href'))"
    ):
        assert report.page.locator(link).count() == 1


def test_the_keyboard_reaches_every_control(report: Opened) -> None:
    reached = set()
    for _ in range(60):
        report.page.keyboard.press("Tab")
        reached.add(
            report.run(
                "document.activeElement.id || document.activeElement.name || document.activeElement.className"
            )
        )
    assert {"skip", "theme", "array-search", "array-found", "array-step", "scroll"} <= {
        name if isinstance(name, str) else "" for name in reached
    }


def test_a_window_of_another_width_gets_other_charts(report: Opened) -> None:
    width = "document.querySelector('#movement .chart svg').getBoundingClientRect().width"
    before = report.run(width)
    report.page.set_viewport_size({"width": 500, "height": 800})
    report.wait(f"{width} < 500 && {width} > 380")
    assert before > 900


def test_rows_beyond_forty_are_turned_to(browser: Browser, write: Write) -> None:
    with opened(browser, write(many_arrays(arrays=600))) as report:
        status = "#movement [role=status]"
        assert report.text(status) == "Rows 1 to 40 of 150"
        assert report.page.locator("text=Earlier rows").is_disabled()
        for _ in range(3):
            report.page.click("text=Later rows")
        assert report.text(status) == "Rows 121 to 150 of 150"
        assert report.page.locator("text=Later rows").is_disabled()
        report.wait("document.querySelector('#movement .chart').textContent.includes('layers.120.')")
        report.page.check("#movement >> text=first moments", force=True)
        assert report.text(status) == "Rows 1 to 40 of 150"

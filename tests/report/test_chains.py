"""Reports of chains on the disk: whole, damaged, and two beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import lccodec
from lccodec.inspect.examination import examine
from lccodec.inspect.report import document

from ..support.browser import opened
from .conftest import Write

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def make_chain(directory: Path, seed: int = 0, steps: int = 6) -> Path:
    """Save some steps of weights and moments, with the loss as metadata."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((40, 50), np.float32)
    with lccodec.Chain(directory, newest="exact") as chain:
        for step in range(0, 10 * steps, 10):
            gradient = rng.standard_normal(weight.shape, np.float32)
            weight -= np.float32(0.01) * gradient
            state = {
                "model": {"weight": weight},
                "optimizer": {"exp_avg": {"weight": gradient}},
                "step": step,
            }
            chain.save(step, state, metadata={"loss": f"{1 / (1 + step):.3f}"})
    return directory


def test_a_damaged_chain_is_shown_as_such(browser: Browser, write: Write, tmp_path: Path) -> None:
    chain = make_chain(tmp_path / "run")
    file = sorted(chain.glob("*40*.h5"))[0]
    file.write_bytes(file.read_bytes()[:-100])
    found = document(examine(chain))
    with opened(browser, write(found)) as report:
        assert report.complaints == []
        kinds = report.texts("#chain tbody .kind")
        assert kinds == ["keyframe", "delta", "delta", "delta", "unreadable", "unreadable"]
        assert report.texts("#chain tbody .good") == ["yes"] * kinds.index("unreadable")
        assert "damaged" in report.text("header")
        assert "error" in report.texts("#findings .severity")
        assert report.texts("#chain tbody td:last-child")[:2] == ["1.000", "0.091"]


def test_two_chains_beside_each_other(browser: Browser, write: Write, tmp_path: Path) -> None:
    left, right = make_chain(tmp_path / "left"), make_chain(tmp_path / "right", seed=1)
    found = document(examine(left, right))
    with opened(browser, write(found)) as report:
        assert report.complaints == []
        assert report.text("h1") == "left and right"
        rows = found["comparison"]["rows"]
        assert {row["name"] for row in rows} == {"model/weight", "optimizer/exp_avg/weight"}
        assert report.texts("#comparison tbody th")[0] == "model/weight"  # weights first
        assert report.texts("nav a") == ["Both runs", "Two states", "Run 1: left", "Run 2: right"]
        assert report.texts("#together figcaption")[:2] == [
            "loss Logarithmic.",
            "Movement of weights, median",
        ]
        lines = "document.querySelectorAll('#together .chart')[0].querySelectorAll('.mark-line path').length"
        assert report.run(lines) == 2  # one for each run
        legend = (
            "[...document.querySelectorAll('#together .role-legend-label text')].map((x) => x.textContent)"
        )
        assert report.run(legend)[:2] == ["1: left", "2: right"]
        assert report.page.locator("main h2").count() == 4  # the rest is in folds
        assert report.texts("#summary .which") == ["1: left", "2: right"]
        assert report.texts("#summary .verdict") == [run["verdict"]["sentence"] for run in found["runs"]]


def test_a_link_opens_the_fold_of_its_run(browser: Browser, write: Write, tmp_path: Path) -> None:
    found = document(examine(make_chain(tmp_path / "left"), make_chain(tmp_path / "right", seed=1)))
    with opened(browser, write(found)) as report:
        assert report.page.locator("#array-2").count() == 0
        report.run("location.hash = '#run=2&array=optimizer%2Fexp_avg%2Fweight&step=20'")
        report.page.wait_for_selector("#array-2 h3 >> text=optimizer/exp_avg/weight")
        assert report.run("document.querySelector('#run-2 details.all').open")
        assert report.text("#array-2 output") == "20"
        report.page.click("#run-1 details.all > summary")
        report.page.wait_for_selector("#chain-1 svg")
        assert report.page.locator("#run-1 section").count() == report.page.locator("#run-2 section").count()
        report.wait("!document.querySelector('.chart:not(:has(svg))')")
        assert report.complaints == []


@pytest.mark.parametrize("name", ["one file", "one bundle"])
def test_a_file_or_a_bundle(name: str, browser: Browser, write: Write, tmp_path: Path) -> None:
    chain = make_chain(tmp_path / "run", steps=2)
    path = sorted(chain.glob("*.h5"))[0]
    if name == "one bundle":
        path = tmp_path / "run.lcc"
        lccodec.bundle(chain, path)
    with opened(browser, write(document(examine(path)))) as report:
        assert report.complaints == []
        assert report.text("h1") == path.name

"""Takes the pictures of reports anew: of the demo's chain, wide and on a phone, and of fields.

``pip install -e '.[cli,report,browser]' pillow && python docs/pictures/screens.py``. Chromium must
be there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import lccodec

IMAGES = Path(__file__).parent.parent / "images"
SIZES = {"report": (1120, 1330, 1.0), "report-phone": (390, 760, 1.5)}  # of the window, and its scale
COLOURS = 128
MARGIN = 16  # beside a section
CELLS, STEPS = 256, 5000  # of the reaction whose field is shown


def pictures(page: Path, browser: Any) -> None:
    """Write each picture of a page."""
    for name, (width, height, scale) in SIZES.items():
        tab = browser.new_page(viewport={"width": width, "height": height}, device_scale_factor=scale)
        tab.goto(page.as_uri())
        tab.wait_for_selector('html[data-state="ready"]')
        tab.evaluate("document.querySelector('.path').remove()")  # of this machine
        tab.screenshot(path=IMAGES / f"{name}.png")
        tab.close()
        shrink(IMAGES / f"{name}.png")


def shrink(path: Path) -> None:
    """Write a picture anew with fewer colours."""
    from PIL import Image

    with Image.open(path) as image:
        image.convert("RGB").quantize(COLOURS).save(path, optimize=True)


def reaction() -> np.ndarray:
    """Return one substance of a Gray-Scott reaction, when its pattern has filled the plane."""
    u, v = np.ones((CELLS, CELLS)), np.zeros((CELLS, CELLS))
    for row, column in np.random.default_rng(0).integers(0, CELLS - 12, (20, 2)):
        u[row : row + 12, column : column + 12], v[row : row + 12, column : column + 12] = 0.5, 0.25

    def spread(field: np.ndarray) -> np.ndarray:
        shifts = ((1, 0), (-1, 0), (1, 1), (-1, 1))
        around = sum(np.roll(field, by, axis) for by, axis in shifts)
        return around - 4 * field  # type: ignore[no-any-return]

    for _ in range(STEPS):
        change = u * v * v
        u += 0.16 * spread(u) - change + 0.0545 * (1 - u)
        v += 0.08 * spread(v) + change - (0.0545 + 0.062) * v
    return v


def fields(place: Path, browser: Any) -> None:
    """Write the picture of the section Fields, of a reaction within 1e-2 of its range."""
    state = {"concentration": reaction()}
    for name, policy in (("run", lccodec.fields(relative_error=1e-2)), ("exact", "lossless")):
        with lccodec.Chain(place / name, policy, newest="history") as chain:
            chain.save(0, state)
    lccodec_report = [sys.executable, "-m", "lccodec", "report", "run", "--against", "exact"]
    subprocess.run(lccodec_report, cwd=place, check=True, stdout=subprocess.DEVNULL)
    tab = browser.new_page(viewport={"width": 1120, "height": 3000})
    tab.goto((place / "report.html").as_uri())
    tab.wait_for_selector('html[data-state="ready"]')
    section = tab.locator("section", has=tab.locator("h2", has_text="Fields"))
    tab.evaluate("document.querySelector('#sections').remove()")  # it would lie over the section
    section.locator("details").evaluate("node => node.remove()")
    section.scroll_into_view_if_needed()
    tab.wait_for_timeout(500)  # it is drawn when it is seen
    box = section.bounding_box()
    edge = {"x": box["x"] - MARGIN, "width": box["width"] + 2 * MARGIN}
    tab.screenshot(path=IMAGES / "report-fields.png", full_page=True, clip={**box, **edge})
    tab.close()
    shrink(IMAGES / "report-fields.png")


def main() -> None:
    """Run the demo and a reaction, and take pictures of their reports."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        lccodec = [sys.executable, "-m", "lccodec"]
        subprocess.run([*lccodec, "demo"], cwd=place, check=True, stdout=subprocess.DEVNULL)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        pictures(Path(place) / "lccodec-demo-report.html", browser)
        fields(Path(place), browser)
        browser.close()


if __name__ == "__main__":
    main()

"""Takes the pictures of a report anew: of the demo's chain, wide and on a phone.

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

IMAGES = Path(__file__).parent.parent / "images"
SIZES = {"report": (1120, 1330, 1.0), "report-phone": (390, 760, 1.5)}  # of the window, and its scale
COLOURS = 128


def pictures(page: Path, browser: Any) -> None:
    """Write each picture of a page."""
    from PIL import Image

    for name, (width, height, scale) in SIZES.items():
        tab = browser.new_page(viewport={"width": width, "height": height}, device_scale_factor=scale)
        tab.goto(page.as_uri())
        tab.wait_for_selector('html[data-state="ready"]')
        tab.evaluate("document.querySelector('.path').remove()")  # of this machine
        tab.screenshot(path=IMAGES / f"{name}.png")
        tab.close()
        with Image.open(IMAGES / f"{name}.png") as image:
            image.convert("RGB").quantize(COLOURS).save(IMAGES / f"{name}.png", optimize=True)


def main() -> None:
    """Run the demo, and take pictures of its report."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        lccodec = [sys.executable, "-m", "lccodec"]
        subprocess.run([*lccodec, "demo"], cwd=place, check=True, stdout=subprocess.DEVNULL)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        pictures(Path(place) / "lccodec-demo-report.html", browser)
        browser.close()


if __name__ == "__main__":
    main()

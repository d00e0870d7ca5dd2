"""Chromium without a window, and pages of reports in it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

#: A page has this long to do what it is asked for; a busy machine takes part of it.
PATIENCE_MS = 120_000  # a limit for what hangs, on a busy machine too

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the system's Chromium, with a profile of its own."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    assert program is not None, "these tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Opened:
    """A report in a tab, and what it did: requests beyond its own file, and complaints."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def run(self, script: str, argument: Any = None) -> Any:
        return self.page.evaluate(script, argument)

    def wait(self, condition: str) -> None:
        """Wait until an expression is true.

        The page's policy forbids what Playwright's ``wait_for_function`` does at its second try.
        """
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while not self.run(condition):
            assert time.monotonic() < deadline, condition
            self.page.wait_for_timeout(50)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()


@contextmanager
def opened(browser: Browser, file: Path, width: int = 1280, **options: Any) -> Iterator[Opened]:
    """Open a report and wait until all its charts are drawn."""
    context = browser.new_context(viewport={"width": width, "height": 800}, **options)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    result = Opened(page)
    address = file.as_uri()

    def note_request(request: Any) -> None:
        if request.url != address and not request.url.startswith("data:"):
            result.requests.append(request.url)

    def note_message(message: Any) -> None:
        if message.type in {"error", "warning"}:
            result.complaints.append(message.text)

    page.on("request", note_request)
    page.on("console", note_message)
    page.on("pageerror", lambda error: result.complaints.append(str(error)))
    try:
        page.goto(address)
        page.wait_for_selector("html[data-state]", state="attached")
        yield result
    finally:
        context.close()

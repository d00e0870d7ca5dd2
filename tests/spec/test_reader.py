"""The reader in JavaScript answers every vector rightly, and its page shows what is in files."""

from __future__ import annotations

import base64
import functools
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import lccodec

from ..support.browser import PATIENCE_MS, chromium
from ..support.vectors import SPEC, VECTORS, beside

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
VALID = VECTORS / "valid"

#: Answers questions about files that are given in base64, by the modules of the reader.
ANSWERS = """
async ([files, questions]) => {
    const { answer } = await import('/spec/reader/answers.js');
    const decoded = new Map();
    const read = (path) => {
        if (!decoded.has(path)) {
            const text = files[path];
            const bytes = Uint8Array.from(atob(text ?? ''), (character) => character.charCodeAt(0));
            decoded.set(path, text === undefined ? null : bytes);
        }
        return decoded.get(path);
    };
    const inside = (directory) => (path) => path.startsWith(`${directory}/`);
    const list = (directory) =>
        Object.keys(files).filter(inside(directory)).map((path) => path.slice(directory.length + 1));
    return questions.map((question) => answer(question, { read, list }));
}
"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")  # Playwright keeps an event loop running, which other tests cannot use
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve the repository."""
    handler = functools.partial(_Quiet, directory=str(ROOT))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/spec/reader/"
        server.shutdown()
        thread.join()


@contextmanager
def reader(browser: Browser, address: str, **options: Any) -> Iterator[Page]:
    """Open the page; it must not complain, nor load anything beyond its folder."""
    with closing(browser.new_context(**options)) as context:
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url.startswith(address) or complaints.append(request.url))
        page.goto(f"{address}index.html")
        yield page
        assert complaints == []


def choose(page: Page, *files: Path) -> str:
    """Open files; return what the page says when it is ready."""
    page.set_input_files("#files", files)
    page.locator("#status", has_text="verified").or_(page.locator("#problem > *").first).first.wait_for()
    page.locator("#progress").wait_for(state="hidden")
    return page.inner_text("#status")


def test_every_vector_is_answered_right(browser: Browser, address: str, tmp_path: Path) -> None:
    with beside("corpus", SPEC / "conformance") as corpus:
        asked = list(corpus.cases(tmp_path))
    paths = [path for place in (VECTORS, tmp_path) for path in place.rglob("*") if path.is_file()]
    files = {str(path): base64.b64encode(path.read_bytes()).decode() for path in paths}
    questions = [json.dumps({"id": case.name, **case.question}) for case in asked]
    with closing(browser.new_page()) as page:
        page.goto(f"{address}package.json")
        answers = [json.loads(answer) for answer in page.evaluate(ANSWERS, [files, questions])]
    assert len(asked) > 800
    found = {case.name: case.problem(answer, 4) for case, answer in zip(asked, answers, strict=True)}
    assert {name: problem for name, problem in found.items() if problem is not None} == {}


def test_a_chain_is_shown_with_its_newest_state(browser: Browser, address: str, tmp_path: Path) -> None:
    state = {"model": {"w": np.arange(3000, dtype=np.float32)}, "<b>lr</b>": 0.5, "n": 2**70}
    with lccodec.Chain(tmp_path, policy="lossless", newest="history") as chain:
        for step in range(3):
            state["model"]["w"][step] = np.nan
            chain.save(step, state)
    files = sorted(tmp_path.glob("*.lcc.h5"))
    with reader(browser, address) as page:
        said = choose(page, files[2])
        assert said == f"{files[2].name} is shown as far as it can be known."
        assert "A parent is missing" in page.inner_text("#problem")
        said = choose(page, *files[:2])  # added later
        verified = "is verified: every checksum and digest matches, 12.0 kB decoded."
        assert said == f"All of {files[2].name} {verified}"
        assert page.inner_text("#problem") == ""
        facts = page.inner_text("#facts")
        assert "a delta: a change from step 1" in facts
        tree = page.inner_text("#tree")
        assert [word in tree for word in ("<b>lr</b>", str(2**70), "float32", "[3000]")] == [True] * 4
        names, values = (page.locator(f"#tree {tag}").all_inner_texts() for tag in ("dt", "dd"))
        numbers = dict(zip(names, values, strict=True))
        assert (numbers["max"], numbers["NaN"], numbers["min"]) == ("2999", "3", "3")


def test_bundles_parity_and_damage(browser: Browser, address: str, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.lcc.h5"
    data = bytearray((VALID / "nested.lcc.h5").read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    parity = next(path for path in VALID.rglob("*.lcc.par"))
    with reader(browser, address) as page:
        choose(page, VALID / "chain.lcc")
        assert "exact file" in page.inner_text("#entries")
        choose(page, damaged)
        assert "This is refused by LCC-" in page.inner_text("#problem")
        choose(page, parity)
        assert "parity file" in page.inner_text("#problem")
        page.click("#clear")
        assert page.inner_text("#status") == "All files are closed."


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_left_out(browser: Browser, address: str, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    # The page's policy keeps out what axe brings along.
    options = {"viewport": {"width": 400, "height": 800}, "color_scheme": scheme, "bypass_csp": True}
    with reader(browser, address, **options) as page:
        choose(page, VALID / "nested.lcc.h5", VALID / "000000000111.lcc.h5")
        found = Axe().run(page, options={"resultTypes": ["violations"]})
        assert found.violations_count == 0, found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth") <= 400

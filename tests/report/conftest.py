"""One Chromium for the tests of a module, one copy of the drawing library for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from lccodec.report import drawing_library, page

from ..support.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser


Write: TypeAlias = Callable[[dict[str, Any]], Path]


@pytest.fixture(scope="session")
def library() -> str:
    return drawing_library()


@pytest.fixture(scope="module")  # Playwright keeps an event loop running, which other tests cannot use
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def write(library: str, tmp_path_factory: pytest.TempPathFactory) -> Write:
    """Write a document's page; return its file."""

    def to_file(document: dict[str, Any]) -> Path:
        file = tmp_path_factory.mktemp("page") / "report.html"
        file.write_bytes(page(document, library).encode())
        return file

    return to_file

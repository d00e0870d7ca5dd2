"""One Chromium and one copy of the drawing library for all tests of a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from playwright.sync_api import Browser

from lccodec.report.page import drawing_library, page

from ..support.browser import chromium

Write: TypeAlias = Callable[[dict[str, Any]], Path]


@pytest.fixture(scope="session")
def library() -> str:
    return drawing_library()


@pytest.fixture(scope="session")
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

"""Tables: plain where nothing has to fit, and long ones on a terminal that is wide enough."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from lccodec.cli.table import Table


def table(rows: int) -> Table:
    made = Table("name", "shape", "bytes")
    for row in range(rows):
        made.row(f"layer {row}\x1b[2J", "3 x 4", 10 ** (row % 4))
    return made


def test_plain_text() -> None:
    assert table(3).text().split("\n") == [
        "name            shape  bytes",
        "layer 0\\x1b[2J  3 x 4      1",
        "layer 1\\x1b[2J  3 x 4     10",
        "layer 2\\x1b[2J  3 x 4    100",
    ]


@pytest.mark.parametrize(("columns", "rows", "bold"), [(80, 5, True), (80, 200, False), (20, 200, True)])
def test_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, rows: int, bold: bool) -> None:
    """A long table takes long to fit, so it is only fitted where it has to be."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: os.terminal_size((columns, 24)))
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    text = table(rows).text()
    assert ("\x1b[1m" in text) == bold
    assert "\x1b[2J" not in text
    assert ("layer 4\\x1b[2J" in text) == (columns == 80)

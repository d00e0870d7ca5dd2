"""Tables: plain where nothing has to fit, and long ones on a terminal that is wide enough."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from lccodec.cli.render import Table


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


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """All lines fit, names are cut in their middle, and what is left out is named."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: os.terminal_size((columns, 24)))
    made = Table("name", "dtype", "shape", "role", "because", "in deltas", "about bytes", "error")
    for row in range(3):
        name = f"model/model.layers.{row}.self_attn.q_proj.very_long\x1b[2J.weight"
        why = "a parameter of the optimizer"
        made.row(name, "float32", "(4096, 4096)", "weight", why, "UniformDeadzone(0.3)", 12345, 0.25)
    headers, *lines = made.text().split("\n")
    assert (headers[:4], headers[-4:]) == ("\x1b[1m", "\x1b[0m")
    headers = headers[4:-4]
    assert all(len(line) <= columns for line in (headers, *lines))
    assert "\x1b" not in "".join([headers, *lines])
    shown = [word.strip() for word in headers.split("  ") if word]
    left_out = lines[3].removeprefix("(too narrow for: ").removesuffix(")").split(", ") if lines[3:] else []
    assert {*shown, *left_out} == set(made.headers)
    assert shown[0] == "name"
    assert "role" in shown
    for line in lines[:3]:
        assert line.startswith("model/model.lay")
        assert ".weight  " in line
    assert (columns < 200) == bool(left_out)


def test_a_step_is_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: os.terminal_size((20, 24)))
    made = Table("step", *(f"weights: error {number}" for number in range(9)))
    made.row(1_000_000, *[0.123456] * 9)
    assert made.text().split("\n")[1].strip() == "1000000"

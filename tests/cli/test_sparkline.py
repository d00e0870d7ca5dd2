"""Sparklines."""

import io
import math
import sys

import pytest

from lccodec.cli.render import WIDTH, sparkline


@pytest.fixture(autouse=True)
def _output(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))


def test_heights():
    assert sparkline(range(8)) == "▁▂▃▄▅▆▇█"
    assert sparkline([8, None, 1, 1]) == "█ ▁▁"
    assert sparkline([10**i for i in range(8)], logarithmic=True) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 1, 10], logarithmic=True) == "▁▁█"
    assert sparkline([3, 3]) == "▁▁"
    assert sparkline([None, None]) == "  "
    assert sparkline([]) == ""
    assert sparkline([-1.7e308, 1.7e308]) == "▁█"
    assert sparkline([0.0, -1.0], logarithmic=True) == "▁▁"


def test_a_long_series_is_thinned_out():
    assert len(sparkline(range(1000))) == WIDTH
    assert len(sparkline(range(1000), width=10)) == 10


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_an_output_without_these_characters(monkeypatch, encoding):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    assert sparkline(range(8)) == "_.-=+*%#"


def test_numbers_that_are_not_finite():
    assert sparkline([1.0, math.nan, math.inf, 2.0]) == "▁  █"

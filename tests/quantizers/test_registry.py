"""Quantizers by their names."""

from __future__ import annotations

from typing import Any

import pytest

from lccodec import ArgumentError, ExponentBuckets, Lossless
from lccodec.quantizers.registry import resolve_quantizer


@pytest.mark.parametrize(
    ("name", "quantizer"),
    [("lossless", Lossless()), ("lc-2", ExponentBuckets(bits=2)), ("lc-3", ExponentBuckets(bits=3))],
)
def test_the_quantizer_of_a_preset_is_that_of_weights(name: str, quantizer: Any) -> None:
    assert resolve_quantizer(name) == quantizer


def test_a_quantizer_stands_for_itself() -> None:
    quantizer = ExponentBuckets(4)
    assert resolve_quantizer(quantizer) is quantizer


@pytest.mark.parametrize("name", ["lc-9", "balanced", "small", ""])
def test_a_name_that_is_no_quantizer(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"unknown quantizer '{name}'; .* names lossless, lc-2, lc-3"):
        resolve_quantizer(name)

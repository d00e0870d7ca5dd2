from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from lccodec import Lossless, encode
from lccodec.element_types import components
from lccodec.entropy.bits import Cursor
from lccodec.frame.planes import read_block, write_block

from ..support.strategies import array_and_reference, dtype_of


@given(array_and_reference())
def test_round_trip(pair: tuple[np.ndarray, np.ndarray | None]) -> None:
    array, reference = pair
    kind, bits = components(array)
    base = None if reference is None else components(reference)[1]
    stored = b"".join(write_block(bits, base, kind))
    out = np.empty_like(bits)
    cursor = Cursor(memoryview(stored), "block")
    read_block(cursor, base, kind, out)
    assert cursor.remaining == 0
    np.testing.assert_array_equal(out, bits)


def test_small_movements_take_the_low_planes_only() -> None:
    rng = np.random.default_rng(0)
    before = rng.standard_normal(50_000).astype(np.float32)
    after = before * (1 + rng.standard_normal(50_000).astype(np.float32) * 1e-6)
    assert len(encode(after, Lossless(), before)) < after.nbytes * 0.25
    assert len(encode(after, Lossless())) > after.nbytes * 0.8


def looks_smaller_alone(array: np.ndarray, reference: np.ndarray) -> bool:
    kind, bits = components(array)
    return Lossless().stands_alone(bits, components(reference)[1], kind)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("kept", [0.0, 0.2, 0.99, 0.9999])
def test_the_smaller_coding_is_told_from_a_sample(name: str, kept: float) -> None:
    """Of what forgets its past at different rates, as moments do."""
    rng = np.random.default_rng(0)
    scale = 2.0 ** rng.normal(-9, 1, 100_000)
    before = rng.standard_normal(scale.size)
    after = (kept * before + (1 - kept**2) ** 0.5 * rng.standard_normal(scale.size)) * scale
    before, after = (x.astype(dtype_of(name)) for x in (before * scale, after))
    alone, relative = (len(encode(after, Lossless(), base)) for base in (None, before))
    assert looks_smaller_alone(after, before) == (alone < relative)
    assert (kept < 0.9) == (alone < relative)


@given(array_and_reference())
def test_any_array_can_be_looked_at(pair: tuple[np.ndarray, np.ndarray | None]) -> None:
    array, reference = pair
    if reference is not None and array.size:
        same = np.array_equal(components(array)[1], components(reference)[1])
        assert not (looks_smaller_alone(array, reference) and same)

from __future__ import annotations

import numpy as np
from hypothesis import given

from lccodec import Lossless, encode
from lccodec.bits import Cursor
from lccodec.floats import components
from lccodec.planes import read_block, write_block

from .strategies import array_and_reference


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

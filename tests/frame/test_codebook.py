import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.cursor import Cursor
from lccodec.element_types import components, element_type
from lccodec.entropy.runs import Sparse
from lccodec.errors import FormatError
from lccodec.frame.codebook import Codebook, read_block, write_block

from ..support.tuning import tuned

FLOAT = element_type(np.dtype("float32"))


def book(count: int, relative: bool = True) -> Codebook:
    representatives = components(np.arange(1, count + 1, dtype=np.float32))[1]
    return Codebook(np.array([count]), representatives, np.array([1]), FLOAT, relative=relative)


@given(
    st.sampled_from([1, 2, 3, 7, 15, 40, 255, 256, 5000]),
    st.integers(1, 3000),
    st.sampled_from([0.0, 0.5, 0.95]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_blocks_decode_to_reference_plus_representative(
    representatives: int, count: int, zeros: float, relative: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    codebook = book(representatives, relative)
    kind = np.uint16 if codebook.wide else np.uint8
    symbols = (rng.integers(0, representatives + 1, count) * (rng.random(count) >= zeros)).astype(kind)
    base = rng.standard_normal(count).astype(np.float32)
    exact = rng.standard_normal(count).astype(np.float32).view(np.uint32)
    escaped = rng.random(count) < 0.01
    expected = np.where(symbols > 0, symbols.astype(np.float32), np.float32(0))
    if relative:
        expected = base + expected
    expected[escaped] = exact.view(np.float32)[escaped]
    places = np.flatnonzero(symbols)
    run = Sparse(places, symbols[places])
    stored = b"".join(write_block(run, np.flatnonzero(escaped), exact[escaped], count))
    reference = base.view(np.uint32) if relative else None
    for out in (np.empty(count, np.uint32), reference):
        if out is not None:
            cursor = Cursor(memoryview(stored), "block")
            with tuned(codebook_places_at_a_time=40):
                read_block(cursor, codebook, 0, reference, out)
            assert cursor.remaining == 0
            np.testing.assert_array_equal(out.view(np.float32), expected)


@pytest.mark.parametrize(
    ("stored", "rule"),
    [
        (b"\x00\x01\x00\x04\x00\x00", "LCC-CBK-03"),  # raw symbols
        (b"\x00\x04\x04\x01\x30\x00", "LCC-CBK-03"),  # packed with 4 bits: symbol 3
        (b"\x00\x04\x02\x01\x03", "LCC-CBK-03"),  # packed with 2 bits: symbol 3
        (b"\x00\x03\x00\x01\x00\x00\x00\x00\x00\x00\x09", "LCC-CBK-03"),  # sparse
        (b"\x02\x00\x00", "LCC-CBK-05"),
    ],
)
def test_broken_blocks_name_their_rule(stored: bytes, rule: str) -> None:
    codebook = book(2 if rule == "LCC-CBK-03" else 3)
    with pytest.raises(FormatError) as caught:
        read_block(Cursor(memoryview(stored), "block"), codebook, 0, None, np.empty(4, np.uint32))
    assert caught.value.rule == rule

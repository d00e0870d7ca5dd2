"""Raw frames that are made chunk by chunk are those that the encoder makes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.element_types import components
from lccodec.frame.content import Content
from lccodec.frame.decode import decode_components
from lccodec.frame.encode import RawFrame, encode

from ..support.strategies import ALL_DTYPES, arrays, bits_of, installed, random_array
from ..support.tuning import tune


def made(*members: np.ndarray) -> RawFrame:
    found = [components(array) for array in members]
    kind, shapes, run = found[0][0], tuple(array.shape for array in members), len(members) > 1
    bits = np.concatenate([bits for _, bits in found]) if run else found[0][1]
    return RawFrame(kind, shapes, run, lambda: Content(bits, kind, shapes, run=run))


@given(arrays())
def test_any_array(array: np.ndarray) -> None:
    frame = made(array)
    data = b"".join(frame.chunks())
    assert len(data) == frame.length
    np.testing.assert_array_equal(decode_components(data, None), components(array)[1])


@pytest.mark.parametrize("name", installed(ALL_DTYPES))
def test_it_is_the_frame_of_the_encoder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    array = random_array(name, (300, 7), 5, special=1.0)
    if name == "bool":
        array = np.array([True, False, True])
    encoded = encode(array, "lossless")
    assert encoded[3] == 0
    for size in (16, 128, 1 << 18):
        tune(monkeypatch, chunk_bytes=size)
        assert b"".join(made(array).chunks()) == encoded


@given(st.lists(st.integers(1, 300), min_size=2, max_size=5))
def test_runs(sizes: list[int]) -> None:
    members = [random_array("float32", (size,), size, 1.0) for size in sizes]
    data = b"".join(made(*members).chunks())
    expected = np.concatenate([bits_of(array) for array in members])
    np.testing.assert_array_equal(bits_of(decode_components(data, None)), expected)


def test_an_array_that_changes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value is read once: the checksums are those of what is written."""
    tune(monkeypatch, chunk_bytes=800)
    array = np.zeros(1000)
    chunks = []
    for number, chunk in enumerate(made(array).chunks()):
        array += 1
        chunks.append(bytes(chunk))
        assert bytes(chunk) == chunks[number]
    decoded = decode_components(b"".join(chunks), None).view(np.float64)
    assert set(decoded) == set(range(1, 11))

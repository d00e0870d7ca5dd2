"""What a frame tells of where it differs from its reference."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.element_types import components
from lccodec.frame.decode import decode_components
from lccodec.frame.encode import MAX_BLOCK_COMPONENTS
from lccodec.frame.trace import Changed, Trace

from ..support.strategies import FLOATS, INTEGERS, installed, random_array


def traced(frame: bytes, reference: np.ndarray) -> tuple[Changed | None, np.ndarray]:
    trace = Trace()
    bits = decode_components(memoryview(frame), components(reference)[1], trace=trace)
    return trace.changed(), bits


@given(
    st.sampled_from(installed([name for name in FLOATS + INTEGERS if name != "bool"])),
    st.integers(0, 20_000),
    st.sampled_from([0.0, 0.001, 0.02, 0.3, 1.0]),
    st.integers(0, 2**32),
)
def test_it_is_where_they_differ_or_unknown(name: str, size: int, share: float, seed: int) -> None:
    reference = random_array(name, (size,), seed)
    chosen = np.random.default_rng(seed).random(size) < share
    array = np.where(chosen, random_array(name, (size,), seed + 1), reference).astype(reference.dtype)
    frame = lccodec.encode(array, lccodec.Lossless(), reference=reference)
    changed, bits = traced(frame, reference)
    if changed is not None:
        np.testing.assert_array_equal(changed.places, np.flatnonzero(bits != components(reference)[1]))
        np.testing.assert_array_equal(changed.bits, bits[changed.places])
    else:
        assert share > 0.001 or size < 5000


def test_places_of_several_blocks() -> None:
    reference = np.zeros(2 * MAX_BLOCK_COMPONENTS + 9, np.uint8)
    array = reference.copy()
    changed = [3, MAX_BLOCK_COMPONENTS, 2 * MAX_BLOCK_COMPONENTS + 8]
    array[changed] = 7, 1, 255
    found, _ = traced(lccodec.encode(array, lccodec.Lossless(), reference=reference), reference)
    assert found is not None
    assert found.places.tolist() == changed
    assert found.bits.tolist() == [7, 1, 255]


def test_other_frames_do_not_tell() -> None:
    rng = np.random.default_rng(0)
    zeros, noise = np.zeros(5000), rng.standard_normal(5000)
    for frame in (
        lccodec.encode(zeros, lccodec.Lossless()),  # without a reference
        lccodec.encode(noise, lccodec.UniformDeadzone(step=1.0), reference=zeros),  # a codebook
        lccodec.encode(noise, lccodec.Lossless(), reference=zeros),  # all differ
        lccodec.encode(rng.integers(0, 2**64, 5000, np.uint64).view("f8"), lccodec.Lossless()),  # raw
    ):
        assert traced(frame, zeros)[0] is None

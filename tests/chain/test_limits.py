"""A writer refuses what no reader would take, before the first byte."""

from pathlib import Path

import numpy as np
import pytest

from lccodec import ArgumentError, Chain, Lossless, UniformDeadzone, decode, encode
from lccodec.chain.save.plan import candidates
from lccodec.constants import MAX_DIMENSIONS, MAX_ELEMENTS
from lccodec.container.tree import flatten
from lccodec.frame.header import check_shape

BEYOND = {
    "more than 1099511627776 elements": [
        np.zeros((0, 2 * MAX_ELEMENTS), np.float32),
        np.zeros((MAX_ELEMENTS, 0, 3), np.uint8),
        np.broadcast_to(np.float32(1), (MAX_ELEMENTS + 1,)),
    ]
}
if np.lib.NumpyVersion(np.__version__) >= "2.0.0":  # which has 64 dimensions, and the first one 32
    BEYOND["dimensions, more than 32"] = [np.zeros((1,) * 33, np.float32), np.zeros((0,) * 64)]
CASES = [(limit, array) for limit, arrays in BEYOND.items() for array in arrays]


@pytest.mark.parametrize(("limit", "array"), CASES)
def test_one_array(limit: str, array: np.ndarray) -> None:
    for quantizer in (Lossless(), UniformDeadzone(step=1)):
        with pytest.raises(ArgumentError, match=limit):
            encode(array, quantizer)


@pytest.mark.parametrize(("limit", "array"), CASES)
def test_the_plan_names_the_array(limit: str, array: np.ndarray) -> None:
    with pytest.raises(ArgumentError, match=rf"array 'model/w': .*{limit}"):
        candidates(flatten({"first": np.ones(3), "model": {"w": array}}), {})


@pytest.mark.parametrize(("limit", "array"), CASES)
def test_nothing_is_written(limit: str, array: np.ndarray, tmp_path: Path) -> None:
    with Chain(tmp_path) as chain, pytest.raises(ArgumentError, match=limit):
        chain.save(1, {"a": np.ones(3), "w": array})
    assert list(tmp_path.iterdir()) == []


def test_what_is_just_within() -> None:
    check_shape((MAX_ELEMENTS,))
    check_shape((1,) * MAX_DIMENSIONS)
    for shape in ((0, MAX_ELEMENTS), (1,) * MAX_DIMENSIONS):
        array = np.zeros(shape, np.int16)
        assert decode(encode(array, Lossless())).shape == shape


@pytest.mark.parametrize("shape", [(MAX_ELEMENTS + 1,), (2, MAX_ELEMENTS), (1,) * 33])
def test_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError, match="cannot be stored"):
        check_shape(shape)

"""One array is coded by a quantizer, or by the name of a preset."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from lccodec import POLICIES, ArgumentError, Lossless, decode, encode

from ..support.strategies import array_and_reference, bits_of


@given(array_and_reference())
def test_by_name_as_by_the_quantizer(pair: tuple[np.ndarray, np.ndarray | None]) -> None:
    array, reference = pair
    for name in ("lossless", "lc-2"):
        quantizer = POLICIES[name].roles.get("weight", Lossless())
        frame = encode(array, name, reference)
        assert frame == encode(array, quantizer, reference, effort="normal", threads=2)
    np.testing.assert_array_equal(
        bits_of(decode(encode(array, "lossless", reference), reference)), bits_of(array)
    )


@pytest.mark.parametrize("name", ["balanced", "small", "lc-9"])
def test_a_preset_for_whole_states_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match="there are"):
        encode(np.ones(3), name)

"""Which bin a difference lies in: both forms."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from lccodec.loops.bins import (
    _zigzags_loop,
    zigzags,
    zigzags_numpy,
)


@given(
    st.lists(
        st.floats(-200, 200) | st.sampled_from([0.6, -0.6, 1.6, -0.0, 1e-42, 1e300, -1e300]), max_size=40
    ),
    st.sampled_from(["f4", "f8"]),
    st.integers(0, 128),
    st.booleans(),
    st.booleans(),
)
@example([127.6, -127.6, 127.5999, 126.6], "f4", 128, False, False)
def test_forms(numbers: list[float], code: str, end: int, wide: bool, narrowed: bool) -> None:
    with np.errstate(over="ignore"):
        d = np.array(numbers, code)
    d = d[np.isfinite(d)]
    end += 1000 if wide and end else 0
    arguments = d, d.dtype.type(1.25), np.int64(end), 0.6, narrowed
    results = []
    for form in (zigzags_numpy, _zigzags_loop):
        symbols = np.empty(d.size, np.uint16 if wide else np.uint8)
        past = np.empty(d.size, np.uint8)
        with np.errstate(over="ignore"):
            some = form(*arguments, symbols, past)
        results.append((symbols.tolist(), past.tolist() if some else None))
    symbols, past = zigzags(d, d.dtype.type(1.25), np.int64(end), 0.6, wide, narrowed)
    results.append((symbols.tolist(), None if past is None else past.astype(int).tolist()))
    assert results[0] == results[1] == results[2]


def test_bins_begin_behind_the_zone() -> None:
    d = np.array([0.5, 0.61, 1.5, 1.61, -0.61, -1.7, 9.0], np.float32)
    symbols, past = zigzags(d, np.float32(1), np.int64(3), 0.6, False, False)
    assert symbols.tolist() == [0, 2, 2, 4, 1, 3, 0]
    assert past is not None and past.tolist() == [False] * 6 + [True]
    assert zigzags(d[:1], np.float32(1), np.int64(3), 0.6, False, True)[0].tolist() == [2]

"""How much parity there is, and that it is no more."""

from __future__ import annotations

import numpy as np
import pytest

from lccodec import ArgumentError
from lccodec.chain.mend.protect import Redundancy, parse_redundancy, redundancy_of
from lccodec.container.parity import Member, parse_layout


@pytest.mark.parametrize("wrong", ["5", "0.5%", "101%", "x%", "nan%", "inf%", 0, 65, -1, 2.5, True, None])
def test_redundancies_that_cannot_be(wrong: object) -> None:
    with pytest.raises(ArgumentError, match="a redundancy is a number of files from 1 to 64, or 1% to 100%"):
        parse_redundancy(wrong)


@pytest.mark.parametrize("percent", [1, 2.5, 5, 7.3, 10, 33, 50, 100])
@pytest.mark.parametrize("count", [1, 5, 64])
def test_bytes_of_parity_are_those_of_the_redundancy(percent: float, count: int) -> None:
    lengths = np.random.default_rng(count).integers(1 << 25, 1 << 27, count)
    members = [Member(f"{i:012d}.lcc.h5", int(n), bytes(32)) for i, n in enumerate(lengths)]
    layout = parse_redundancy(f"{percent}%").layout(members)
    size = layout.parity * (layout.rows * layout.block + 2 * (64 + layout.index_length))
    asked = percent / 100 * sum(map(int, lengths))
    assert asked <= size <= (1.02 if asked > 32 << 20 else 1.1) * asked
    layout = Redundancy(files=2).layout(members)
    size = layout.parity * (layout.rows * layout.block + 2 * (64 + layout.index_length))
    assert 2 * max(lengths) <= size <= 1.02 * 2 * int(max(lengths))


@pytest.mark.parametrize("redundancy", ["1%", "2.5%", "33%", "100%", 1, 3, 64])
@pytest.mark.parametrize("sizes", [[1], [700] * 64, [1, 1 << 20], [1 << 27]])
def test_layouts_are_valid_and_say_what_they_are_for(redundancy: object, sizes: list[int]) -> None:
    members = [Member(f"{i:012d}.lcc.h5", size, bytes(32)) for i, size in enumerate(sizes)]
    asked = parse_redundancy(redundancy)
    layout = asked.layout(members)
    assert parse_layout(layout.to_bytes(), "") == layout
    assert redundancy_of(layout) == asked

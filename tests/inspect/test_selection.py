"""What is left out where there is more than a page can hold."""

from itertools import pairwise

from lccodec.inspect.report import MAX_CELLS, MAX_STEPS, ArrayRow, largest, step_limit
from lccodec.table import evenly_spaced


def test_the_largest_arrays_in_their_order():
    rows = [
        ArrayRow(f"a{i}", "weight", "", "float32", (size,), size, "", 0, 0)
        for i, size in enumerate([5, 9, 5, 1])
    ]
    assert [row.name for row in largest(rows, 2)] == ["a0", "a1"]
    assert largest(rows) == rows


def test_steps_are_evenly_spaced():
    assert evenly_spaced(range(5), 5) == [0, 1, 2, 3, 4]
    spaced = evenly_spaced(range(1000), 100)
    assert (len(spaced), spaced[0], spaced[-1]) == (100, 0, 999)
    assert {after - before for before, after in pairwise(spaced)} == {10, 11}


def test_the_limit_follows_from_the_arrays():
    assert step_limit(300) * 300 == MAX_CELLS
    assert step_limit(0) == step_limit(1) == MAX_STEPS
    assert step_limit(MAX_CELLS) == 2

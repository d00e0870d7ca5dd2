"""The names of the files of a chain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.chain.store.store import (
    check_name,
    checkpoint_name,
    checkpoints_among,
    is_of_chain,
    pin_name,
    pins_among,
    step_index,
)
from lccodec.constants import EXACT_NAME, MAX_STEP
from lccodec.errors import ArgumentError, FormatError

STEPS = [0, 7, 999_999_999_999, 1_000_000_000_000, (1 << 53) - 1]
OTHER_NAMES = [
    "7.lcc.h5",
    "a",
    "00000000000007.lcc.h5",
    "0123456789012.lcc.h5",
    "0000000000007.lcc.h5",
    "000000000007.h5",
    "000000000007.lcc.h5.tmp",
    "000000000007.lcc.h5\n",
    "-00000000007.lcc.h5",
    "00000000000٣.lcc.h5",
    "99999999999999999.lcc.h5",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_name_is_read_as_it_is_written(step: int) -> None:
    name = checkpoint_name(step)
    assert checkpoints_among([name]) == {step: name}
    assert pins_among([name, pin_name(step)]) == [step]
    check_name(name, step)
    with pytest.raises(FormatError, match=f"holds step {step + 1}") as caught:
        check_name(name, step + 1)
    assert caught.value.rule == "LCC-CHN-01"


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_other_names_are_no_steps(name: str) -> None:
    assert checkpoints_among([name]) == {}
    check_name(name, 3)  # a file of another name may hold any step


@given(st.sets(st.integers(0, MAX_STEP), max_size=5))
def test_a_file_is_found_by_the_name_it_was_given(steps: set[int]) -> None:
    found = checkpoints_among(checkpoint_name(step) for step in steps)
    assert list(found.items()) == [(step, checkpoint_name(step)) for step in sorted(steps)]


def test_pins() -> None:
    names = ["000000000007.pin", "7.pin", "000000000008.pin.txt", "1000000000000.pin", "000000000009.lcc.h5"]
    assert pins_among(names) == [7, 10**12]
    assert pin_name(10**12) == "1000000000000.pin"


def test_files_of_a_chain() -> None:
    ours = [checkpoint_name(3), pin_name(3), EXACT_NAME, ".tmp-writer", f".tmp-{'0' * 16}"]
    assert all(map(is_of_chain, ours))
    assert not any(map(is_of_chain, ["notes.txt", "model.lcc.h5", "7.pin", ".tmp-7"]))


def test_integers_are_steps() -> None:
    assert [step_index(step) for step in (3, np.int64(3), np.uint8(3), np.array(3))] == [3] * 4
    for step in (True, np.True_, 3.0, "3", None):
        with pytest.raises(ArgumentError, match="a step must be an integer"):
            step_index(step)

"""The verbs of a framework's module take and give states by the conversions of the framework."""

import numpy as np

import lccodec
from lccodec.adapters.tree import single_file


def to_numpy(state, metadata):
    return {"x": np.array(state)}, {**(metadata or {}), "of": "lists"}


def from_numpy(state, metadata):
    return state["x"].tolist(), metadata


def test_a_state_goes_through_the_conversions(tmp_path):
    data = single_file.save(to_numpy, [1, 2], {"by": "me"})
    single_file.save_file(to_numpy, [1, 2], tmp_path / "a.lcc.h5", {"by": "me"})
    assert (tmp_path / "a.lcc.h5").read_bytes() == data
    path = tmp_path / "a.lcc.h5"
    for found in (single_file.load(from_numpy, data), single_file.load_file(from_numpy, path)):
        assert found == ([1, 2], {"by": "me", "of": "lists"})


def test_bfloat16_comes_as_bits():
    bits = np.array([0x3F80, 0xC000], np.uint16).view(lccodec.BFLOAT16_BITS)
    data = lccodec.save({"x": bits})
    assert single_file.load(lambda state, _: state["x"].dtype, data) == lccodec.BFLOAT16_BITS

"""The parts of a pytree: those that are damaged, hostile or of something else are refused."""

import pytest

import lccodec
from lccodec.adapters.orbax import LCCheckpointHandler, LCRestore
from lccodec.errors import ArgumentError, ChecksumError, FormatError, UnsupportedError


def change(path, **entries):
    stored = lccodec.load_file(path)
    stored.update(entries)
    lccodec.save_file(stored, path)


@pytest.mark.parametrize(
    ("entries", "kind"),
    [
        ({"kind": "else"}, FormatError),
        ({"version": 9}, UnsupportedError),
        ({"processes": "x"}, FormatError),
        ({"table": "["}, FormatError),
        ({"table": "[[1]]"}, FormatError),
        ({"table": '[[["w"], {"shards": []}]]'}, FormatError),
        ({"table": '[[["w"], {"dtype": "nothing", "shape": [], "shards": []}]]'}, FormatError),
        ({"table": '[[["w"], {"dtype": "float32", "shape": [3], "shards": [[[0], [3], 4]]}]]'}, FormatError),
        (
            {"table": '[[["w"], {"dtype": "float32", "shape": [3, 2], "shards": [[[0], [3], 0]]}]]'},
            FormatError,
        ),
        ({"table": '[[["w"], {"dtype": "float32", "shape": [4], "shards": [[[0], [4], 0]]}]]'}, FormatError),
        ({"table": '[[["k"], {"dtype": "uint32", "impl": "?", "shape": [2], "shards": []}]]'}, FormatError),
        ({"table": '[[["w"], {"empty": "set"}]]'}, FormatError),
        ({"table": '[[["no such value"], {}]]'}, FormatError),
        ({"table": '[[["x"], {"dtype": "float32", "shape": [3], "shards": [[[0], [3], 0]]}]]'}, FormatError),
        ({"table": '[[["w"], {"dtype": "float32", "shape": [1e9], "shards": []}]]'}, FormatError),
        ({"table": '[[["w"], {"dtype": "float32", "shape": [1000000000], "shards": []}]]'}, FormatError),
    ],
)
def test_a_part_that_is_not_as_it_should_be(saved, entries, kind):
    change(saved[1], **entries)
    with pytest.raises(kind):
        saved[0].restore(0, args=LCRestore())


def test_a_damaged_part(saved):
    data = bytearray(saved[1].read_bytes())
    data[2100] ^= 1
    saved[1].write_bytes(data)
    with pytest.raises(ChecksumError):
        saved[0].restore(0, args=LCRestore())


def test_a_file_that_is_no_part(saved):
    lccodec.save_file({"x": 1}, saved[1])
    with pytest.raises(FormatError, match="not a part of a pytree"):
        saved[0].restore(0, args=LCRestore())
    with pytest.raises(ArgumentError, match="remote stores"):
        LCCheckpointHandler().restore("gs://bucket/x")

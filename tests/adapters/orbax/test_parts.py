"""The parts of a pytree: those that are damaged, hostile or of something else are refused."""

import json
import shutil
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.adapters.orbax import (
    VERSION,
    LCCheckpointHandler,
    LCRestore,
    Parts,
    part_path,
    path_name,
    shard_key,
)
from lccodec.chain.read.links import PYTREE_KIND as KIND
from lccodec.constants import PAYLOAD_OFFSET
from lccodec.errors import ArgumentError, ChainError, ChecksumError, FormatError, UnsupportedError


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
    data[PAYLOAD_OFFSET + 28] ^= 1
    saved[1].write_bytes(data)
    with pytest.raises(ChecksumError):
        saved[0].restore(0, args=LCRestore())


def test_a_file_that_is_no_part(saved):
    lccodec.save_file({"x": 1}, saved[1])
    with pytest.raises(FormatError, match="not a part of a pytree"):
        saved[0].restore(0, args=LCRestore())
    with pytest.raises(ArgumentError, match="a path must be local"):
        LCCheckpointHandler().restore("gs://bucket/x")


SHAPE = (7, 5)
WHOLE = (slice(None),) * 2


def write_parts(directory, array, rows, columns):
    """Store an array in shards between some rows and columns, dealt out to two processes."""
    shards, arrays = [], [{}, {}]
    entry = {"dtype": str(array.dtype), "shape": list(array.shape), "shards": shards}
    bounds = [sorted({0, *cuts, size}) for cuts, size in zip((rows, columns), array.shape, strict=True)]
    for top, bottom in pairwise(bounds[0]):
        for start, stop in pairwise(bounds[1]):
            process = len(shards) % 2
            shards.append([[top, start], [bottom - top, stop - start], process])
    for offsets, sizes, process in shards:
        part = tuple(slice(begin, begin + size) for begin, size in zip(offsets, sizes, strict=True))
        arrays[process][shard_key("w", offsets, entry)] = array[part]
    for process in range(2):
        head = {"kind": KIND, "version": VERSION, "process": process, "processes": 2}
        table = json.dumps([[["w"], entry]] if process == 0 else [])
        more = {"table": table, "values": {}, "arrays": arrays[process]}
        lccodec.save_file({**head, **more}, part_path(directory, process))


def regions(size):
    """Stretches of an axis, as the sharding of a target has them."""
    bounds = st.lists(st.integers(0, size), min_size=2, max_size=2).map(sorted)
    return st.just(slice(None)) | bounds.map(lambda pair: slice(*pair))


@given(
    st.sets(st.integers(1, SHAPE[0] - 1)),
    st.sets(st.integers(1, SHAPE[1] - 1)),
    st.tuples(*map(regions, SHAPE)),
)
def test_any_region_is_put_together_of_any_shards(rows, columns, index):
    array = np.arange(35, dtype=np.int32).reshape(SHAPE)
    with tempfile.TemporaryDirectory() as name:
        write_parts(Path(name), array, rows, columns)
        with Parts(Path(name)) as parts:
            ((path, entry),) = parts.table
            parts.fetch([("w", entry, [index])])
            found = parts.region("w", entry, index)
            np.testing.assert_array_equal(found, array[index])
            parts.fetch([("w", entry, [WHOLE])])
            np.testing.assert_array_equal(parts.leaf(path, entry), array)


def test_only_the_parts_that_a_region_needs_are_opened(tmp_path):
    array = np.arange(35, dtype=np.int32).reshape(SHAPE)
    write_parts(tmp_path, array, {3}, set())
    part_path(tmp_path, 1).unlink()
    with Parts(tmp_path) as parts:
        ((_, entry),) = parts.table
        above = (slice(0, 3), slice(None))
        parts.fetch([("w", entry, [above])])
        np.testing.assert_array_equal(parts.region("w", entry, above), array[:3])
        with pytest.raises(ChainError, match="the part of process 1 is missing"):
            parts.fetch([("w", entry, [WHOLE])])


def test_a_part_of_another_process_is_refused(tmp_path):
    write_parts(tmp_path, np.zeros(SHAPE), {3}, set())
    shutil.copy(part_path(tmp_path, 0), part_path(tmp_path, 1))
    with Parts(tmp_path) as parts, pytest.raises(ChainError, match="the part of another process"):
        parts.fetch([("w", parts.table[0][1], [WHOLE])])


def test_keys_of_shards():
    assert shard_key("a/b", [0, 0], {"shards": [1]}) == "a/b"
    assert shard_key("a/b", [3, 0], {"shards": [1, 2]}) == "a/b/3,0"
    assert path_name(["a", 0, "b"]) == "a/0/b"

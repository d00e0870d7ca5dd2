"""The record of a distributed checkpoint: what DCP's metadata say comes back from plain values."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

import lccodec
from lccodec.adapters.dcp import Location, RankFile, Value, check_storable, from_record, to_record
from lccodec.chain.read.links import RECORD_KIND as KIND
from lccodec.errors import ArgumentError, FormatError, UnsupportedError

PARTS = [RankFile(f"rank-{rank}/000000000003.lcc.h5", f"{rank:064x}") for rank in range(2)]
WHERE = Path("run") / "000000000003.lcc.h5"


def metadata(planner_data=None):
    """Of a tensor in two chunks, a pickle and a plain value."""
    chunks = [ChunkStorageMetadata(torch.Size([3 * rank, 0]), torch.Size([3 - rank, 4])) for rank in range(2)]
    properties = TensorProperties(dtype=torch.bfloat16, requires_grad=True)
    entries = {
        "model.w": TensorStorageMetadata(properties, torch.Size([5, 4]), chunks),
        "pickle": BytesStorageMetadata(),
        "epoch": BytesStorageMetadata(),
    }
    storage = {
        **{MetadataIndex("model.w", chunk.offsets): PARTS[rank] for rank, chunk in enumerate(chunks)},
        MetadataIndex("pickle"): PARTS[1],
        MetadataIndex("epoch"): Value(7),
    }
    return Metadata(entries, planner_data or {"model.w": ("model", "w")}, storage)


def test_metadata_come_back_through_a_checkpoint():
    record = lccodec.load(lccodec.save(to_record(metadata(), "../chain")))
    found, base = from_record(record, WHERE)
    assert found == metadata()
    assert base == Path("run/../chain")


def test_each_part_is_listed_once():
    record = to_record(metadata(), ".")
    assert record["parts"] == [[part.file, part.root] for part in PARTS]
    assert record["entries"]["model.w"] == {
        "dtype": "bfloat16",
        "requires_grad": True,
        "size": [5, 4],
        "chunks": [[[0, 0], [3, 4], 0], [[3, 0], [2, 4], 1]],
    }
    assert record["entries"]["pickle"] == {"pickle": 1}
    assert record["entries"]["epoch"] == {"value": 7}


def test_data_of_the_planner_that_are_not_plain_are_refused():
    with pytest.raises(ArgumentError, match=r"planner's data cannot be stored: .*object"):
        to_record(metadata({"x": object()}), ".")


@pytest.mark.parametrize("record", [None, [], {}, {"kind": KIND + "2"}])
def test_what_is_no_record(record):
    with pytest.raises(FormatError, match="not the record of a distributed checkpoint"):
        from_record(record, WHERE)


def test_a_record_of_another_version():
    record = to_record(metadata(), ".") | {"version": 2}
    with pytest.raises(UnsupportedError, match="a record of version 2"):
        from_record(record, WHERE)


@pytest.mark.parametrize("name", ["parts", "entries", "planner_data", "base"])
def test_a_record_that_lacks_a_member(name):
    record = to_record(metadata(), ".")
    del record[name]
    with pytest.raises(FormatError, match="inconsistent"):
        from_record(record, WHERE)


@pytest.mark.parametrize(
    ("entry", "member", "value"),
    [
        ("model.w", "chunks", 3),
        ("model.w", "chunks", [[[0], [1]]]),
        ("model.w", "chunks", [[[0, 0], [5, 4], 2]]),
        ("model.w", "chunks", [[["x"], [1], 0]]),
        ("model.w", "size", None),
        ("model.w", "dtype", 3),
        ("pickle", "pickle", 9),
        ("pickle", "pickle", "x"),
    ],
)
def test_an_entry_that_does_not_hold_together(entry, member, value):
    record = copy.deepcopy(to_record(metadata(), "."))
    record["entries"][entry][member] = value
    with pytest.raises(FormatError, match="inconsistent"):
        from_record(record, WHERE)


@pytest.mark.parametrize("dtype", ["float3", "nn", "Tensor"])
def test_a_dtype_that_pytorch_does_not_have(dtype):
    record = to_record(metadata(), ".")
    record["entries"]["model.w"]["dtype"] = dtype
    with pytest.raises(UnsupportedError, match=f"'model.w'.* dtype.* {dtype}"):
        from_record(record, WHERE)


@pytest.mark.parametrize(
    "value", [None, {"a": [1, 2.5, ("x", b"y")]}, {1, 2}, torch.ones(2), np.arange(3), np.float64(0.5)]
)
def test_what_a_chain_stores_is_storable(value):
    check_storable(value)


@pytest.mark.parametrize("value", [object(), np.array(["text"]), {"a": [torch.Generator()]}])
def test_what_a_chain_refuses_is_not(value):
    with pytest.raises(ArgumentError):
        check_storable(value)


def test_a_save_or_a_load_can_change_the_path(tmp_path):
    location = Location(str(tmp_path))
    location.reset()
    assert location.checkpoint_id == tmp_path
    location.reset(tmp_path / "0")
    assert location.checkpoint_id == tmp_path / "0"
    with pytest.raises(ArgumentError, match="the address"):
        location.reset("s3://bucket/run")
    assert location.checkpoint_id == tmp_path / "0"


@pytest.mark.parametrize(("path", "valid"), [("run", True), ("s3://bucket/run", False), ("", False)])
def test_only_a_path_is_the_name_of_a_checkpoint(path, valid):
    assert Location.validate_checkpoint_id(path) is valid

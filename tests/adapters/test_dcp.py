"""torch.distributed.checkpoint saves and loads through lccodec: alone, on ranks, after failures.

The record of a distributed checkpoint: what DCP's metadata say comes back from plain values.

The writer: items of plans, with names, roles and values; and the saves of `dcp.async_save`.
"""

import collections
import copy
import dataclasses
import errno
import io
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import lccodec
from lccodec.adapters.dcp import (
    LCStorageReader,
    LCStorageWriter,
    Location,
    RankFile,
    Value,
    check_storable,
    from_record,
    item_name,
    item_roles,
    stored_value,
    to_record,
    torch_bytes,
)
from lccodec.adapters.ranks import prune_together
from lccodec.chain.read.links import RECORD_KIND as KIND
from lccodec.chain.save import reference
from lccodec.chain.save.encode import encode_plan
from lccodec.constants import WRITER_NAME
from lccodec.errors import (
    ArgumentError,
    ChainError,
    ChecksumError,
    FormatError,
    LccodecWarning,
    UnsupportedError,
)
from lccodec.parallel import PIECE

from ..support.damage import flip
from ..support.torch_states import network, train
from ..support.tuning import tune

RANKS = Path(__file__).parents[1] / "support" / "dcp_ranks.py"


def save(state, path, **options):
    return dcp.save(state, storage_writer=LCStorageWriter(path, **options), no_dist=True)


def load(state, path, **options):
    dcp.load(state, storage_reader=LCStorageReader(path, **options), no_dist=True)
    return state


def failure(call, *args, **options):
    """What a rank raised, out of DCP's wrapping."""
    with pytest.raises(dcp.CheckpointException) as caught:
        call(*args, **options)
    return caught.value.failures[0][0]


@pytest.mark.slow
def test_three_ranks_save_one_dies_and_two_load(tmp_path):
    command = [sys.executable, "-W", "ignore", str(RANKS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "save [0, 9, 0]" in output and "load [0, 0]" in output, output
    assert output.count("interrupted") == 2, output
    # The two that lived have written their part, but nobody committed it.
    assert len(list(tmp_path.glob("chain/rank-[02]/000000000002.lcc.h5"))) == 2
    assert not (tmp_path / "2" / "000000000000.lcc.h5").exists()  # the record
    for rank in (0, 1, 2):
        with lccodec.Chain(tmp_path / "chain" / f"rank-{rank}") as chain:
            assert chain.info(1).parent == 0
            assert lccodec.validate(chain.directory, deep=True) == []
    # What two ranks saved in the end is one state, also for one that is alone.
    from ..support.dcp_ranks import values

    state = {
        "model": {name: torch.zeros_like(value) for name, value in values(4).items() if name != "legacy"}
    }
    load(state, tmp_path / "4")
    assert all(torch.equal(tensor, values(4)[name]) for name, tensor in state["model"].items())


DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
    torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (7, 5)])
def test_every_dtype_comes_back_bit_for_bit(tmp_path, dtype, shape):
    size = dtype.itemsize * torch.Size(shape).numel()
    raw = torch.randint(0, 256, (size,), dtype=torch.uint8)
    tensor = (raw % 2 if dtype == torch.bool else raw).view(dtype).reshape(shape)
    save({"x": tensor}, tmp_path)
    found = load({"x": torch.empty(shape, dtype=dtype)}, tmp_path)["x"]
    assert (found.dtype, found.shape) == (dtype, tensor.shape)
    assert torch.equal(bits(found), bits(tensor))


def test_views_and_tied_tensors(tmp_path):
    whole = torch.randn(6, 8)
    state = {
        "t": whole.T,
        "strided": whole[::2, 1::3],
        "conj": torch.randn(3, dtype=torch.cfloat).conj(),
        "tied": whole,
    }
    save(state, tmp_path)
    found = load({name: torch.zeros_like(tensor) for name, tensor in state.items()}, tmp_path)
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())


def test_plain_values_come_back_without_a_pickle(tmp_path):
    plain = {"epoch": 3, "lr": 0.1, "betas": (0.9, 0.999), "name": "a", "none": None, "raw": b"\x00\xff",
             "on": True, "sizes": [1, 2], "nan": float("inf"), "rng": (3, (1, 2), None)}  # fmt: skip
    save(plain, tmp_path)
    found = load(dict.fromkeys(plain), tmp_path)
    assert found == plain
    assert {name: type(value) for name, value in found.items()} == {n: type(v) for n, v in plain.items()}
    files = [path.read_bytes() for path in tmp_path.rglob("*.h5")]
    assert files and not any(b"torch" in data.replace(b"torch.distributed", b"") for data in files)


def test_counters_sizes_and_dtypes_come_back_without_a_pickle(tmp_path):
    values = (torch.Size([2]), torch.float16, collections.Counter("ab"), collections.OrderedDict(a=1), {3: 4})
    save({"values": values}, tmp_path)
    assert repr(load({"values": None}, tmp_path)["values"]) == repr(values)


def test_pickles_are_stored_and_loaded_only_when_allowed(tmp_path):
    day = re.compile("day")  # no chain stores it
    state = {"x": torch.ones(2), "day": day}
    error = failure(save, state, tmp_path)
    assert isinstance(error, ArgumentError)
    assert "'day'" in str(error)
    assert "allow_pickle" in str(error)
    assert not list(tmp_path.glob("*.h5"))
    save(state, tmp_path, allow_pickle=True)
    target = {"x": torch.zeros(2), "day": None}
    error = failure(load, target, tmp_path)
    assert isinstance(error, ArgumentError)
    assert "'day'" in str(error)
    assert torch.equal(target["x"], torch.zeros(2))
    found = load(target, tmp_path, allow_pickle=True)
    assert found["day"] == day


class Json(dcp.DefaultSavePlanner):
    """A planner with bytes and dtypes of its own."""

    def transform_object(self, write_item, object):
        return io.BytesIO(b"mine") if write_item.tensor_data is None else object.half()


class Mine(dcp.DefaultLoadPlanner):
    def load_bytes(self, read_item, value):
        self.original_state_dict[read_item.dest_index.fqn] = value.getvalue()


def test_the_planner_decides_what_is_written_and_what_becomes_of_it(tmp_path):
    state = {"x": torch.ones(3, dtype=torch.half).float(), "object": object()}
    dcp.save(state, storage_writer=LCStorageWriter(tmp_path, allow_pickle=True), planner=Json(), no_dist=True)
    target = {"x": torch.zeros(3), "object": None}
    reader = LCStorageReader(tmp_path, allow_pickle=True)
    dcp.load(target, storage_reader=reader, planner=Mine(), no_dist=True)
    assert target["object"] == b"mine"
    assert torch.equal(target["x"], state["x"])
    with lccodec.Chain(tmp_path / "rank-0") as chain:
        assert chain.info().arrays[0].dtype == "float16"


def trainer():
    model = network()
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(tmp_path, asynchronous):
    model, optimizer = trainer()
    train(model, optimizer, range(20))
    expected = model.state_dict()

    model, optimizer = trainer()
    writer = LCStorageWriter(tmp_path / "latest", chain=tmp_path / "chain")
    for step in range(0, 15, 5):
        train(model, optimizer, range(step, step + 5))
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "step": step + 5}
        options = {"checkpoint_id": tmp_path / str(step + 5), "storage_writer": writer, "no_dist": True}
        if asynchronous:
            dcp.async_save(state, **options).result()
        else:
            dcp.save(state, **options)
    train(model, optimizer, range(100, 103))  # lost

    model, optimizer = trainer()
    weights, moments = get_state_dict(model, optimizer)
    state = load({"model": weights, "optimizer": moments, "step": None}, tmp_path / "15")
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    train(model, optimizer, range(state["step"], 20))
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())


def test_a_chain_shared_by_checkpoints_holds_deltas_and_each_can_go(tmp_path):
    writer = LCStorageWriter(tmp_path / "x", chain=tmp_path / "chain", policy="lc-2", newest="history")
    weight = torch.randn(300, 300)
    for step in range(3):
        weight += 0.01 * torch.randn(300, 300)
        dcp.save({"w": weight}, checkpoint_id=tmp_path / str(step), storage_writer=writer, no_dist=True)
    sizes = [path.stat().st_size for path in sorted(tmp_path.glob("chain/rank-0/*.lcc.h5"))]
    assert max(sizes[1:]) < sizes[0] / 8
    shutil.rmtree(tmp_path / "0")
    found = load({"w": torch.zeros(300, 300)}, tmp_path / "2")["w"]
    assert 0 < (found - weight).abs().max() < 0.1
    # The whole tree can be moved, and another writer goes on where the first stopped.
    shutil.move(tmp_path, tmp_path.with_name("moved"))
    moved = tmp_path.with_name("moved")
    assert torch.equal(load({"w": torch.zeros(300, 300)}, moved / "2")["w"], found)
    with pytest.warns(LccodecWarning, match="continues with 'lossless'"):
        save({"w": weight}, moved / "3", chain=moved / "chain", policy="lossless")
    assert torch.equal(load({"w": torch.zeros(300, 300)}, moved / "3")["w"], weight)
    with lccodec.Chain(moved / "chain" / "rank-0") as chain:
        assert chain.info().parent == 2


class Codebook(torch.nn.Module):
    """Statistics that are no running mean by name, and a parameter with a name of its own."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(20, 30))
        self.register_buffer("embed", torch.rand(20, 30))
        self.register_buffer("usage", torch.rand(400))


def test_buffers_of_a_lossy_checkpoint_are_exact_and_parameters_need_no_known_names(tmp_path):
    """As `get_state_dict` names them: ``state.<parameter>.<entry>``."""
    torch.manual_seed(0)
    model = Codebook()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    writer = LCStorageWriter(tmp_path / "x", chain=tmp_path / "chain", policy="lc-3", newest="history")
    for step in range(2):
        model.table.sum().backward()
        optimizer.step()
        with torch.no_grad():
            model.embed.mul_(1.01)
            model.usage.mul_(1.01)
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments}
        dcp.save(state, checkpoint_id=tmp_path / str(step), storage_writer=writer, no_dist=True)
    empty = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
    found = load({"model": empty}, tmp_path / "1")["model"]
    assert torch.equal(found["embed"], model.embed) and torch.equal(found["usage"], model.usage)
    assert 0 < (found["table"] - model.table).abs().max() < 0.01
    with lccodec.Chain(tmp_path / "chain" / "rank-0") as chain:
        methods = {array.name: array.method for array in chain.info().arrays}
    assert methods["optimizer.state.table.sum"] == "codebook"  # Adagrad's


def test_a_writer_can_be_sent_to_a_process(tmp_path):
    """As `dcp.async_save` does with AsyncCheckpointerType.PROCESS."""
    writer = LCStorageWriter(tmp_path / "x", chain=tmp_path / "chain")
    for step in range(2):
        dcp.save({"x": torch.ones(3) * step}, checkpoint_id=tmp_path / str(step), storage_writer=writer)
        assert not (tmp_path / "chain" / "rank-0" / WRITER_NAME).exists()  # the process may save now
        writer = copy.deepcopy(writer)  # in the way of pickle
    assert load({"x": torch.zeros(3)}, tmp_path / "1")["x"][0] == 1
    with lccodec.Chain(tmp_path / "chain" / "rank-0") as chain:
        assert chain.info(1).parent == 0


def test_saves_to_one_path_are_numbered(tmp_path):
    for value in (1.0, 2.0):
        save({"x": torch.full((3,), value)}, tmp_path)
    assert load({"x": torch.zeros(3)}, tmp_path)["x"][0] == 2
    assert load({"x": torch.zeros(3)}, tmp_path, step=0)["x"][0] == 1
    with pytest.raises(dcp.CheckpointException, match="no checkpoint of step 7"):
        load({"x": torch.zeros(3)}, tmp_path, step=7)


def test_records_and_ranks_are_thinned_out_after_each_save(tmp_path):
    writer = LCStorageWriter(tmp_path, keyframe_every=0, keep=lccodec.Keep(latest=2))
    for value in range(5):
        dcp.save({"x": torch.full((3,), value)}, storage_writer=writer, no_dist=True)
    assert [lccodec.Chain(path).steps for path in (tmp_path, tmp_path / "rank-0")] == [[3, 4], [3, 4]]
    for step in (3, 4):
        assert load({"x": torch.zeros(3, dtype=torch.int64)}, tmp_path, step=step)["x"][0] == step
    with pytest.raises(ArgumentError, match="keep is for one path"):
        LCStorageWriter(tmp_path, chain=tmp_path / "chain", keep=lccodec.Keep(latest=2))


@pytest.mark.parametrize("rewrite", [False, True])
def test_records_and_ranks_are_pruned_together(tmp_path, rewrite):
    writer = LCStorageWriter(tmp_path)
    for value in range(5):
        state = {"x": torch.arange(300.0) + value, "value": value}
        dcp.save(state, storage_writer=writer, no_dist=True)
    found = prune_together(tmp_path, lccodec.Keep(latest=1, steps=[2]), rewrite=rewrite)
    assert [each.removed for each in found.values()] == [(0, 1, 3), (0, 1, 3) if rewrite else ()]
    for step, value in ((None, 4), (2, 2)):
        state = load({"x": torch.zeros(300), "value": None}, tmp_path, step=step)
        assert state["value"] == value
        assert torch.equal(state["x"], torch.arange(300.0) + value)
    dcp.save({"x": torch.zeros(300), "value": 9}, storage_writer=LCStorageWriter(tmp_path), no_dist=True)
    assert load({"x": torch.ones(300), "value": None}, tmp_path)["value"] == 9


def test_names_with_slashes_and_tildes(tmp_path):
    state = {"a/b": torch.ones(2), "a~1b": torch.zeros(2), "é": 3}
    save(state, tmp_path)
    found = load({"a/b": torch.zeros(2), "a~1b": torch.ones(2), "é": None}, tmp_path)
    assert torch.equal(found["a/b"], state["a/b"]) and torch.equal(found["a~1b"], state["a~1b"])


@pytest.fixture
def two(tmp_path):
    """Checkpoints of two runs, of the same names and sizes."""
    for name in ("one", "other"):
        save({"a": torch.randn(40, 40), "b": torch.ones(3), "n": 1}, tmp_path / name)
    return tmp_path / "one", tmp_path / "other"


@contextmanager
def rewritten(directory):
    """Let a record be changed."""
    path = directory / "000000000000.lcc.h5"
    yield (record := lccodec.Chain(directory).restore())
    path.unlink()
    with lccodec.Chain(directory) as chain:
        chain.save(0, record)


def check_refused(path, kind, *words):
    target = {"b": torch.zeros(3), "a": torch.zeros(40, 40), "n": None}
    before = copy.deepcopy(target)
    error = failure(load, target, path)
    assert isinstance(error, kind), error
    assert all(word in str(error) for word in words), error
    assert all(torch.equal(target[n], before[n]) for n in "ab") and target["n"] is None


def test_the_file_of_a_rank_is_missing(two):
    (two[0] / "rank-0" / "000000000000.lcc.h5").unlink()
    check_refused(two[0], ChainError, "missing", "rank-0")


def test_the_file_of_a_rank_is_of_another_run(two):
    shutil.copy(*[path / "rank-0" / "000000000000.lcc.h5" for path in reversed(two)])
    check_refused(two[0], ChainError, "another run", "rank-0")


def test_the_file_of_a_rank_is_damaged(two):
    path = two[0] / "rank-0" / "000000000000.lcc.h5"
    flip(path, 5000)
    check_refused(two[0], ChecksumError, "LCC-MAN-08")


def test_no_checkpoint_there(tmp_path):
    check_refused(tmp_path / "nothing", ChainError, "holds no checkpoint", "there is no such directory")
    check_refused(tmp_path, ChainError, "holds no checkpoint", "the directory is empty")
    (tmp_path / "notes.txt").write_text("")
    check_refused(tmp_path, ChainError, "holds no checkpoint", "other files: notes.txt")
    for number in range(9):
        (tmp_path / f"m{number}").write_text("")
    check_refused(tmp_path, ChainError, "m0, m1, m2 and 7 more")
    check_refused(tmp_path / "notes.txt", ChainError, "not a directory")


def test_a_planner_that_looks_at_metadata_that_could_not_be_read_gets_the_error(tmp_path):
    metadata = LCStorageReader(tmp_path).read_metadata()
    for field in dataclasses.fields(metadata):
        with pytest.raises(ChainError, match="holds no checkpoint"):
            getattr(metadata, field.name)


def test_a_checkpoint_of_torchs_own_writer_is_told(tmp_path):
    dcp.save({"x": torch.ones(2)}, checkpoint_id=tmp_path, no_dist=True)
    check_refused(tmp_path, ChainError, "a checkpoint of torch's own FileSystemWriter",
                  "load it with FileSystemReader")  # fmt: skip


def test_the_chain_of_a_rank_is_told(tmp_path):
    save({"x": torch.ones(2)}, tmp_path)
    check_refused(tmp_path / "rank-0", FormatError, "not the record", "of a distributed checkpoint")


@pytest.mark.parametrize(
    ("change", "kind", "word"),
    [
        (lambda record: record.update(version=9), UnsupportedError, "version 9"),
        (lambda record: record.update(kind="else"), FormatError, "not the record"),
        (lambda record: record.update(parts=[]), FormatError, "inconsistent"),
        (lambda record: record["entries"]["a"].update(dtype="float3"), UnsupportedError, "float3"),
        (lambda record: record["entries"]["a"].update(dtype="nn"), UnsupportedError, "nn"),
        (lambda record: record["entries"]["a"].update(dtype="Tensor"), UnsupportedError, "dtype Tensor"),
        (lambda record: record["entries"]["a"].update(size="x"), FormatError, "inconsistent"),
        (lambda record: record["entries"]["a"]["chunks"][0].pop(), FormatError, "inconsistent"),
    ],
)
def test_a_record_that_is_not_as_it_should_be(two, change, kind, word):
    with rewritten(two[0]) as record:
        change(record)
    check_refused(two[0], kind, word)


def test_a_tensor_that_its_part_does_not_have(two):
    with rewritten(two[0]) as record:
        record["entries"]["else"] = record["entries"]["a"]
    error = failure(load, {"else": torch.zeros(40, 40)}, two[0])
    assert isinstance(error, FormatError), error


def test_a_chunk_that_is_smaller_than_the_record_says(two):
    with rewritten(two[0]) as record:
        record["entries"]["a"].update(size=[50, 40], chunks=[[[0, 0], [50, 40], 0]])
    error = failure(load, {"a": torch.zeros(50, 40)}, two[0])
    assert isinstance(error, FormatError)


@pytest.mark.parametrize(("size", "chunks"), [([0, 3], []), ([3], [[[0], [3], 0]])])
def test_a_state_of_what_no_part_has(two, size, chunks):
    """A tensor without elements needs no chunk; of others, each must be there."""
    with rewritten(two[0]) as record:
        record["entries"]["else"] = {**record["entries"]["a"], "size": size, "chunks": chunks}
    reader = LCStorageReader(two[0])
    if chunks:
        with pytest.raises(FormatError, match="else"):
            reader.state()
    else:
        assert reader.state()["else"].shape == (0, 3)


def test_what_cannot_be_saved_is_refused_by_name(tmp_path):
    for tensor in (torch.zeros(3, device="meta"), torch.zeros(3).to_sparse()):
        error = failure(save, {"bad": tensor}, tmp_path)
        assert isinstance(error, ArgumentError)
        assert "'bad'" in str(error)
    with pytest.raises(ArgumentError, match="collectives"):
        dcp.save(
            {"x": torch.ones(2)},
            storage_writer=LCStorageWriter(tmp_path),
            no_dist=True,
            use_collectives=False,
        )
    with pytest.raises(ArgumentError, match="policy must be"):
        LCStorageWriter(tmp_path, policy="nonsense")


def test_dcp_knows_what_can_be_a_checkpoint(tmp_path):
    assert LCStorageWriter.validate_checkpoint_id(tmp_path)
    assert not LCStorageReader.validate_checkpoint_id("gs://bucket/step")


def test_a_save_that_only_the_exact_file_has(tmp_path):
    """A record names its checkpoint, which the next save writes."""
    weights = [torch.randn(300, 100, generator=torch.Generator().manual_seed(step)) for step in range(3)]
    writer = LCStorageWriter(tmp_path, policy="lc-2", newest="exact")

    def full(plan, *arguments):
        if [each.name for each in plan.candidates] == ["w"]:
            raise lccodec.StorageError(errno.ENOSPC, "no space", "somewhere")
        return encode_plan(plan, *arguments)

    def error(step):
        found = load({"w": torch.zeros(300, 100)}, tmp_path, step=step)
        return float((found["w"] - weights[step]).abs().max())

    dcp.save({"w": weights[0]}, storage_writer=writer, no_dist=True)
    with (
        mock.patch.object(reference, "encode_plan", full),
        pytest.warns(lccodec.LccodecWarning, match="step 1 is saved, but only in the exact file"),
    ):
        dcp.save({"w": weights[1]}, storage_writer=writer, no_dist=True)
    assert error(1) == 0
    dcp.save({"w": weights[2]}, storage_writer=writer, no_dist=True)
    assert [error(step) > 0 for step in range(3)] == [False, True, False]
    assert [path.name for path in tmp_path.glob("rank-*-*.exact")] == ["rank-0-2.exact"]
    (tmp_path / "rank-0-2.exact").unlink()
    assert error(2) == 0  # the chain has the newest
    (tmp_path / "rank-0" / "exact.lcc.h5").unlink()
    with pytest.warns(LccodecWarning, match=r"rank-0-2.exact is missing or damaged; returned the state of"):
        assert error(2) > 0


@pytest.mark.parametrize("policy", ["balanced", "lossless"])
def test_each_directory_of_a_shared_chain_is_whole_and_exact(tmp_path, policy):
    """Also if the ranks went on and were killed before the record; and when the chain is gone."""
    writer = LCStorageWriter(tmp_path / "x", chain=tmp_path / "chain", policy=policy)
    weights = [torch.randn(100, 90, generator=torch.Generator().manual_seed(step)) for step in range(3)]

    def save(step):
        state = {"weight": weights[step]}
        dcp.save(state, checkpoint_id=tmp_path / str(step), storage_writer=writer, no_dist=True)

    save(0)
    save(1)
    with mock.patch.object(writer, "finish", side_effect=KeyboardInterrupt), pytest.raises(BaseException):  # noqa: B017 - DCP wraps it
        save(2)
    assert lccodec.Chain(tmp_path / "chain" / "rank-0").steps == [0, 1, 2]
    for _ in range(2):
        for step in range(2):
            found = load({"weight": torch.zeros(100, 90)}, tmp_path / str(step))["weight"]
            assert torch.equal(found, weights[step])
        shutil.rmtree(tmp_path / "chain", ignore_errors=True)
    assert failure(load, {"weight": torch.zeros(100, 90)}, tmp_path / "2").args


def test_the_newest_save_is_exact(tmp_path):
    weights = [torch.randn(200, 100, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    writer = LCStorageWriter(tmp_path, policy="lc-2", newest="exact")
    for weight in weights:
        dcp.save({"weight": weight}, storage_writer=writer, no_dist=True)
    for step, exact in ((0, True), (1, False), (2, True)):
        found = load({"weight": torch.zeros(200, 100)}, tmp_path, step=step)["weight"]
        assert torch.equal(found, weights[step]) == exact


def test_a_part_of_a_chunk_is_read_alone(tmp_path, monkeypatch):
    """As a load on more ranks: of a large chunk only the blocks of its rows are decoded."""
    values = torch.arange(600_000, dtype=torch.float32).reshape(3000, 200)
    tune(monkeypatch, block_log2=PIECE.bit_length() - 1)
    save({"w": values}, tmp_path, policy="lossless")
    decoded = []
    monkeypatch.setattr("lccodec.frame.planes.join", lambda *arguments: decoded.append(arguments[-1].size))
    reader = LCStorageReader(tmp_path)
    reader.set_up_storage_reader(reader.read_metadata())
    load_part(reader, (5, 20), (3, 40))
    assert 0 < sum(decoded) <= PIECE
    monkeypatch.undo()
    assert torch.equal(load_part(reader, (5, 20), (3, 40)), values[5:8, 20:60])
    assert torch.equal(load_part(reader, (2900, 0), (100, 200)), values[2900:])
    assert torch.equal(load_part(reader, (7, 0), (0, 200)), values[7:7])


def load_part(reader, offsets, lengths):
    """The region of a chunk that an item of a plan asks for."""
    index, size = MetadataIndex("w", torch.Size([0, 0])), torch.Size(lengths)
    item = ReadItem(LoadItemType.TENSOR, index, torch.Size([0, 0]), index, torch.Size(offsets), size)
    planner, target = mock.Mock(), torch.full(lengths, -1.0)
    planner.resolve_tensor.return_value = target
    reader.read_data(LoadPlan([item]), planner)
    return target


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


ASYNC = """
import sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from lccodec.adapters.dcp import LCStorageReader, LCStorageWriter

def main(root, kind):
    dist.init_process_group("gloo", init_method=f"file://{root}/start", rank=0, world_size=1)
    writer = LCStorageWriter(f"{root}/x", chain=f"{root}/chain", workers=1)
    weight = torch.randn(300, 300)
    for step in range(3):
        state = {"w": weight, "step": step}
        saved = dcp.async_save(state, checkpoint_id=f"{root}/{step}", storage_writer=writer,
                               async_checkpointer_type=AsyncCheckpointerType(kind))
        expected = weight.clone()
        weight += 1  # while the save runs
        saved.result()
        found = {"w": torch.zeros(300, 300), "step": None}
        dcp.load(found, checkpoint_id=f"{root}/{step}", storage_reader=LCStorageReader(root))
        assert torch.equal(found["w"], expected) and found["step"] == step
    dist.destroy_process_group()

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["thread", "process"])
def test_asynchronous_saves_of_both_kinds_with_a_worker(tmp_path, kind):
    (tmp_path / "run.py").write_text(ASYNC)
    command = [sys.executable, "-W", "ignore", tmp_path / "run.py", tmp_path, kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with lccodec.Chain(tmp_path / "chain" / "rank-0") as chain:
        assert [chain.info(step).parent for step in chain.steps] == [None, 0, 1]
    found = {"w": torch.zeros(300, 300), "step": None}
    dcp.load(found, storage_reader=LCStorageReader(tmp_path / "2"), no_dist=True)
    assert found["step"] == 2


def test_some_tensors_are_saved_once_all_of_them_are(tmp_path):
    writer = LCStorageWriter(tmp_path / "x", chain=tmp_path / "chain", only=["*lora*"])
    for step in range(3):
        base, lora = torch.full((300,), float(step)), torch.full((3,), float(step))
        state = {"base": base, "a.lora": lora, "step": step}
        dcp.save(state, checkpoint_id=tmp_path / f"{step}", storage_writer=writer, no_dist=True)
    found = {"base": torch.ones(300), "a.lora": torch.zeros(3), "step": None}
    dcp.load(found, storage_reader=LCStorageReader(tmp_path / "2"), no_dist=True)
    assert (found["base"][0], found["a.lora"][0], found["step"]) == (0, 2, 2)  # base was left out
    wrong = LCStorageWriter(tmp_path / "y", chain=tmp_path / "other", only=["*lore*"])
    with pytest.raises(dcp.CheckpointException, match="only: no array is named"):
        dcp.save(state, checkpoint_id=tmp_path / "y", storage_writer=wrong, no_dist=True)
    state["moments"] = torch.ones(3)
    with pytest.raises(dcp.CheckpointException, match="'moments' is not in step 2"):
        dcp.save(state, checkpoint_id=tmp_path / "3", storage_writer=writer, no_dist=True)
    dcp.save(state, checkpoint_id=tmp_path / "4", storage_writer=writer, no_dist=True)
    dcp.load(found := dict(state), storage_reader=LCStorageReader(tmp_path / "4"), no_dist=True)
    assert (found["base"][0], found["moments"][0]) == (2, 1)  # all arrays were saved


def test_the_role_of_a_shard_is_that_of_its_tensor():
    names = [
        "optimizer.state.fc.table.exp_avg",
        "optimizer.state.fc.table.exp_avg_sq",
        "model.fc.table",
        "model.fc.cluster_size",
        "model.fc.weight",
    ]
    for offset in ([8], [8, 0]):
        indices = [MetadataIndex(name, offset) for name in names]
        state = {item_name(index): torch.ones(8) for index in indices}
        assert [assignment.role for assignment in item_roles(indices, state).values()] == [
            "first_moment", "second_moment", "weight", "other", "other",
        ]  # fmt: skip


def test_a_shard_has_its_offset_in_its_name():
    assert item_name(MetadataIndex("w")) == item_name(MetadataIndex("w", [0, 0])) == "w"
    assert item_name(MetadataIndex("w", [0, 8])) == "w/0,8"


class OtherPlanner(DefaultSavePlanner):
    """A planner that makes the bytes itself, so that its objects are not looked at."""

    def transform_object(self, write_item, object):
        return super().transform_object(write_item, object)


class BytesPlanner(DefaultSavePlanner):
    def resolve_data(self, _):
        return io.BytesIO(b"made by a planner")


def stored(planner, value):
    planner.set_up_planner({"x": value}, is_coordinator=True)
    (item,) = planner.create_local_plan().items
    return stored_value(planner, item).value


@pytest.mark.parametrize("planner", [DefaultSavePlanner, OtherPlanner])
def test_plain_values_need_no_pickle(planner):
    assert stored(planner(), (0.9, None, b"x")) == (0.9, None, b"x")


def test_values_of_numpy_need_no_pickle_of_the_planner():
    name, keys, *rest = stored(DefaultSavePlanner(), np.random.RandomState(3).get_state())
    assert (name, keys.dtype, rest[1:]) == ("MT19937", np.uint32, [0, 0.0])


@pytest.mark.parametrize(("planner", "value"), [(OtherPlanner, object()), (BytesPlanner, 3)])
def test_bytes_that_are_not_read_are_refused(planner, value):
    with pytest.raises(ArgumentError):
        stored(planner(), value)


def test_a_class_without_a_name_is_handed_on():
    value = collections.namedtuple("nowhere", "x")(3)
    data = torch_bytes(value)
    assert torch.load(data, weights_only=False) is value

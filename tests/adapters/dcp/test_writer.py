"""The writer: items of plans, with names, roles and values; and the saves of `dcp.async_save`."""

import collections
import io
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import MetadataIndex

import lccodec
from lccodec.adapters.dcp import (
    LCStorageReader,
    LCStorageWriter,
    item_name,
    item_roles,
    stored_value,
    torch_bytes,
)
from lccodec.errors import ArgumentError

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

"""The writer in the threads and processes of `dcp.async_save`."""

import subprocess
import sys

import pytest
import torch
import torch.distributed.checkpoint as dcp

import lccodec
from lccodec.adapters.dcp import LCStorageReader, LCStorageWriter

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

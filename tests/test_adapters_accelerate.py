"""A run with accelerate that is interrupted and resumed through the hooks ends where the other one does."""

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration

import lccodec
from lccodec.adapters.accelerate import register
from lccodec.adapters.folder import PACKED
from lccodec.errors import ArgumentError, ChainError


def start(root, **options):
    torch.manual_seed(0)
    project = ProjectConfiguration(str(root), automatic_checkpoint_naming=True, total_limit=2)
    accelerator = Accelerator(cpu=True, project_config=project)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    parts = accelerator.prepare(model, optimizer, scheduler)
    register(accelerator, **options)
    return accelerator, *parts


def train(accelerator, model, optimizer, scheduler, steps):
    for step in steps:
        batch = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        accelerator.backward((model(batch) - batch.sum(1, keepdim=True)).square().mean())
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("chained", [False, True])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(tmp_path, chained):
    options = {"chain": tmp_path / "chain"} if chained else {}
    whole = start(tmp_path / "whole")
    train(*whole, range(20))

    run = start(tmp_path / "run", **options)
    for step in range(0, 12, 3):
        train(*run, range(step, step + 3))
        run[0].save_state()
    train(*run, range(90, 93))  # lost

    folders = sorted((tmp_path / "run" / "checkpoints").iterdir())
    assert [folder.name for folder in folders] == ["checkpoint_2", "checkpoint_3"]
    names = {path.name for path in folders[1].iterdir()}
    assert PACKED in names
    assert not names & {"model.safetensors", "optimizer.bin"}

    run = start(tmp_path / "run", **options)
    run[0].load_state(str(folders[1]))
    assert {path.name for path in folders[1].iterdir()} == names
    train(*run, range(12, 20))
    expected = whole[1].state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in run[1].state_dict().items())
    if chained:
        with lccodec.Chain(tmp_path / "chain") as chain:
            assert len(chain.steps) == 4
            assert chain.info(1).parent == 0
            (tmp_path / "chain" / "000000000003.lcc.h5").unlink()
        with pytest.raises(ChainError, match="is missing"):
            run[0].load_state(str(folders[1]))


def test_a_lossy_policy_needs_a_chain(tmp_path):
    with pytest.raises(ArgumentError, match="need a chain"):
        start(tmp_path, policy="lc-2")

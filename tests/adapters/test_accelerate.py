"""A run with accelerate that is resumed through the hooks ends like one without interruption."""

from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from safetensors.torch import load_file, save_file

import lccodec
from lccodec.adapters import chains as saver
from lccodec.adapters.accelerate import register
from lccodec.adapters.chains import PACKED
from lccodec.errors import StorageError


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


@pytest.mark.slow
@pytest.mark.parametrize("chained", [False, True, "background"])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(tmp_path, chained):
    options = {"chain": tmp_path / "chain"} if chained else {}
    if chained == "background":
        options["background"] = True
    whole = start(tmp_path / "whole")
    train(*whole, range(20))

    run = start(tmp_path / "run", **options)
    for step in range(0, 12, 3):
        train(*run, range(step, step + 3))
        run[0].save_state()
    train(*run, range(90, 93))  # lost
    run[0].end_training()

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


@pytest.mark.parametrize("how", ["save_state", "load_state", "end_training"])
def test_a_failure_in_the_background_is_told_by_the_next_call(tmp_path, monkeypatch, how):
    def refuse(*_):
        raise StorageError(28, "no room for the link")

    monkeypatch.setattr(saver, "write_link", refuse)
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(torch.nn.Linear(3, 2))
    register(accelerator, chain=tmp_path / "chain", background=True)
    folder = accelerator.save_state(str(tmp_path / "0"))
    with pytest.raises(StorageError, match="no room for the link"):
        getattr(accelerator, how)(*([] if how == "end_training" else [folder]))
    assert {"model.safetensors"} <= {path.name for path in (tmp_path / "0").iterdir()}
    assert not (tmp_path / "0" / PACKED).exists()
    monkeypatch.undo()
    folder = accelerator.save_state(str(tmp_path / "1"))
    accelerator.load_state(folder)  # waits
    assert {path.name for path in (tmp_path / "1").iterdir()} >= {PACKED}
    accelerator.end_training()


class Gated(torch.nn.Module):
    """With a parameter and a buffer whose names tell nothing."""

    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Parameter(torch.zeros(300))
        self.register_buffer("usage", torch.zeros(300))


def test_the_models_tell_what_is_trained(tmp_path):
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(Gated())
    register(accelerator, chain=tmp_path / "chain", policy="lc-3", newest="history")
    for step in range(2):
        with torch.no_grad():
            model.gate += torch.rand(300)
            model.usage += torch.rand(300)
        accelerator.save_state(str(tmp_path / str(step)))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    accelerator.load_state(str(tmp_path / "1"))
    assert torch.equal(model.usage, before["usage"])
    assert not torch.equal(model.gate, before["gate"])


@pytest.mark.parametrize("first", [True, False])
def test_hooks_of_the_script_find_their_files(tmp_path, first):
    """Whether they are registered before ours or after: as in the examples of diffusers."""

    def save(models, weights, folder):
        (Path(folder) / "unet").mkdir()
        save_file(models[0].state_dict(), f"{folder}/unet/diffusion_pytorch_model.safetensors")
        weights.pop()

    def load(models, folder):
        models.pop().load_state_dict(load_file(f"{folder}/unet/diffusion_pytorch_model.safetensors"))

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(3, 2)
    if first:
        register(accelerator, chain=tmp_path / "chain")
    accelerator.register_save_state_pre_hook(save)
    accelerator.register_load_state_pre_hook(load)
    model = accelerator.prepare(model)
    if not first:
        register(accelerator, chain=tmp_path / "chain")
    accelerator.save_state(str(tmp_path / "1"))
    before = model.weight.clone()
    torch.nn.init.zeros_(model.weight)
    accelerator.load_state(str(tmp_path / "1"))
    assert torch.equal(model.weight, before)


class Own:
    """An object that the caller registers."""

    def __init__(self, value):
        self.value = value

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


def plain(registered, value=0):
    torch.manual_seed(value)
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(torch.nn.Linear(3, 2))
    own = [Own(value + number) for number in range(registered)]
    accelerator.register_for_checkpointing(*own) if own else None
    return accelerator, model, own


@pytest.mark.parametrize("registered", [0, 2])
@pytest.mark.parametrize("before", [True, False])
def test_a_folder_from_before_register_loads(tmp_path, registered, before):
    accelerator, model, own = plain(registered, 7)
    folder = accelerator.save_state(str(tmp_path / "old"))
    expected = model.weight.clone()
    accelerator, model, own = plain(0 if before else registered, 1)
    register(accelerator)
    if before:  # what is registered later has the numbers it would have without us
        own = [Own(0) for _ in range(registered)]
        accelerator.register_for_checkpointing(*own) if own else None
    accelerator.load_state(folder)
    assert torch.equal(model.weight, expected)
    assert [thing.value for thing in own] == [7, 8][:registered]
    packed = accelerator.save_state(str(tmp_path / "new"))
    assert (tmp_path / "new" / PACKED).exists()
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert {name for name in names if name.startswith("custom")} == {
        f"custom_checkpoint_{number}.pkl" for number in range(registered)
    }
    accelerator, model, own = plain(registered, 3)
    register(accelerator)
    accelerator.load_state(packed)
    assert torch.equal(model.weight, expected)
    assert [thing.value for thing in own] == [7, 8][:registered]
    assert {path.name for path in (tmp_path / "new").iterdir()} == names


def test_what_was_unpacked_goes_when_loading_fails(tmp_path):
    accelerator, _, _ = plain(0, 7)
    register(accelerator)
    folder = accelerator.save_state(str(tmp_path / "run"))
    names = {path.name for path in (tmp_path / "run").iterdir()}
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(torch.nn.Linear(5, 5))
    register(accelerator)
    with pytest.raises(RuntimeError):
        accelerator.load_state(folder)
    assert {path.name for path in (tmp_path / "run").iterdir()} == names

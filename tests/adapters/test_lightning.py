"""A Lightning run that is resumed through the plugin ends like one without interruption."""

import collections
import copy
import datetime
import enum
import pathlib
import shutil
import threading
from typing import NamedTuple

import lightning
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import AsyncCheckpointIO

import lccodec
from lccodec.adapters import chains as link_saver
from lccodec.adapters.lightning import LCCheck, LCCheckpointIO
from lccodec.errors import ArgumentError, StorageError

pytestmark = [
    # Of Lightning: a class of PyTorch it should not use any more, and advice on a data set of 64
    # rows and on a directory that is there on purpose.
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.. is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
]


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters({"width": 16})
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)
        )

    def training_step(self, batch, _):
        rows = batch[0]
        return (self.layers(rows) - rows.sum(1, keepdim=True)).square().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]


def fit(root, plugin, epochs, resume=None, callbacks=()):
    lightning.seed_everything(1, verbose=False)
    rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    # With a generator of its own the loader draws nothing from the one that dropout uses.
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(rows), batch_size=16, generator=torch.Generator()
    )
    module = Module()
    trainer = lightning.Trainer(
        default_root_dir=root, max_epochs=epochs, accelerator="cpu", plugins=[plugin] if plugin else [],
        logger=False, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=bool(callbacks), callbacks=list(callbacks),
    )  # fmt: skip
    trainer.fit(module, loader, ckpt_path=resume)
    return module


class Random(lightning.Callback):
    """The state of the generator, so that dropout goes on as it would have."""

    def state_dict(self):
        return {"random": torch.get_rng_state()}

    def load_state_dict(self, state):
        self.state = state["random"]

    def on_train_epoch_start(self, trainer, module):  # noqa: ARG002
        if hasattr(self, "state"):
            torch.set_rng_state(self.state)
            del self.state


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chained", "asynchronous"),
    [(False, False), (False, True), (True, False), (True, True), (True, "background")],
)
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(tmp_path, chained, asynchronous):
    expected = fit(tmp_path, None, 4, callbacks=[Random()]).state_dict()
    background = asynchronous == "background"
    plugin = LCCheckpointIO(tmp_path / "chain" if chained else None, background=background)
    saved = tmp_path / "saved"

    def saver():
        return ModelCheckpoint(saved, "{epoch}", save_top_k=-1)

    used = AsyncCheckpointIO(plugin) if asynchronous is True else plugin
    fit(tmp_path, used, 2, callbacks=[saver(), Random()])
    assert sorted(path.name for path in saved.iterdir()) == ["epoch=0.ckpt", "epoch=1.ckpt"]
    last = saved / "epoch=1.ckpt"
    resumed = fit(tmp_path, LCCheckpointIO(), 4, resume=str(last), callbacks=[saver(), Random()])
    assert all(torch.equal(tensor, expected[name]) for name, tensor in resumed.state_dict().items())
    assert b"torch" not in last.read_bytes().replace(b"pytorch-lightning", b"")
    if chained:
        with lccodec.Chain(tmp_path / "chain") as chain:
            steps = chain.steps
            assert [chain.restore(step)["global_step"] for step in steps] == steps != [0, 1]
            assert [chain.info(step).parent for step in steps] == [None, steps[0]]


def test_lightning_deletes_what_it_does_not_keep(tmp_path):
    plugin = LCCheckpointIO(tmp_path / "chain", policy="lc-3")
    saver = ModelCheckpoint(tmp_path / "saved", "{epoch}", save_top_k=1)
    module = fit(tmp_path, plugin, 3, callbacks=[saver])
    assert [path.name for path in (tmp_path / "saved").iterdir()] == ["epoch=2.ckpt"]
    found = plugin.load_checkpoint(tmp_path / "saved" / "epoch=2.ckpt")
    assert found["hyper_parameters"] == {"width": 16}
    for name, tensor in module.state_dict().items():
        assert torch.allclose(found["state_dict"][name], tensor, atol=0.1), name
    fresh = Module()
    fresh.load_state_dict(found["state_dict"])


def test_in_the_background_a_file_stays_until_the_next_is_there(tmp_path, monkeypatch):
    plugin, paths = LCCheckpointIO(tmp_path / "chain", background=True), [tmp_path / str(n) for n in range(3)]
    gate, write = threading.Event(), link_saver.write_link
    monkeypatch.setattr(link_saver, "write_link", lambda *given: [gate.wait(60), write(*given)][1])
    gate.set()
    weight = torch.randn(300, 300)
    plugin.save_checkpoint({"w": weight, "epoch": 0}, paths[0])
    assert plugin.load_checkpoint(paths[0])["epoch"] == 0  # waits
    gate.clear()
    expected = weight.clone()
    plugin.save_checkpoint({"w": weight, "epoch": 1}, paths[1])
    weight.zero_()
    plugin.remove_checkpoint(paths[0])
    assert [path.exists() for path in paths] == [True, False, False]
    gate.set()
    plugin.teardown()
    assert [path.exists() for path in paths] == [False, True, False]
    assert torch.equal(plugin.load_checkpoint(paths[1])["w"], expected)
    plugin.save_checkpoint({"w": weight, "epoch": 2}, paths[2])  # after the teardown
    plugin.teardown()
    assert copy.deepcopy(plugin).load_checkpoint(paths[2])["epoch"] == 2


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_failure_in_the_background_ends_the_training(tmp_path, monkeypatch, epochs):
    """At the next save, or at the teardown."""

    def refuse(*_):
        raise StorageError(28, "no room for the link")

    monkeypatch.setattr(link_saver, "write_link", refuse)
    saver = ModelCheckpoint(tmp_path / "saved", "{epoch}", save_top_k=-1)
    with pytest.raises(StorageError, match="no room for the link"):
        fit(tmp_path, LCCheckpointIO(tmp_path / "chain", background=True), epochs, callbacks=[saver])
    assert list((tmp_path / "saved").iterdir()) == []


def test_of_a_lossy_chain_only_parameters_and_moments_are_inexact(tmp_path):
    class Named(Module):
        """With a parameter of another name, and with a buffer that nobody knows."""

        def __init__(self):
            super().__init__()
            self.theta = torch.nn.Parameter(torch.randn(9, 40))
            self.register_buffer("usage", torch.ones(40))

        def training_step(self, batch, index):
            self.usage.add_(torch.rand(40))
            return super().training_step(batch, index) + self.theta.square().mean()

    torch.manual_seed(0)
    module, plugin = Named(), LCCheckpointIO(tmp_path / "chain", policy="lc-3", newest="history")
    optimizer = module.configure_optimizers()[0][0]
    for step in range(2):
        for _ in range(2):
            optimizer.zero_grad()
            module.training_step([torch.randn(16, 8)], 0).backward()
            optimizer.step()
        checkpoint = {"state_dict": module.state_dict(), "optimizer_states": [optimizer.state_dict()]}
        plugin.save_checkpoint(checkpoint, tmp_path / f"{step}.ckpt")
    found = plugin.load_checkpoint(tmp_path / "1.ckpt")
    differ = {n for n, t in module.state_dict().items() if not torch.equal(found["state_dict"][n], t)}
    assert "theta" in differ
    assert differ <= {name for name, _ in module.named_parameters()}


def test_what_cannot_be_stored_is_named_and_leaves_nothing(tmp_path):
    plugin = LCCheckpointIO()
    with pytest.raises(ArgumentError, match="callbacks/mine"):
        plugin.save_checkpoint({"callbacks": {"mine": object()}}, tmp_path / "a.ckpt")
    with pytest.raises(ArgumentError, match="storage options"):
        plugin.save_checkpoint({}, tmp_path / "a.ckpt", storage_options={})
    with pytest.raises(ArgumentError, match="a path must be local"):
        plugin.save_checkpoint({}, "s3://bucket/a.ckpt")
    with pytest.raises(ArgumentError, match="which need chain="):
        LCCheckpointIO(policy="lc-2")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StorageError):
        plugin.load_checkpoint(tmp_path / "a.ckpt")
    plugin.remove_checkpoint(tmp_path / "a.ckpt")


class Activation(enum.Enum):
    RELU = "relu"


class Size(NamedTuple):
    width: int
    depth: int


PARAMETERS = {
    "width": 16, "activation": Activation.RELU, "size": Size(3, 4), "started": datetime.date(2026, 11, 22),
    "data": pathlib.Path("data/train"), "rate": np.float64(0.1), "dtype": torch.bfloat16, "layers": {1, 2},
    "device": torch.device("cpu"), "steps": range(3), "shape": torch.Size([2, 3]), "mixed": {1: "a", "b": 2},
    "counts": collections.Counter({3: 1}), "order": collections.OrderedDict(a=1),
}  # fmt: skip


class Planned(Module):
    def __init__(self, **parameters):
        super().__init__()
        self.save_hyperparameters(parameters or PARAMETERS)
        self.steps = 0

    def training_step(self, batch, index):
        self.steps += 1
        return super().training_step(batch, index)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 3], 0.5)]


class Data(lightning.LightningDataModule):
    def __init__(self, **parameters):
        super().__init__()
        self.save_hyperparameters(parameters)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(32, 8)), batch_size=16)


class Keeping(lightning.Callback):
    def __init__(self, value):
        self.value = value

    def state_dict(self):
        return {"value": self.value}


def train(root, module, data, callbacks, epochs=2, resume=None):
    trainer = lightning.Trainer(
        default_root_dir=root, max_epochs=epochs, accelerator="cpu", plugins=[LCCheckpointIO()],
        logger=False, enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks,
    )  # fmt: skip
    trainer.fit(module, data, ckpt_path=resume)
    return trainer


def test_plain_values_in_hyperparameters_and_callbacks_come_back(tmp_path):
    saver = ModelCheckpoint(tmp_path / "saved", "{epoch}")
    data = Data(folder=pathlib.Path("x"), kind=Activation.RELU)
    callbacks = [saver, Keeping({pathlib.Path("y"): {1, 2}}), LCCheck()]
    trainer = train(tmp_path, Planned(), data, callbacks)
    found = LCCheckpointIO().load_checkpoint(saver.best_model_path)
    assert found["hyper_parameters"] == PARAMETERS
    for name, value in PARAMETERS.items():
        assert type(found["hyper_parameters"][name]).__name__ == type(value).__name__
    assert found["datamodule_hyper_parameters"] == {"folder": pathlib.Path("x"), "kind": Activation.RELU}
    assert found["callbacks"]["Keeping"] == {"value": {pathlib.Path("y"): {1, 2}}}
    assert type(found["lr_schedulers"][0]["milestones"]) is collections.Counter
    rate = trainer.optimizers[0].param_groups[0]["lr"]
    resumed = train(tmp_path, Planned(), data, callbacks, epochs=4, resume=saver.best_model_path)
    assert (rate, resumed.optimizers[0].param_groups[0]["lr"]) == (0.005, 0.0025)


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: (Planned(loss=print), Data(), []), "hyper_parameters/loss"),
        (lambda: (Planned(), Data(transform=object()), []), "datamodule_hyper_parameters/transform"),
        (lambda: (Planned(), Data(), [Keeping(object())]), "callbacks/Keeping/value"),
    ],
)
def test_what_cannot_be_stored_is_refused_before_the_first_step(tmp_path, make, place):
    module, data, callbacks = make()
    with pytest.raises(ArgumentError, match=place):
        train(tmp_path, module, data, [*callbacks, LCCheck()])
    assert module.steps == 0


def test_frozen_weights_are_saved_once(tmp_path):
    plugin = LCCheckpointIO(tmp_path / "chain", only=["state_dict/*lora*"])
    for step in range(3):
        weights = {"base": torch.ones(500), "layer.lora": torch.full((5,), float(step))}
        plugin.save_checkpoint({"global_step": step, "state_dict": weights}, tmp_path / f"{step}.ckpt")
    plugin.teardown()
    state = plugin.load_checkpoint(tmp_path / "2.ckpt")
    assert (state["global_step"], state["state_dict"]["layer.lora"].tolist()) == (2, [2.0] * 5)
    assert torch.equal(state["state_dict"]["base"], torch.ones(500))
    assert lccodec.Chain(tmp_path / "chain").steps == [0, 1, 2]
    wrong = LCCheckpointIO(tmp_path / "other", only=["lora"])
    with pytest.raises(ArgumentError, match="only: no array is named"):
        wrong.save_checkpoint({"state_dict": {"w": torch.ones(3)}}, tmp_path / "a.ckpt")


def is_same(left, right):
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(is_same(left[key], right[key]) for key in left)
    return all(map(is_same, left, right)) if isinstance(left, list) else left == right


class Scored(Module):
    """With weights that are worth a loss, and a score that is best in the second of its epochs."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 900), torch.nn.Linear(900, 1))

    def on_train_epoch_end(self):
        self.log("score", float(self.current_epoch == 1))


@pytest.mark.parametrize("background", [False, True])
def test_best_and_last_are_the_same_step_and_both_exact(tmp_path, background):
    """What is uploaded is whole, and a chain that keeps two steps harms no path."""
    keep = lccodec.Keep(latest=2)
    plugin = LCCheckpointIO(
        tmp_path / "chain", "balanced", keep=keep, keyframe_every=1, background=background
    )
    best = ModelCheckpoint(tmp_path / "saved", "{epoch}", monitor="score", mode="max", save_last=True)
    saved, usual = {}, plugin.save_checkpoint

    def save(checkpoint, path, storage_options=None):
        saved[str(path)] = copy.deepcopy(checkpoint)
        usual(checkpoint, path, storage_options)

    plugin.save_checkpoint = save
    lightning.seed_everything(1, verbose=False)
    rows = torch.utils.data.TensorDataset(torch.randn(32, 8))
    trainer = lightning.Trainer(
        default_root_dir=tmp_path, max_epochs=5, accelerator="cpu", plugins=[plugin], callbacks=[best],
        logger=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Scored(), torch.utils.data.DataLoader(rows, batch_size=16))
    steps = lccodec.Chain(tmp_path / "chain").steps
    assert set(steps) <= {2, 4, 6, 8, 10}
    shutil.rmtree(tmp_path / "chain")
    bucket = tmp_path / "bucket"
    shutil.copytree(tmp_path / "saved", bucket)
    for path in (best.best_model_path, best.last_model_path):
        found = LCCheckpointIO().load_checkpoint(bucket / pathlib.Path(path).name)
        assert is_same(found, saved[path])

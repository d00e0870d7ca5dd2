"""A Trainer's run that resumes from packed checkpoints ends where an uninterrupted one does."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import lccodec
from lccodec.adapters import chains as saver
from lccodec.adapters.chains import PACKED
from lccodec.adapters.transformers import LCCallback, unpacked
from lccodec.errors import StorageError


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")


def trainer(root, steps, callback=None, **options):
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=1, n_head=2, n_embd=16, n_positions=16, vocab_size=32, bos_token_id=0, eos_token_id=0
    )
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(0, 32, (40, 16), generator=generator)
    arguments = TrainingArguments(
        str(root), max_steps=steps, per_device_train_batch_size=4, save_steps=4, learning_rate=1e-2,
        use_cpu=True, report_to="none", disable_tqdm=True, logging_strategy="no", seed=3,
        dataloader_pin_memory=False, **options,
    )  # fmt: skip
    rows = [{"input_ids": row, "labels": row} for row in rows]
    callbacks = [callback] if callback else []
    return Trainer(
        GPT2LMHeadModel(config), arguments, train_dataset=rows, eval_dataset=rows, callbacks=callbacks
    )


class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **_):  # noqa: ARG002
        if state.global_step == 11:
            raise RuntimeError("the power is out")


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    run = trainer(tmp_path_factory.mktemp("whole"), 14, save_strategy="no")
    run.train()
    return {name: tensor.clone() for name, tensor in run.model.state_dict().items()}


@pytest.mark.slow
@pytest.mark.parametrize("chained", [False, True, "background"])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(tmp_path, expected, chained):
    chain = tmp_path / "chain" if chained else None
    callback = LCCallback(chain, background=chained == "background")
    run = trainer(tmp_path / "run", 14, callback, save_total_limit=1)
    run.add_callback(Stop())
    with pytest.raises(RuntimeError, match="the power is out"):
        run.train()
    callback._saver.settle()
    (folder,) = (tmp_path / "run").iterdir()
    names = {path.name for path in folder.iterdir()}
    assert (folder.name, PACKED in names) == ("checkpoint-8", True)
    assert not names & {"model.safetensors", "optimizer.pt"}

    callback._saver.close()
    resumed = trainer(tmp_path / "run", 14, LCCallback(chain, background=chained == "background"))
    resumed.train(resume_from_checkpoint=unpacked(folder))
    found = resumed.model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    if chained:
        with lccodec.Chain(chain) as kept:
            assert kept.info(12).parent == 8
            assert kept.steps == [8, 12, 14]  # step 4 went with its folder


class Look(TrainerCallback):
    """Notes which files of the first checkpoint are there."""

    def on_step_end(self, args, state, control, **_):  # noqa: ARG002
        self.seen = {path.name for path in Path(args.output_dir, "checkpoint-4").glob("*")}


def test_what_the_trainer_loads_at_the_end_stays_whole_until_then(tmp_path):
    best = {"eval_strategy": "steps", "eval_steps": 4, "load_best_model_at_end": True}
    run = trainer(tmp_path, 8, LCCallback(), **best)
    run.add_callback(look := Look())
    run.train()
    assert {PACKED, "model.safetensors", "optimizer.pt"} <= look.seen
    for step in (4, 8):
        names = {path.name for path in (tmp_path / f"checkpoint-{step}").iterdir()}
        assert PACKED in names
        assert not names & {"model.safetensors", "optimizer.pt"}
    found = load_file(
        Path(unpacked(tmp_path / f"checkpoint-{run.state.best_global_step}"), "model.safetensors")
    )
    assert torch.equal(run.model.transformer.wpe.weight, found["transformer.wpe.weight"])


def test_libraries_tell_how_to_load_a_packed_folder(tmp_path):
    trainer(tmp_path, 4, LCCallback()).train()
    folder = tmp_path / "checkpoint-4"
    with pytest.raises(OSError, match=r"lccodec\.adapters\.transformers\.unpacked\(folder\)"):
        GPT2LMHeadModel.from_pretrained(folder)
    with pytest.raises(OSError, match=r"lccodec\.adapters\.transformers\.unpacked\(folder\)"):
        trainer(tmp_path, 4).train(resume_from_checkpoint=True)
    assert "lm_head.weight" in GPT2LMHeadModel.from_pretrained(unpacked(folder)).state_dict()
    assert not (folder / "model.safetensors.index.json").exists()


@pytest.mark.parametrize(
    ("options", "steps"), [({}, [6, 8]), ({"keep": lccodec.Keep(every=2)}, [2, 4, 6, 8])]
)
def test_a_chain_keeps_as_many_steps_as_the_trainer(tmp_path, options, steps):
    run = trainer(tmp_path / "run", 8, LCCallback(tmp_path / "chain", **options), save_total_limit=2)
    run.args.save_steps = 2
    run.train()
    assert lccodec.Chain(tmp_path / "chain").steps == steps


def test_a_folder_stays_whole_until_its_checkpoint_is_there(tmp_path, monkeypatch):
    callback, seen = LCCallback(tmp_path / "chain", background=True), []
    write = saver.write_link

    def look(chain, step, path):
        seen.append({name for name in ("model.safetensors", "optimizer.pt") if (path.parent / name).exists()})
        return write(chain, step, path)

    monkeypatch.setattr(saver, "write_link", look)
    trainer(tmp_path / "run", 8, callback).train()
    assert seen == 2 * [{"model.safetensors", "optimizer.pt"}]
    for step in (4, 8):
        names = {path.name for path in (tmp_path / "run" / f"checkpoint-{step}").iterdir()}
        assert PACKED in names
        assert not names & {"model.safetensors", "optimizer.pt"}


@pytest.mark.parametrize("last", [4, 6])
def test_a_failure_in_the_background_ends_the_training(tmp_path, monkeypatch, last):
    """Before the next save, or at the end. The folder stays as the trainer wrote it."""

    def refuse(*_):
        raise StorageError(28, "no room for the link")

    monkeypatch.setattr(saver, "write_link", refuse)
    run = trainer(tmp_path / "run", last, LCCallback(tmp_path / "chain", background=True))
    with pytest.raises(StorageError, match="no room for the link"):
        run.train()
    (folder,) = (tmp_path / "run").iterdir()
    assert {"model.safetensors", "optimizer.pt"} <= {path.name for path in folder.iterdir()}
    assert not (folder / PACKED).exists()


class Gated(GPT2LMHeadModel):
    """With a parameter and a buffer whose names tell nothing."""

    def __init__(self, config):
        super().__init__(config)
        self.gate = torch.nn.Parameter(torch.randn(300))
        self.register_buffer("usage", torch.zeros(300))

    def forward(self, *args, **kwargs):
        self.usage.add_(torch.rand(300))
        output = super().forward(*args, **kwargs)
        output.loss = output.loss + (self.gate - 1).square().mean()
        return output


def test_the_model_tells_what_is_trained(tmp_path):
    """Also where the optimizer has nothing of the form of its parameters."""
    callback, options = (
        LCCallback(tmp_path / "chain", policy="lc-3", newest="history"),
        {"remove_unused_columns": False},
    )
    run = trainer(tmp_path / "run", 12, callback, optim="sgd", **options)
    torch.manual_seed(0)
    run.model = Gated(run.model.config)
    run.model_wrapped = run.model
    run.train()
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    found = load_file(Path(unpacked(tmp_path / "run" / "checkpoint-12")) / "model.safetensors")
    assert torch.equal(found["usage"], before["usage"])
    differ = {name for name in found if not torch.equal(found[name], before[name])}
    assert "gate" in differ
    assert "transformer.h.0.attn.c_attn.weight" in differ

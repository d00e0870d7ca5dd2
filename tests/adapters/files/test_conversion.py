"""A file of one framework becomes one of the other, and the same file again, bit for bit."""

import json
import re

import jax
import numpy as np
import pytest
import torch
from flax import nnx

import lccodec
from lccodec.adapters import jax as jax_adapter
from lccodec.adapters import npz, safetensors
from lccodec.adapters import torch as torch_adapter
from lccodec.exchange import adam_to_flax, to_flax

from ...support.commands import run, run_json
from ...support.networks import NETWORKS, bits, flax_adam, flax_state, torch_adam, torch_state, torch_step

METADATA = {"format": "pt", "author": "me"}


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    """A file of a trained torch network, an untrained Flax state, the rules, and both states."""
    directory, network = tmp_path_factory.mktemp("gpt"), NETWORKS["gpt"]
    ours, theirs = network.both()
    adam, optax = torch_adam(ours), flax_adam(theirs)
    torch_step(ours, adam, network.batch(np.random.default_rng(0)))
    state = {"model": dict(ours.state_dict()), "optimizer": adam.state_dict(), "epoch": 3}
    torch_adapter.save_file(state, directory / "torch.lcc.h5", METADATA)
    like = {"model": flax_state(theirs), "optimizer": flax_state(optax)}
    jax_adapter.save_file(like, directory / "like.lcc.h5")
    rules = [{key: value for key, value in vars(rule).items() if value is not None} for rule in network.rules]
    (directory / "rules.json").write_text(json.dumps({"rule": rules}))
    expected = {
        "model": to_flax(torch_state(ours), network.rules, like["model"]),
        "optimizer": adam_to_flax(torch_state(adam), None, network.rules, like["optimizer"]),
    }
    return directory, ours, adam, expected


def test_a_network_and_its_optimizer_to_flax_and_back(gpt, tmp_path):
    directory, ours, adam, expected = gpt
    source, flax, back = directory / "torch.lcc.h5", tmp_path / "flax.lcc.h5", tmp_path / "back.lcc.h5"
    words = ["--rules", directory / "rules.json", "--model", "model", "--optimizer", "optimizer"]
    there = ["--from", "torch", "--to", "flax", "--like", directory / "like.lcc.h5"]
    stdout, stderr = run("convert", source, flax, *there, *words)
    assert stdout.endswith("flax.lcc.h5\n")
    assert stderr == "lccodec: note: only the model and its optimizer, left out: epoch\n"
    found = jax_adapter.load_file(flax)
    assert bits(found) == bits(expected)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    with lccodec.open(flax) as file:
        assert METADATA.items() <= file.metadata().items()
    _, theirs = NETWORKS["gpt"].both()
    jax_adapter.load_into({"model": nnx.state(theirs), "optimizer": nnx.state(flax_adam(theirs))}, found)

    document = run_json("convert", flax, back, "--from", "flax", "--to", "torch", "--like", source, *words)
    assert document["left_out"] == []
    state = torch_adapter.load_file(back)
    assert bits(jax.tree.map(_numpy, state["model"])) == bits(torch_state(ours))
    assert bits(jax.tree.map(_numpy, state["optimizer"])) == bits(torch_state(adam))
    # It loads where it came from.
    resumed, _ = NETWORKS["gpt"].both()
    torch_adapter.load_into({"model": resumed, "optimizer": torch_adam(resumed)}, state)
    assert torch.equal(resumed.position, ours.position)


def _numpy(leaf):
    return leaf.numpy() if isinstance(leaf, torch.Tensor) else leaf


def test_a_whole_file_through_safetensors(tmp_path):
    ours, theirs = torch.nn.Linear(3, 2), nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    safetensors.save_file(torch_state(ours), tmp_path / "a.safetensors")
    (tmp_path / "rules.toml").write_text(
        '[[rule]]\ntorch = "**.weight"\nflax = "**/kernel"\nlayout = "linear"\n'
    )
    run(
        "convert",
        tmp_path / "a.safetensors",
        tmp_path / "b.npz",
        "--from",
        "torch",
        "--to",
        "flax",
        "--rules",
        tmp_path / "rules.toml",
    )
    nnx.update(theirs, npz.load_file(tmp_path / "b.npz"))
    assert np.array_equal(theirs.kernel[...], ours.weight.detach().numpy().T)
    run("convert", tmp_path / "b.npz", tmp_path / "c.safetensors", "--from", "flax", "--to", "torch")
    assert (tmp_path / "c.safetensors").read_bytes() == (tmp_path / "a.safetensors").read_bytes()


def test_what_does_not_fit_leaves_no_file(gpt, tmp_path):
    directory, *_ = gpt
    words = ["--from", "torch", "--to", "flax", "--model", "model"]
    stderr = run("convert", directory / "torch.lcc.h5", tmp_path / "b.lcc.h5", *words, code=2)[1]
    assert stderr.count("\n") == 1
    assert "'position' (float32 [16, 32]) matches no rule" in stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "torch"], "needs --from one framework and --to the other"),
        (["--from", "torch", "--to", "torch"], "needs --from one framework and --to the other"),
        (["--rules", "rules.json"], "needs --from one framework and --to the other"),
        (["--from", "torch", "--to", "flax", "--optimizer", "o"], "needs one for the model"),
        (["--from", "torch", "--to", "flax", "--model", "modell"], "the state has no entry 'modell'"),
        (
            ["--from", "torch", "--to", "flax", "--like", "torch.lcc.h5", "--model", "epoch"],
            "'' .* matches no rule",
        ),
    ],
)
def test_options_that_do_not_go_together(gpt, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(gpt[0])
    stderr = run("convert", "torch.lcc.h5", tmp_path / "b.lcc.h5", *words, code=2)[1]
    assert re.search(message, stderr)
    assert not list(tmp_path.iterdir())


def test_float8_is_refused(tmp_path):
    state = {"norm.weight": torch.ones(3).to(torch.float8_e4m3fn)}
    torch_adapter.save_file(state, tmp_path / "a.lcc.h5")
    stderr = run(
        "convert", tmp_path / "a.lcc.h5", tmp_path / "b.lcc.h5", "--from", "torch", "--to", "flax", code=2
    )[1]
    assert "arrays of float8_e4m3fn are stored as bits, which no rule can lay out" in stderr
    assert not (tmp_path / "b.lcc.h5").exists()

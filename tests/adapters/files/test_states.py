"""A file of one framework becomes one of the other, and the same file again, bit for bit."""

import json
import re

import jax
import numpy as np
import optax
import pytest
import torch
from flax import nnx

import lccodec
from lccodec.adapters import jax as jax_adapter
from lccodec.adapters import npz, safetensors
from lccodec.adapters import torch as torch_adapter
from lccodec.exchange import adam_to_flax, load_rules, to_flax

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
    assert stderr == "lccodec: note: only the model and its optimizer are converted; left out: epoch\n"
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
        (["--from", "torch"], "needs --from and --to, and they must differ"),
        (["--from", "torch", "--to", "torch"], "needs --from and --to, and they must differ"),
        (["--rules", "rules.json"], "needs --from and --to, and they must differ"),
        (["--from", "torch", "--to", "flax", "--optimizer", "o"], "needs the model's entry"),
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


def test_a_training_state_needs_the_names_of_its_entries(gpt, tmp_path):
    """Not a list of all that no rule maps: the settings of an optimizer are many."""
    adam = nnx.Optimizer(NETWORKS["gpt"].both()[1], optax.adamw(1e-3), wrt=nnx.Param)
    jax_adapter.save_file({"net": {"w": np.ones(3)}, "opt": nnx.state(adam)}, tmp_path / "flax.lcc.h5")
    words = ["--from", "torch", "--to", "flax"], ["--from", "flax", "--to", "torch"]
    for file, each in zip((gpt[0] / "torch.lcc.h5", tmp_path / "flax.lcc.h5"), words, strict=True):
        stderr = run("convert", file, tmp_path / "b.lcc.h5", *each, code=2)[1]
        assert stderr.count("\n") == 1
        name, others = ("'optimizer'", "'model', 'epoch'") if file.name[0] == "t" else ("'opt'", "'net'")
        assert f"entry {name} is the state of an optimizer: name the module's entry with --model" in stderr
        assert f"(the others are {others}), and this one with --optimizer" in stderr


def test_float8_is_refused(tmp_path):
    state = {"norm.weight": torch.ones(3).to(torch.float8_e4m3fn)}
    torch_adapter.save_file(state, tmp_path / "a.lcc.h5")
    stderr = run(
        "convert", tmp_path / "a.lcc.h5", tmp_path / "b.lcc.h5", "--from", "torch", "--to", "flax", code=2
    )[1]
    assert "arrays of float8_e4m3fn are stored as bits, which no rule can lay out" in stderr
    assert not (tmp_path / "b.lcc.h5").exists()


class Images(torch.nn.Module):
    """A convolution, a flattened image and a Linear; Flax flattens it in another order."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = torch.nn.Conv2d(1, 4, 3), torch.nn.Linear(4 * 6 * 6, 5)
        self.norm = torch.nn.BatchNorm1d(5)

    def forward(self, x):
        return self.norm(self.fc(torch.flatten(self.conv(x), 1)))


class FlaxImages(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.conv = nnx.Conv(1, 4, (3, 3), padding="VALID", rngs=rngs)
        self.fc = nnx.Linear(144, 5, rngs=rngs)
        self.norm = nnx.BatchNorm(5, use_running_average=True, rngs=rngs)

    def __call__(self, x):
        x = self.conv(x)
        return self.norm(self.fc(x.reshape(x.shape[0], -1)))


@pytest.fixture
def images(tmp_path):
    """Files of a trained torch network with an ordinary Adam, and of the same network in Flax."""
    ours, theirs = Images(), FlaxImages()
    adam = torch.optim.Adam(ours.parameters())
    ours(torch.randn(3, 1, 8, 8)).square().sum().backward()
    adam.step()
    state = {"model": ours.state_dict(), "optimizer": adam.state_dict()}
    torch.save(state, tmp_path / "torch.pt")
    like = {"model": flax_state(theirs), "optimizer": flax_state(flax_adam(theirs))}
    jax_adapter.save_file(like, tmp_path / "like.lcc.h5")
    return tmp_path, ours.eval(), theirs, adam


RULE = '[[rule]]\ntorch = "fc.weight"\nflax = "fc/kernel"\nlayout = "flattened"\nsize = 4\n'
WORDS = ["--from", "torch", "--to", "flax", "--model", "model"]


def test_a_layout_that_cannot_be_known_is_an_error_that_names_the_rule(images):
    directory, ours, theirs, _ = images
    words = [directory / "torch.pt", directory / "flax.lcc.h5", *WORDS, "--like", directory / "like.lcc.h5"]
    _, stderr = run("convert", *words, code=2)
    assert '[[rule]] torch = "fc.weight" flax = "fc/kernel" layout = "flattened" size = 4' in stderr
    (directory / "rules.toml").write_text(RULE)
    run("convert", *words, "--rules", directory / "rules.toml")
    nnx.update(theirs, jax_adapter.load_file(directory / "flax.lcc.h5")["model"])
    x = np.random.default_rng(0).normal(size=(2, 1, 8, 8)).astype(np.float32)
    expected = ours(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(theirs(x.transpose(0, 2, 3, 1)), expected, rtol=1e-4, atol=1e-5)


def test_an_ordinary_adam_takes_the_names_of_the_model(images):
    directory, ours, _, adam = images
    (directory / "rules.toml").write_text(RULE)
    words = ["--rules", directory / "rules.toml", "--optimizer", "optimizer"]
    source, flax, like = directory / "torch.pt", directory / "flax.lcc.h5", directory / "like.lcc.h5"
    _, stderr = run("convert", source, flax, *WORDS, *words, "--like", like)
    assert "'optimizer' has no names of parameters: they are taken to be those of 'model'" in stderr
    names = [name for name, _ in ours.named_parameters()]
    rules = load_rules(directory / "rules.toml")
    expected = adam_to_flax(torch_state(adam), names, rules, jax_adapter.load_file(like)["optimizer"])
    assert bits(jax_adapter.load_file(flax)["optimizer"]) == bits(expected)
    back = directory / "back.lcc.h5"
    run(
        "convert", flax, back, "--from", "flax", "--to", "torch", "--model", "model", *words, "--like", source
    )
    assert bits(torch_adapter.load_file(back)["optimizer"]["state"]) == bits(adam.state_dict()["state"])


@pytest.mark.parametrize("parameters", ["some", "reversed"])
def test_an_adam_of_other_parameters_is_refused(images, parameters):
    directory, ours, _, _ = images
    chosen = list(ours.parameters())
    adam = torch.optim.Adam(chosen[1:] if parameters == "some" else chosen[::-1])
    adam.step()
    torch.save({"model": ours.state_dict(), "optimizer": adam.state_dict()}, directory / "torch.pt")
    (directory / "rules.toml").write_text(RULE)
    words = [
        "--rules",
        directory / "rules.toml",
        "--optimizer",
        "optimizer",
        "--like",
        directory / "like.lcc.h5",
    ]
    _, stderr = run("convert", directory / "torch.pt", directory / "x.lcc.h5", *WORDS, *words, code=2)
    assert "which have no names, are not those of 'model'" in stderr
    assert "module.named_parameters()" in stderr

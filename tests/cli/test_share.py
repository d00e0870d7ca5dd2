"""The verbs bundle and unbundle, and the verbs that take a bundle as they take a chain.

The verbs publish and pull: what engines read, from the shell.
"""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zstandard  # noqa: F401 - versions are compressed with it

import lccodec
from lccodec import Chain
from lccodec.adapters import npz

from ..support.commands import run, run_json, step_file
from ..support.damage import flip
from ..support.models import bytes_of, read_model, small_model, trained, write_model
from ..support.walks import save_all
from ..support.weight_versions import pulled


@pytest.fixture
def bundled(chain, tmp_path):
    run("bundle", chain, "-o", tmp_path / "run.lcc")
    return tmp_path / "run.lcc"


def test_bundle_and_unbundle(chain, tmp_path):
    path = tmp_path / "run.lcc"
    stdout, _ = run("bundle", chain, "-o", path)
    assert stdout == f"{path}: 3 checkpoints, steps 10 to 30, {path.stat().st_size:,} bytes\n"
    document = run_json("bundle", chain, "-o", path, "--step", 10)
    root = path.read_bytes()[-32:].hex()
    assert document == {
        "directory": str(chain),
        "bundle": str(path),
        "bytes": path.stat().st_size,
        "root": root,
        "steps": [10],
        "exact": False,
    }
    run("bundle", chain, "-o", path)
    stdout, _ = run("unbundle", path, tmp_path / "back")
    assert stdout == f"{tmp_path / 'back'}: 3 checkpoints, steps 10 to 30\n"
    assert run_json("unbundle", path, tmp_path / "back")["steps"] == [10, 20, 30]
    assert step_file(tmp_path / "back", 20).read_bytes() == step_file(chain, 20).read_bytes()


def test_the_exact_file_is_told(tmp_path):
    with lccodec.Chain(tmp_path / "run", newest="exact") as chain:
        chain.save(1, {"w": np.ones(3)})
    stdout, _ = run("bundle", tmp_path / "run", "-o", tmp_path / "run.lcc")
    assert "1 checkpoint, step 1, the exact file, " in stdout
    assert run_json("ls", tmp_path / "run.lcc")["exact"]["step"] == 1
    for path in ("run", "run.lcc"):
        assert run_json("info", tmp_path / path)["exact"]
    assert run_json("restore", tmp_path / "run.lcc", "-o", tmp_path / "a.npz")["exact"]
    assert not run_json("restore", tmp_path / "run.lcc", "-o", tmp_path / "a.npz", "--history")["exact"]


def test_a_bundle_is_shown_as_the_chain_is(chain, bundled, tmp_path):
    for words in (
        ("ls",),
        ("info", "--step", 20),
        ("info",),
        ("show", "model/weight"),
        ("show", "model/weight", "--step", 10),
        ("show", "note"),
        ("diff", 10, 30),
    ):
        verb, *rest = words
        of_chain, of_bundle = run(verb, chain, *rest)[0], run(verb, bundled, *rest)[0]
        assert of_bundle == of_chain
    run("restore", chain, "--step", 20, "-o", tmp_path / "a.npz", "--key", "model")
    run("restore", bundled, "--step", 20, "-o", tmp_path / "b.npz", "--key", "model")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    run("convert", bundled, "--step", 20, tmp_path / "c.lcc.h5")
    weight = npz.load_file(tmp_path / "a.npz")["model/weight"]
    with lccodec.open(tmp_path / "c.lcc.h5") as file:
        np.testing.assert_array_equal(file.get("model/weight"), weight)


def test_check(bundled):
    assert run("check", bundled, "--deep")[0] == f"{bundled}: sound\n"
    flip(bundled, 600)
    assert "000000000010.lcc.h5" in run("check", bundled, code=1)[0]


def test_what_is_not_a_bundle(chain, bundled, tmp_path):
    npz.save_file({"x": np.ones(2)}, tmp_path / "a.npz")
    assert "must be a directory or a bundle" in run("ls", tmp_path / "a.npz", code=2)[1]
    assert "not a bundle" in run("unbundle", tmp_path / "a.npz", tmp_path / "new", code=1)[1]
    assert "has no step 15; the nearest is" in run("info", bundled, "--step", 15, code=1)[1]
    assert "not a directory" in run("save", bundled, tmp_path / "a.npz", code=1)[1]
    assert step_file(chain, 10).unlink() is None
    run("unbundle", bundled, chain)  # adds what is missing
    assert run_json("check", chain)["sound"]
    _, stderr = run("bundle", chain, "-o", step_file(chain, 10), code=2)
    assert "is a checkpoint of a chain" in stderr


STATES = [small_model()]
for _seed in range(1, 4):
    STATES.append(trained(STATES[-1], _seed))


def save(directory: Path, *steps: int) -> None:
    with Chain(directory, "lossless") as chain:
        for step in steps:
            chain.save(step, {"model": STATES[step]})


def test_publish(tmp_path: Path) -> None:
    chain, output = tmp_path / "run", tmp_path / "out"
    save(chain, 0, 1)
    words = ("publish", chain, output, "--as", "weight-versions", "--model", "model")
    document = run_json(*words, "--start", 0, "--encoding", "overwrite")
    assert document == {
        "form": "weight-versions",
        "version": 1,
        "step": 1,
        "base": 0,
        "nbytes": sum(path.stat().st_size for path in (output / "weight_v000001").iterdir()),
    }
    assert run(*words) == ("", "lccodec: note: the newest step is published\n")
    save(chain, 2)
    stdout, _ = run(*words)
    assert stdout.startswith(f"{output}/weight_v000002: step 2, on version 1, ")
    write_model(tmp_path / "like", STATES[0])
    stdout, _ = run(*words, "--full", "--like", tmp_path / "like")
    assert stdout.startswith(f"{output}/weight_v000003: step 2, full, ")
    for version, step in enumerate([1, 2, 2], 1):
        assert pulled(output, bytes_of(STATES[0]), version) == bytes_of(STATES[step])


def test_pull(tmp_path: Path) -> None:
    chain, model = tmp_path / "run", tmp_path / "local"
    save(chain, 0, 1)
    write_model(model, STATES[0])
    words = ("pull", chain, model, "--model", "model")
    assert run(*words, "--start", 0)[0] == f"{model}: step 1, 3 tensors in 1 files\n"
    assert run(*words)[0] == f"{model}: step 1, as it was\n"
    assert read_model(model) == bytes_of(STATES[1])
    assert run_json(*words, "--step", 0)["step"] == 0
    assert read_model(model) == bytes_of(STATES[0])
    run("pull", tmp_path / "nothing", model, code=1)
    run(*words, "--step", 7, code=1)


# A job in the background of a shell ignores the signal, and so do its children.
INTERRUPTIBLE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("lccodec", run_name="__main__", alter_sys=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["publish", "pull"])
def test_follow(tmp_path: Path, verb: str) -> None:
    chain, output = tmp_path / "run", tmp_path / "out"
    save(chain, 0)
    write_model(output, STATES[0])
    more = ["--as", "weight-versions"] if verb == "publish" else []
    command = [
        sys.executable,
        "-c",
        INTERRUPTIBLE,
        verb,
        chain,
        output,
        "--model",
        "model",
        "--follow",
        *more,
    ]
    process = subprocess.Popen(
        [*map(str, command), "--start", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for step in (1, 2, 3):
        save(chain, step)
        assert f"step {step}" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    process.communicate()
    found = read_model(output) if verb == "pull" else pulled(output, bytes_of(STATES[0]), 3)
    assert found == bytes_of(STATES[3])


@pytest.mark.parametrize("start", [(), ("--start", 0)])
def test_a_model_that_is_mistyped(tmp_path: Path, start: tuple[str, ...]) -> None:
    states = [{"model": {"w": np.full(50, step, "f4")}} for step in range(2)]
    with Chain(tmp_path / "run", "lossless") as chain:
        save_all(chain, states)
    write_model(tmp_path / "local", states[0]["model"])
    pull = ("pull", tmp_path / "run", tmp_path / "local", *start)
    form = ("--as", "weight-versions", "--like", tmp_path / "local", *start)
    for words in (pull, ("publish", tmp_path / "run", tmp_path / "out", *form)):
        told = run(*words, "--model", "modle", code=2)[1]
        assert "the state has no 'modle' (is it 'model'?)" in told
    assert "has no tensor of the state, such as 'model/w': prefix=, or --model" in run(*words, code=2)[1]

"""The verbs publish and pull: what engines read, from the shell."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zstandard  # noqa: F401 - versions are compressed with it

from lccodec import Chain

from ...support.commands import run, run_json
from ...support.models import bytes_of, read_model, small_model, trained, write_model
from ...support.weight_versions import pulled

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
        for step, state in enumerate(states):
            chain.save(step, state)
    write_model(tmp_path / "local", states[0]["model"])
    pull = ("pull", tmp_path / "run", tmp_path / "local", *start)
    form = ("--as", "weight-versions", "--like", tmp_path / "local", *start)
    for words in (pull, ("publish", tmp_path / "run", tmp_path / "out", *form)):
        told = run(*words, "--model", "modle", code=2)[1]
        assert "the state has no 'modle' (is it 'model'?)" in told
    assert "has no tensor of the state, such as 'model/w': prefix=, or --model" in run(*words, code=2)[1]

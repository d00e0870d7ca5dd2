"""The command ``lccodec``, run in this process and in another, and the chain it is run on."""

import inspect
import json
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from lccodec.cli.program import program

# Before 8.2 click's runner had to be told to keep the two streams apart.
SEPARATE = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}


def run(*words, code=0):
    """Run a verb; return its standard output and standard error."""
    done = CliRunner(**SEPARATE).invoke(program, [str(word) for word in words])
    assert done.exit_code == code, (done.output, done.exception)
    assert "Traceback" not in done.stdout + done.stderr
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.stdout, done.stderr


def run_json(*words, code=0):
    stdout, _ = run(*words, "--json", code=code)
    return json.loads(stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def state(step):
    weight = np.random.default_rng(1).normal(size=(40, 50)).astype(np.float32)
    weight[:step] += np.float32(0.001)
    return {
        "model": {"weight": weight, "bias": np.ones(5)},
        "step": step,
        "lr": 0.1,
        "note": "text",
        "key": b"a",
    }


def step_file(chain, step):
    return chain / f"{step:012d}.lcc.h5"


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


#: The program, but it does not wait for a chain that another process saves to.
IMPATIENT = (
    "-c",
    "from lccodec.chain.store import claim; from lccodec.__main__ import main\n"
    "claim._SECONDS_TO_WAIT = 0; main()",
)


def command(*words, program=("-m", "lccodec"), **options):
    return subprocess.run(
        [sys.executable, *program, *map(str, words)], capture_output=True, check=False, **options
    )

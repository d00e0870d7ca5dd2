"""Errors of every verb are one line, and one document with --json; exit codes; closed streams.

The verbs that take long show how far they are.

``python -m lccodec`` is the command, and names the extra that is missing.
"""

import os
import re
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

import lccodec
from lccodec.adapters import npz
from lccodec.cli import render

from ..support.checkpoints import damage_array
from ..support.commands import command, run, run_json, step_file
from ..support.programs import run_program

# The command, its exit code, the error's type, the start of its rule, and what its line says.
ERRORS = {
    "no directory": ("ls {tmp}/none", 2, "BadParameter", None, "does not exist"),
    "a file for a directory": ("ls {tmp}/a.pt", 2, "BadParameter", None, "must be a directory or a bundle"),
    "a directory for a file": (
        "save {tmp}/new {chain}",
        2,
        "ArgumentError",
        None,
        "is already a chain",
    ),
    "unknown verb": ("lsx", 2, "NoSuchCommand|UsageError", None, "lsx"),
    "unknown option": ("ls --all", 2, "NoSuchOption", None, "see 'lccodec ls --help'"),
    "no step": ("diff {chain} 10", 2, "MissingParameter", None, "STEP"),
    "a negative step": ("info {chain} --step -1", 2, "BadParameter", None, "-1"),
    "not a checkpoint": ("info {tmp}/a.lcc.h5", 1, "FormatError|TruncatedError", "LCC-", "a.lcc.h5"),
    "an empty chain": ("info {tmp}", 1, "ChainError", None, "holds no checkpoint"),
    "unknown step": ("info {chain} --step 21", 1, "ChainError", None, "nearest is 20"),
    "unknown step of a diff": ("diff {chain} 10 11", 1, "ChainError", None, "no step 11"),
    "step of a file": (
        "info {chain}/000000000010.lcc.h5 --step 1",
        2,
        "ArgumentError",
        None,
        "a step needs a chain or a bundle",
    ),
    "unknown array": ("show {chain} model/weigth", 2, "ArgumentError", None, "is it 'model/weight'?"),
    "a container": ("show {chain} model", 2, "ArgumentError", None, "'model' is not an array"),
    "unknown key": ("restore {chain} -o {tmp}/o.npz --key modle", 2, "ArgumentError", None, "'modle'"),
    "suffix of an input": ("save {chain} {tmp}/a.bin", 2, "ArgumentError", None, "not one of .npz"),
    "suffix of an output": (
        "restore {chain} -o {tmp}/a",
        2,
        "ArgumentError",
        None,
        "not one of .npz, .safetensors, ",
    ),
    "unknown policy": ("save {chain} {tmp}/a.npz --policy x", 2, "BadParameter", None, "lc-3"),
    "a pickle": ("save {chain} {tmp}/pickled.npz", 1, "FormatError", "npz", "pickle"),
    "a broken npz": ("save {chain} {tmp}/a.npz", 1, "FormatError", "npz", "a.npz"),
    "a broken HDF5 file": ("save {chain} {tmp}/a.h5", 1, "FormatError", "hdf5", "a.h5"),
    "a broken safetensors": ("save {chain} {tmp}/a.safetensors", 1, "FormatError", "safetensors", "a.safe"),
    "no place for the output": (
        "restore {chain} -o {tmp}/no/a.npz --key model",
        1,
        "StorageError",
        None,
        "a.npz: cannot write: No such file or directory",
    ),
}


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS.keys())
def test_errors(chain, tmp_path, case):
    text, code, kind, rule, message = case
    for suffix in (".npz", ".safetensors", ".lcc.h5", ".pt", ".h5", ".bin"):
        (tmp_path / f"a{suffix}").write_bytes(b"not what it is named" * 10)
    np.savez(tmp_path / "pickled.npz", x=np.array([{}], dtype=object))
    words = text.format(chain=chain, tmp=tmp_path).split()
    stdout, stderr = run(*words, code=code)
    assert stdout == "" or re.fullmatch(r"steps, .*:\n +\d+  .*\n", stdout)  # which file was to be which
    assert stderr.startswith("lccodec: error: ")
    assert stderr.count("\n") == 1
    assert message in stderr
    error = run_json(*words, code=code)["error"]
    assert set(error) == {"type", "rule", "where", "message"}
    assert error["type"] in kind.split("|")
    assert (error["rule"] is None) == (rule is None)
    assert rule is None or error["rule"].startswith(rule)
    assert run_json("ls", chain)["totals"]["checkpoints"] == 3


def test_no_verb():
    assert "see 'lccodec --help'" in run(code=2)[1]


def test_the_help_says_a_whole_sentence_of_each_verb():
    verbs = run("--help")[0].partition("Commands:\n")[2]
    sentences = re.split(r"\n(?=  \S)", verbs.rstrip())
    assert len(sentences) > 20
    for sentence in sentences:
        assert sentence.endswith(".") and not sentence.endswith("..."), sentence


def test_a_step_that_exists(chain, tmp_path):
    npz.save_file({"x": np.ones(2)}, tmp_path / "a.npz")
    _, stderr = run("save", chain, tmp_path / "a.npz", "--step", 20, code=2)
    assert "step 20 exists already" in stderr
    _, stderr = run("save", chain, tmp_path / "a.npz", "--step", 15, code=2)
    assert "above the latest" in stderr
    assert run_json("ls", chain)["totals"]["checkpoints"] == 3


def test_a_missing_parent_and_a_damaged_file(chain, tmp_path):
    damage_array(step_file(chain, 20), "model/weight")
    error = run_json("show", chain, "model/weight", code=1)["error"]
    assert error["rule"].startswith("LCC-")
    assert "000000000020.lcc.h5" in error["where"]
    step_file(chain, 10).unlink()
    _, stderr = run("restore", chain, "-o", tmp_path / "a.npz", code=1)
    assert "its parent, step 10, is missing" in stderr


def test_an_array_of_a_dtype_that_cannot_be_stored(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array(["text"]))
    _, stderr = run("save", tmp_path / "run", tmp_path / "a.npz", code=2)
    assert "array 'x': dtype <U4" in stderr


def test_what_the_operating_system_refuses(chain, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied", "x")

    monkeypatch.setattr("lccodec.cli.listing.open_store", refuse)
    assert run("ls", chain, code=1)[1] == "lccodec: error: x: Permission denied\n"


def test_an_interrupt(chain, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("lccodec.cli.listing.open_store", interrupt)
    assert "lccodec: interrupted" in run("ls", chain, code=130)[1]


@pytest.mark.skipif(os.name != "posix", reason="pipes are closed another way")
def test_a_closed_pipe_is_no_error(chain):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "lccodec", "ls", str(chain)],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_broken_file_of_torch(chain, tmp_path):
    import torch  # noqa: F401 - it reads the file

    (tmp_path / "a.pt").write_bytes(b"not what it is named" * 10)
    assert "a.pt" in run("save", chain, tmp_path / "a.pt", code=1)[1]
    error = run_json("save", chain, tmp_path / "a.pt", code=1)["error"]
    assert (error["type"], error["rule"]) == ("FormatError", "torch.save")


@pytest.fixture
def shown(monkeypatch):
    """What each bar was told, by its label."""
    told = {}

    @contextmanager
    def progress(label):
        told[label] = []
        yield lambda done, total: told[label].append((done, total))

    monkeypatch.setattr(render, "progress", progress)
    return told


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        (["average", "run", "--last", 2, "-o", "a.lcc.h5"], {"averaging": 2, "writing": 2}),
        (["bundle", "run", "-o", "run.lcc"], {"bundling": 3}),
        (["compact", "run", "--keyframe-every", 0], {"compacting": 3}),
        (["compact", "run", "--policy", "small", "-o", "new"], {"compacting": 3}),
        (["convert", "run", "a.lcc.h5"], {"reading": 2, "writing": 2}),
        (["convert", "m.lcc.h5", "n.lcc.h5"], {"reading": 2, "writing": 2}),
        (["prune", "run", "--latest", 1, "--rewrite", "--grow"], {"pruning": 3}),
        (["restore", "run", "-o", "a.lcc.h5"], {"restoring": 2, "writing": 2}),
        (["unbundle", "given.lcc", "back"], {"unbundling": 3}),
    ],
)
def test_a_bar_ends_where_all_is_done(chain, tmp_path, monkeypatch, shown, words, labels):
    monkeypatch.chdir(tmp_path)
    lccodec.save_file(lccodec.Chain(chain).restore(), "m.lcc.h5")
    lccodec.bundle(chain, "given.lcc")
    run(*words)
    assert {label: told[-1] for label, told in shown.items()} == {
        label: (total, total) for label, total in labels.items()
    }


def test_a_bar_goes_to_standard_error_alone(chain, tmp_path, monkeypatch):
    quiet, _ = run("bundle", chain, "-o", tmp_path / "run.lcc")
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    stdout, stderr = run("bundle", chain, "-o", tmp_path / "run.lcc")
    assert stdout == quiet
    assert "bundling" in stderr


@pytest.mark.slow
def test_the_module_is_the_command(tmp_path):
    assert command("--version").stdout.decode().strip() == f"lccodec {lccodec.__version__}"
    done = command("save", tmp_path / "new", "none.npz")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("package", ["click", "rich"])
def test_without_the_extra_one_line_names_it(package):
    code = f"import sys; sys.modules[{package!r}] = None; from lccodec.__main__ import main; main()"
    done = run_program(code, code=2)
    assert done.stderr == f"lccodec: error: the command line needs {package}: pip install 'lccodec[cli]'\n"

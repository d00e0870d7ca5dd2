"""What is printed: nothing drives a terminal, a pipe gets plain text, a terminal gets a bar."""

import os
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

import lccodec
from lccodec.cli import render as tables
from lccodec.cli.program import program
from lccodec.policy.presets import POLICIES

from ..support.commands import IMPATIENT, command, run, run_json
from ..support.models import write_model

HOSTILE = "evil\x1b[2J\n[red]\u202e"
HOSTILE_SHOWN = "evil\\x1b[2J\\n[red]\\u202e"


def test_hostile_names_do_not_reach_the_terminal(tmp_path):
    with lccodec.Chain(tmp_path / "run") as chain:
        chain.save(0, {HOSTILE: np.ones(3), HOSTILE + "s": HOSTILE}, {HOSTILE: HOSTILE})
        chain.save(1, {HOSTILE: np.zeros(3), HOSTILE + "s": 1})
        chain.save(2, {HOSTILE + "2": np.zeros(3)})
    for words in (["info", "--step", 0], ["show", HOSTILE, "--step", 0], ["diff", 0, 1], ["diff", 1, 2]):
        stdout, _ = run(words[0], tmp_path / "run", *words[1:])
        assert HOSTILE_SHOWN in stdout
        assert all(character.isprintable() or character == "\n" for character in stdout)
        run_json(words[0], tmp_path / "run", *words[1:])
    _, stderr = run("show", tmp_path / "run", HOSTILE + "x", "--step", 0, code=2)
    assert all(character.isprintable() or character == "\n" for character in stderr)


@pytest.mark.slow
def test_a_pipe_gets_plain_text_of_any_width(tmp_path):
    name = "layer." * 60
    lccodec.save_file({name: np.ones(3)}, tmp_path / "a.lcc.h5")
    done = command("info", tmp_path / "a.lcc.h5", env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": "40"})
    assert done.returncode == 0
    assert name in done.stdout.decode()
    assert b"\x1b" not in done.stdout
    assert done.stderr == b""


@pytest.mark.slow
def test_a_narrow_encoding_does_not_fail(tmp_path):
    lccodec.save_file({"gewicht_ü_重み": np.ones(3)}, tmp_path / "a.lcc.h5")
    done = command("info", tmp_path / "a.lcc.h5", env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    assert done.returncode == 0
    assert b"gewicht_\xfc_\\u91cd" in done.stdout


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    with tables.progress("saving") as update:
        update(1, 2)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with tables.progress("saving") as update:
        update(1, 2)
    assert "saving" in capsys.readouterr().err


def is_printable(text):
    return all(character.isprintable() or character == "\n" for character in text)


@pytest.mark.slow
def test_no_verb_prints_a_hostile_name(tmp_path):
    """Names of arrays and files, metadata, and what is wrong with them, of every verb in turn."""
    directory = tmp_path / HOSTILE
    state = {f"{HOSTILE}.weight": np.linspace(-1, 1, 600, dtype=np.float32), HOSTILE: np.full(3, np.nan)}
    files = [tmp_path / f"{HOSTILE}{step}.npz" for step in range(5)]
    for step, file in enumerate(files):
        np.savez(file, **{name: array * (step + 1) for name, array in state.items()})
    name, (bundle, other) = (
        f"{HOSTILE}.weight",
        (tmp_path / f"{HOSTILE}{suffix}" for suffix in (".lccb", "2")),
    )
    policy = replace(POLICIES["balanced"], name=HOSTILE)
    with lccodec.Chain(directory, policy, newest="exact") as chain:
        for step in range(3):
            metadata = {HOSTILE: HOSTILE, "loss": "1"}
            chain.save(step, {key: array * (step + 1) for key, array in state.items()}, metadata)
    model = tmp_path / f"{HOSTILE}model"
    write_model(model, lccodec.Chain(directory).restore(1))
    lines = [
        ["save", directory, *files[3:]],
        ["ls", directory],
        ["info", directory],
        ["info", files[0]],
        ["show", directory, name],
        ["show", directory, name, "--over-time", "--history"],
        ["diff", directory, 0, 4],
        ["plan", other, files[0]],
        ["plan", directory, files[0]],
        ["check", directory, "--deep"],
        ["report", directory, "--tensorboard", tmp_path / f"{HOSTILE}logs"],
        ["protect", directory, "--files", 1],
        ["repair", directory, "--dry-run"],
        ["mirror", directory, tmp_path / f"{HOSTILE}m"],
        ["seal", directory],
        ["check", directory],
        ["publish", directory, tmp_path / f"{HOSTILE}out", "--as", "weight-versions"],
        ["pull", directory, model, "--start", 1],
        ["restore", directory, "-o", tmp_path / f"{HOSTILE}r.npz"],
        ["average", directory, "--last", 2, "-o", tmp_path / f"{HOSTILE}a.npz"],
        ["convert", files[0], tmp_path / f"{HOSTILE}c.lcc.h5"],
        ["fork", directory, 2, other],
        ["pin", directory, 2],
        ["unpin", directory, 2],
        ["bundle", directory, "-o", bundle],
        ["unbundle", bundle, tmp_path / f"{HOSTILE}u"],
        ["prune", directory, "--latest", 3, "--rewrite", "--dry-run"],
        ["compact", directory, "--dry-run"],
        ["rollback", directory, 3],
        ["rolled-back", directory],
    ]
    shown = {verb.name for verb in program.commands.values()} - {"demo"}
    assert {str(line[0]) for line in lines} == shown
    for line in lines:
        if "--tensorboard" in line and not find_spec("tensorboard"):
            continue
        stdout, stderr = run(*line)
        assert is_printable(stdout + stderr), line
    lines = [["save", directory, files[4], "--step", 9], ["rollback", directory, 2]]
    with lccodec.Chain(directory) as chain:
        chain.save(8, state)
        for words in (HOSTILE, "process \x1b]0;title\x07"):
            (directory / ".tmp-writer").write_text(words)
            for line in lines:
                done = command(*line, program=IMPATIENT)  # another process: this one has the claim
                assert done.returncode == 1
                assert is_printable((done.stdout + done.stderr).decode()), line
    for path in directory.glob("*.h5"):
        path.write_bytes(path.read_bytes()[:-9] + b"\x1b[2J" + path.read_bytes()[-5:])
    for line in (
        ["check", directory],
        ["ls", directory],
        ["show", directory, name],
        ["diff", directory, 0, 1],
    ):
        stdout, stderr = run(*line, code=1)
        assert is_printable(stdout + stderr), line
    for line in (["report", directory, "-o", tmp_path / HOSTILE], ["show", files[0], HOSTILE + "\x07"]):
        done = command(*line)
        assert is_printable((done.stdout + done.stderr).decode()), line

"""What is printed: nothing drives a terminal, a pipe gets plain text, a terminal gets a bar."""

import os
import sys

import numpy as np

import lccodec
from lccodec.cli import render as tables

from ..support.commands import command, run, run_json

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


def test_a_pipe_gets_plain_text_of_any_width(tmp_path):
    name = "layer." * 60
    lccodec.save_file({name: np.ones(3)}, tmp_path / "a.lcc.h5")
    done = command("info", tmp_path / "a.lcc.h5", env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": "40"})
    assert done.returncode == 0
    assert name in done.stdout.decode()
    assert b"\x1b" not in done.stdout
    assert done.stderr == b""


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

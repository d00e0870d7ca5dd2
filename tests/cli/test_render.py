"""What is printed: nothing drives a terminal, a pipe gets plain text, a terminal gets a bar.

Tables: plain where nothing has to fit, and long ones on a terminal that is wide enough.

The figures of saves as text: what is not known is a dash, never a 0.

Sparklines.
"""

import io
import math
import os
import shutil
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

import lccodec
from lccodec.chain.overview import figures_words
from lccodec.cli import render as tables
from lccodec.cli.program import program
from lccodec.cli.render import WIDTH, Table, quality_text, sparkline
from lccodec.container.manifest import UNKNOWN, Figures
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
    shown = {*program.list_commands(None)} - {"demo"}
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


def table(rows: int) -> Table:
    made = Table("name", "shape", "bytes")
    for row in range(rows):
        made.row(f"layer {row}\x1b[2J", "3 x 4", 10 ** (row % 4))
    return made


def test_plain_text() -> None:
    assert table(3).text().split("\n") == [
        "name            shape  bytes",
        "layer 0\\x1b[2J  3 x 4      1",
        "layer 1\\x1b[2J  3 x 4     10",
        "layer 2\\x1b[2J  3 x 4    100",
    ]


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """All lines fit, names are cut in their middle, and what is left out is named."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: os.terminal_size((columns, 24)))
    made = Table("name", "dtype", "shape", "role", "because", "in deltas", "about bytes", "error")
    for row in range(3):
        name = f"model/model.layers.{row}.self_attn.q_proj.very_long\x1b[2J.weight"
        why = "a parameter of the optimizer"
        made.row(name, "float32", "(4096, 4096)", "weight", why, "UniformDeadzone(0.3)", 12345, 0.25)
    headers, *lines = made.text().split("\n")
    assert (headers[:4], headers[-4:]) == ("\x1b[1m", "\x1b[0m")
    headers = headers[4:-4]
    assert all(len(line) <= columns for line in (headers, *lines))
    assert "\x1b" not in "".join([headers, *lines])
    shown = [word.strip() for word in headers.split("  ") if word]
    left_out = lines[3].removeprefix("(too narrow for: ").removesuffix(")").split(", ") if lines[3:] else []
    assert {*shown, *left_out} == set(made.headers)
    assert shown[0] == "name"
    assert "role" in shown
    for line in lines[:3]:
        assert line.startswith("model/model.lay")
        assert ".weight  " in line
    assert (columns < 200) == bool(left_out)


def test_a_step_is_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: os.terminal_size((20, 24)))
    made = Table("step", *(f"weights: error {number}" for number in range(9)))
    made.row(1_000_000, *[0.123456] * 9)
    assert made.text().split("\n")[1].strip() == "1000000"


def test_no_checkpoint():
    assert quality_text([]) == "no checkpoints"


def test_what_is_not_known_is_not_said():
    assert figures_words(UNKNOWN) == "-"
    assert figures_words(Figures(spread=2.0, movement=0.0, error=0.5)) == "error 25 % of the spread"
    assert figures_words(Figures(spread=0.0, movement=0.0, error=0.5)) == "-"
    assert figures_words(Figures(spread=2.0)) == "-"


def test_a_lag_of_nearly_nothing_has_no_sign():
    found = Figures(spread=2.0, movement=1.0, error=0.5, lag=-0.001)
    assert figures_words(found) == "error 0.5 movements, 25 % of the spread; lag 0.00 intervals"


@pytest.fixture(autouse=True)
def _output(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))


def test_heights():
    assert sparkline(range(8)) == "▁▂▃▄▅▆▇█"
    assert sparkline([8, None, 1, 1]) == "█ ▁▁"
    assert sparkline([10**i for i in range(8)], logarithmic=True) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 1, 10], logarithmic=True) == "▁▁█"
    assert sparkline([3, 3]) == "▁▁"
    assert sparkline([None, None]) == "  "
    assert sparkline([]) == ""
    assert sparkline([-1.7e308, 1.7e308]) == "▁█"
    assert sparkline([0.0, -1.0], logarithmic=True) == "▁▁"


def test_a_long_series_is_thinned_out():
    assert len(sparkline(range(1000))) == WIDTH


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_an_output_without_these_characters(monkeypatch, encoding):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    assert sparkline(range(8)) == "_.-=+*%#"


def test_numbers_that_are_not_finite():
    assert sparkline([1.0, math.nan, math.inf, 2.0]) == "▁  █"

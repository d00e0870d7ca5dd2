"""The verbs that take long show how far they are."""

from contextlib import contextmanager

import pytest

import lccodec
from lccodec.cli import render

from ...support.commands import run


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

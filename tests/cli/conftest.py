"""A chain of three steps, for every verb."""

import shutil

import pytest

import lccodec

from ..support.commands import state


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cli") / "run"
    with lccodec.Chain(directory, policy="lc-3", newest="history") as chain:
        for step in (10, 20, 30):
            chain.save(step, state(step), {"author": "me"})
    return directory


@pytest.fixture
def chain(built, tmp_path):
    """A chain of three steps that a test may damage."""
    return shutil.copytree(built, tmp_path / "run")

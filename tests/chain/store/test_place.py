"""A directory and a bundle of the same files are the same place."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import lccodec
from lccodec.chain.store.directory import is_gone, open_at, peek_at, place_path, place_steps
from lccodec.container.bundle.bundle import Bundle
from lccodec.errors import StorageError

from ...support.walks import chain_of


def test_both_say_the_same(tmp_path: Path) -> None:
    chain, _ = chain_of(tmp_path / "run")
    lccodec.bundle(chain.directory, tmp_path / "run.lcc")
    with Bundle(tmp_path / "run.lcc") as bundle:
        for place in (chain.directory, bundle):
            assert [*place_steps(place)] == chain.steps
            assert [peek_at(place, step) for step in chain.steps] == [None, 0, 1, None]
            for step, path in place_steps(place).items():
                assert path == place_path(place, step)
                assert path.name == f"{step:012d}.lcc.h5"
                with open_at(place, step) as reader:
                    assert (reader.manifest.step, reader.name) == (step, str(path))
            with pytest.raises(StorageError) as caught:
                open_at(place, 9)
            assert caught.value.errno == errno.ENOENT
            assert peek_at(place, 9) is None
        assert (is_gone(chain.directory, 9), is_gone(chain.directory, 1), is_gone(bundle, 9)) == (1, 0, 0)

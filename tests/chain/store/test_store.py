"""A directory and a bundle of the same files are the same store."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.opening import BundleStore, open_store
from lccodec.chain.store.store import Store, check_next
from lccodec.constants import EXACT_NAME, MAX_STEP
from lccodec.errors import ArgumentError, StorageError

from ...support.walks import chain_of, lossy_chain


def test_both_say_the_same(tmp_path: Path) -> None:
    chain, _ = chain_of(tmp_path / "run")
    lccodec.bundle(chain.directory, tmp_path / "run.lcc")
    for path, kind in ((chain.directory, DirectoryStore), (tmp_path / "run.lcc", BundleStore)):
        with open_store(path) as store:
            assert type(store) is kind
            check_store(store, chain)


def check_store(store: Store, chain: lccodec.Chain) -> None:
    assert list(store.steps()) == list(store.checkpoints()) == chain.steps
    assert [store.parents_of(name) for name in store.steps().values()] == [(), (0,), (1,), ()]
    for step, name in store.steps().items():
        assert name == store.name_of(step) == f"{step:012d}.lcc.h5"
        with store.open(name) as reader:
            assert (reader.manifest.step, reader.name) == (step, str(store.path / name))
            assert store.root(name) == (reader.root, store.size([name]))
    assert len({store.identity(name) for name in store.steps().values()}) == 4
    assert (store.has("000000000000.lcc.h5"), store.has("000000000009.lcc.h5")) == (True, False)
    for call in (store.open, store.source, store.root, store.identity):
        with pytest.raises(StorageError) as caught:
            call("000000000009.lcc.h5")
        assert caught.value.errno == errno.ENOENT
    assert store.parents_of("000000000009.lcc.h5") == ()
    assert (store.exact_step(), store.unfinished_step(), store.pins()) == (None, None, [])


def test_a_step_that_only_the_exact_file_has(tmp_path: Path) -> None:
    chain = lossy_chain(tmp_path / "run", steps=3, newest="exact")
    (chain.directory / "000000000020.lcc.h5").unlink()
    lccodec.bundle(chain.directory, tmp_path / "run.lcc")
    for path in (chain.directory, tmp_path / "run.lcc"):
        with open_store(path) as store:
            assert list(store.checkpoints()) == [0, 10]
            assert store.steps() == {**store.checkpoints(), 20: EXACT_NAME}
            assert (store.exact_step(), store.unfinished_step(), store.name_of(20)) == (20, 20, EXACT_NAME)
            assert store.next_step(20) == 20  # it may be saved again
            with pytest.raises(ArgumentError, match="step 20 exists already"):
                store.next_step(20, [20])
            with pytest.raises(ArgumentError, match="above the latest, 20"):
                store.next_step(15)
        with lccodec.open(path) as file:
            assert file.info().step == 20


def test_a_new_step_comes_after_all_others() -> None:
    run = Path("run")
    assert check_next(np.int64(7), [], run) == 7
    assert check_next(7, [2, 6], run) == 7
    for step, message in ((6, "exists already in run"), (5, "above the latest, 6 in run"), (-1, "from 0")):
        with pytest.raises(ArgumentError, match=message):
            check_next(step, [2, 6], run)
    with pytest.raises(ArgumentError, match=f"from 0 to {MAX_STEP}"):
        check_next(MAX_STEP + 1, [], run)


def test_an_exact_file_that_can_be_read_only_sometimes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one listing lacks, another has."""
    lossy_chain(tmp_path, 2).close()
    (tmp_path / "000000000010.lcc.h5").unlink()
    told = iter([None, 10])
    monkeypatch.setattr(DirectoryStore, "exact_step", lambda _: next(told))
    assert DirectoryStore(tmp_path).next_step(10) == 10

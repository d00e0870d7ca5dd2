"""What a chain goes on from: a save that is reported can be restored, whatever happens to files."""

import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import ArgumentError, ChainError, Keep, LccodecWarning, Plan, StorageError
from lccodec.chain.save import saver
from lccodec.chain.save.reference import find_latest, find_parent, read_latest, read_values
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container import source
from lccodec.workers.crew import Processes
from lccodec.workers.process import place_of, shared_empty

from ...support.chains import HistoryChain
from ...support.damage import flip
from ...support.walks import NAMES, assert_restores, assert_same, save_all, walk

VALUES = partial(read_values, shared_empty)


def test_another_file_in_the_place_of_the_latest_is_noticed(tmp_path: Path) -> None:
    """Another process saves a step anew: this one remembers a step that is gone."""
    states = walk(4)
    one = HistoryChain(tmp_path, policy="lossless")
    one.save(0, states[0])
    one.save(1, states[1])
    (tmp_path / NAMES[1]).unlink()
    HistoryChain(tmp_path, policy="lossless").save(1, states[3])
    with pytest.warns(
        LccodecWarning, match=f"keyframe instead of a delta: step 1 was replaced: {NAMES[1]} is not"
    ):
        one.save(2, states[2])
    one.save(3, states[3])
    for step, state in {0: states[0], 1: states[3], 2: states[2], 3: states[3]}.items():
        assert_same(one.restore(step), state)
    assert [one.info(step).parent for step in (2, 3)] == [None, 2]


def test_a_step_of_another_writer_is_not_what_is_in_memory(tmp_path: Path) -> None:
    states = walk(5)
    one = HistoryChain(tmp_path, policy="lossless")
    one.save(0, states[0])
    HistoryChain(tmp_path, policy="lossless").save(1, states[1])
    with pytest.warns(
        LccodecWarning, match="keyframe instead of a delta: step 1 was saved by another writer"
    ):
        one.plan(states[2])
    with pytest.warns(
        LccodecWarning, match="keyframe instead of a delta: step 1 was saved by another writer"
    ):
        one.save(2, states[2])
    one.save(3, states[3])
    assert [one.info(step).parent for step in range(4)] == [None, 0, None, 2]
    assert_restores(one, states, range(4))


def test_steps_that_were_rolled_back_elsewhere_are_missed(tmp_path: Path) -> None:
    states = walk(6)
    one = HistoryChain(tmp_path, policy="lossless")
    save_all(one, states, range(4))
    HistoryChain(tmp_path).rollback(1)
    with pytest.warns(
        LccodecWarning, match="keyframe instead of a delta: step 3, which was saved last, is missing"
    ):
        one.save(4, states[4])
    one.rollback(1)  # what this chain does itself is no surprise
    one.save(5, states[5])
    assert [one.info(step).parent for step in one.steps] == [None, 0, 1]


@pytest.mark.parametrize("policy", ["lossless", "lc-3"])
@pytest.mark.parametrize("how", ["prune", "compact"])
def test_a_latest_checkpoint_that_was_written_anew_is_as_good(tmp_path: Path, policy: str, how: str) -> None:
    """The files have changed, and the state has not: what is in memory is still the reference."""
    states = walk(6)
    chain = HistoryChain(tmp_path, policy)
    save_all(chain, states, range(4))
    arrays = chain._writer._saver._latest.arrays if chain._writer._saver._latest else None
    other = HistoryChain(tmp_path)
    other.prune(Keep(latest=1), rewrite=True) if how == "prune" else other.compact(keyframe_every=1)
    before = other.restore(3)
    chain.save(4, states[4])
    assert arrays is not None
    assert chain.info(4).parent == 3
    assert chain._writer._saver._latest is not None
    assert [link.step for link in chain._writer._saver._latest.links] == (
        [3, 4] if how == "prune" else [2, 3, 4]
    )
    chain.save(5, states[5])
    assert_same(chain.restore(3), before)
    np.testing.assert_array_equal(chain.restore(5)["fixed"], states[5]["fixed"])


@pytest.mark.parametrize("place", [0.02, 0.5, 0.98])
@pytest.mark.parametrize("reopened", [False, True])
def test_a_damaged_latest_checkpoint_does_not_stop_a_run(
    tmp_path: Path, place: float, reopened: bool
) -> None:
    states = walk(5)
    chain = HistoryChain(tmp_path, policy="lossless")
    save_all(chain, states, range(2))
    chain.close() if reopened else chain._writer._saver.forget()
    flip(tmp_path / NAMES[1], place)
    chain = HistoryChain(tmp_path, policy="lossless") if reopened else chain
    with pytest.warns(LccodecWarning, match=rf"(?s)keyframe.*{NAMES[1]}"):
        chain.save(2, states[2])
    chain.save(3, states[3])  # and goes on from there
    assert chain.info(2).parent is None
    assert chain.info(3).parent == 2
    assert_restores(chain, states, (0, 2, 3))


@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize("harm", ["remove", "truncate", "replace", "empty"])
def test_a_link_that_changes_under_an_open_chain_is_noticed(tmp_path: Path, step: int, harm: str) -> None:
    """Keyframe, middle or parent: what would be a delta against it could not be restored."""
    states = walk(6)
    chain = HistoryChain(tmp_path / "run", policy="lc-3")
    other = HistoryChain(tmp_path / "other", policy="lc-3")
    for s in range(3):
        chain.save(s, states[s])
        other.save(s, walk(3, seed=1)[s])
    path = tmp_path / "run" / NAMES[step]
    if harm == "remove":
        path.unlink()
    elif harm == "replace":
        (tmp_path / "other" / NAMES[step]).replace(path)
    else:
        path.write_bytes(path.read_bytes()[:-1] if harm == "truncate" else b"")
    with pytest.warns(LccodecWarning, match=rf"keyframe instead of a delta: .*(step {step}|{NAMES[step]})"):
        chain.save(3, states[3])
    assert chain.info(3).parent is None
    chain.save(4, states[4])
    for s in (3, 4):
        np.testing.assert_allclose(
            chain.restore(s)["layer"]["weight"], states[s]["layer"]["weight"], atol=0.1
        )
        np.testing.assert_array_equal(chain.restore(s)["fixed"], states[s]["fixed"])


def test_looking_at_the_links_takes_one_small_read_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = walk(6, shape=(100, 100))
    chain = HistoryChain(tmp_path, policy="lc-3")
    save_all(chain, states, range(5))
    reads: list[int] = []
    read = source.read_at
    monkeypatch.setattr(source, "read_at", lambda fd, size, at: (reads.append(size), read(fd, size, at))[1])
    chain.save(5, states[5])
    monkeypatch.undo()
    assert chain.info(5).deltas == 5
    # The end of each, before the delta is coded and before it gets its name.
    assert len(reads) == 10
    assert max(reads) <= 16_384


@pytest.mark.slow
def test_threads_may_save_on_one_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saves wait for each other; those that come too late with their step are refused."""
    rng = np.random.default_rng(0)
    chain = HistoryChain(tmp_path, policy="lc-3")
    states = {step: {"weight": rng.standard_normal(3000).astype(np.float32)} for step in range(60)}
    make_plan = saver.make_plan

    def wait(*arguments: Any, **options: Any) -> Plan:
        time.sleep(0.005)  # so that others come to hold the same step, if they can
        return make_plan(*arguments, **options)

    monkeypatch.setattr(saver, "make_plan", wait)
    steps, saved, errors = iter(states), [], []

    def work() -> None:
        for step in steps:
            try:
                chain.save(step, states[step])
                saved.append(step)
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(e, ArgumentError) and "must be above the latest" in str(e) for e in errors)
    assert sorted(saved) == chain.steps
    assert len(saved) > 10
    for step in saved:
        chain.restore(step)  # raises where a delta was taken against another parent than it names


def test_a_committed_save_is_reported_though_its_file_cannot_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, states = HistoryChain(tmp_path, policy="lossless"), walk(2)
    stat = Path.stat

    def blind(path: Path, **options: Any) -> os.stat_result:
        if path.name == NAMES[0]:
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", blind)
    size = chain.save(0, states[0])
    monkeypatch.undo()
    assert size == (tmp_path / NAMES[0]).stat().st_size
    assert_same(chain.restore(0), states[0])


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    chain = HistoryChain(tmp_path / "file" / "run")
    with pytest.raises(StorageError, match="cannot"):
        chain.save(0, {"a": 1})


@pytest.mark.parametrize("step", [np.int64(3), np.uint8(3)])
def test_anything_with_an_index_is_a_step(tmp_path: Path, step: Any) -> None:
    with HistoryChain(tmp_path) as chain:
        chain.save(step, {"a": 1})
        assert chain.steps == [3]
        assert type(chain.info().step) is int


def test_one_line_is_logged_for_each_save(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="lccodec")
    with HistoryChain(tmp_path, policy="lc-3") as chain:
        sizes = [chain.save(step, state) for step, state in enumerate(walk(2))]
    first, *lines = [record.getMessage() for record in caplog.records]
    assert "is lossy for" in first  # said once, of a chain
    assert len(lines) == 2
    assert f"step 0, keyframe, {sizes[0]} bytes, " in lines[0]
    assert f"step 1, delta to 0, {sizes[1]} bytes, " in lines[1]


def test_what_no_reader_accepts_is_not_committed(tmp_path: Path) -> None:
    with HistoryChain(tmp_path) as chain:
        chain.save(0, {"w": np.ones(3)})
        before = chain._writer._saver._latest
        for bad in ({"w": np.empty((0, 2**41))}, {"w": np.ones(3), "x" * 20: {"y" * (1 << 24): 1}}):
            with pytest.raises(ValueError, match=r"LCC-LIM|more than"):
                chain.save(1, bad)
        assert chain.steps == [0]
        assert chain._writer._saver._latest is before  # and the reference was not lost


def test_only_a_step_that_cannot_be_read_is_mended(tmp_path: Path) -> None:
    """All of the newest step is read for that, which takes long."""
    states, store, asked = walk(4), DirectoryStore(tmp_path), list[None]()
    with HistoryChain(tmp_path, policy="lossless") as chain:
        chain.save(0, states[0])
        mine = read_latest(store, 0, VALUES)
        chain.save(1, states[1])

    def find(how: Any, steps: list[int], latest: Any = mine) -> None:
        how(latest, store, steps, VALUES, lambda: asked.append(None))

    with pytest.warns(LccodecWarning, match="step 1 was saved by another writer"):
        find(find_latest, [0, 1])
    with pytest.warns(LccodecWarning, match="step 0, which was saved last, is missing"):
        find(find_latest, [])
    find(find_parent, [0, 1])
    (tmp_path / NAMES[0]).unlink()
    HistoryChain(tmp_path / "other", policy="lossless").save(0, states[2])
    (tmp_path / "other" / NAMES[0]).rename(tmp_path / NAMES[0])
    with pytest.warns(LccodecWarning, match="step 0 was replaced"):
        find(find_latest, [0])
    assert asked == []
    flip(tmp_path / NAMES[0])
    with pytest.warns(LccodecWarning, match="step 0 cannot be restored"):
        find(find_latest, [0], None)
    with pytest.raises(ChainError, match="which cannot be restored"):
        find(find_parent, [0])
    assert len(asked) == 2


def test_a_large_reference_is_decoded_to_where_it_stays(tmp_path: Path) -> None:
    """A copy of it for the workers would be a second reference."""
    state = {"large": np.arange(300_000.0), "small": np.arange(3.0), "bias": np.arange(4.0)}
    with HistoryChain(tmp_path, policy="lossless") as chain:
        chain.save(0, state)
        chain.save(1, {**state, "large": state["large"] + 1})
    latest = find_latest(None, DirectoryStore(tmp_path), [0, 1], VALUES)
    assert latest is not None
    np.testing.assert_array_equal(latest.arrays["large"].array(), state["large"] + 1)
    np.testing.assert_array_equal(latest.arrays["small"].array(), state["small"])
    assert place_of(latest.arrays["large"].bits) is not None
    shared = Processes([], lambda: None, 1.0).shared(latest.arrays["large"].bits)
    assert shared is latest.arrays["large"].bits

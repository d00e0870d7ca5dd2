"""Which steps a rule keeps, and which rules are refused.

Thinning out: what goes, what stays and why, whatever pins, reads or saves beside it.

Thinning out: kept steps rewritten, damaged ones, and whatever crashes meanwhile.
"""

import errno
import math
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ArgumentError, Chain, ChainError, Keep, LccodecWarning, StorageError, validate
from lccodec.chain.life.prune import LINKS_NAME, prune
from lccodec.chain.read.checkpoint import open_step
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.store import checkpoint_name
from lccodec.constants import PARITY_FOLDER, PAYLOAD_OFFSET
from lccodec.container.checkpoint import CheckpointReader
from lccodec.container.folder import Folder
from lccodec.container.tree import numbers_of

from ...support.chains import HistoryChain
from ...support.crashes import broken
from ...support.damage import flip
from ...support.directories import entries
from ...support.programs import run_program
from ...support.segments import STATES, Parentless, all_restore, run_of
from ...support.systems import Faulty
from ...support.walks import assert_same, save_all, walk

FILES = range(0, 50, 5)


def nothing(_: int) -> Mapping[str, str]:
    raise AssertionError("metadata are for the best")


def never(_: int) -> float:
    raise AssertionError("times are for newer_than")


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        (Keep(latest=2), {40: "latest", 45: "latest"}),
        (Keep(latest=100), dict.fromkeys(FILES, "latest")),
        (Keep(every=20), {0: "every 20", 20: "every 20", 40: "every 20"}),
        (Keep(every=7), {0: "every 7", 35: "every 7"}),
        (Keep(steps=[25, 10, 11]), {10: "asked for", 25: "asked for"}),
        (Keep(steps=[11]), {}),
        (Keep(latest=1, every=45), {0: "every 45", 45: "latest, every 45"}),
    ],
)
def test_what_is_kept(rule: Keep, kept: dict[int, str]) -> None:
    assert rule.choose(FILES, nothing, never) == kept
    assert rule.choose([], nothing, never) == {}


@pytest.mark.parametrize(
    ("best", "kept"),
    [
        ((1, "loss", "min"), [30]),
        ((2, "loss", "min"), [25, 30]),  # of equal ones the later
        ((3, "loss", "min"), [20, 25, 30]),
        ((2, "loss", "max"), [0, 35]),
        ((99, "loss", "min"), [0, 5, 20, 25, 30, 35]),
        ((1, "accuracy", "max"), []),
    ],
)
def test_the_best(best: Any, kept: list[int]) -> None:
    texts = {0: "3.5", 5: "2", 10: "NaN", 15: "low", 20: "1e0", 25: "1", 30: "-0.5", 35: "inf", 40: ""}
    found = Keep(best=best).choose(
        FILES, lambda step: numbers_of({"loss": texts[step]} if step in texts else {}, []), never
    )
    assert list(found) == kept
    assert set(found.values()) <= {"best loss"}


def test_newer() -> None:
    now = time.time()
    ages = [100_000, 5000, 3000, -50_000]  # the last is from the future

    def chosen(newer_than: timedelta | datetime) -> list[int]:
        rule = Keep(newer_than=newer_than)
        return list(rule.choose(range(4), nothing, lambda step: now - ages[step]))

    assert chosen(timedelta(hours=1)) == [2, 3]
    assert chosen(datetime.fromtimestamp(now - 6000, UTC)) == [1, 2, 3]
    assert chosen(datetime.fromtimestamp(now - 6000)) == [1, 2, 3]  # local time
    assert chosen(timedelta()) == [3]


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"steps": []},
        {"latest": 0},
        {"latest": -1},
        {"latest": 1.5},
        {"latest": True},
        {"every": 0},
        {"every": "10"},
        {"best": ()},
        {"best": (1, "loss")},
        {"best": (0, "loss", "min")},
        {"best": (1, "loss", "lowest")},
        {"best": (1, 3, "min")},
        {"best": "min"},
        {"steps": 3},
        {"steps": [None]},
        {"steps": "12"},
        {"newer_than": 3600},
        {"newer_than": "1d"},
    ],
)
def test_rules_that_are_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        Keep(**parts)


def test_numbers_of_numpy() -> None:
    rule = Keep(latest=np.int64(2), steps=np.array([3, 1]), best=[np.int32(1), "loss", "min"])
    assert rule == Keep(latest=2, steps=(1, 3), best=(1, "loss", "min"))
    assert hash(rule) == hash(Keep(latest=2, steps=(1, 3), best=(1, "loss", "min")))


@given(st.sets(st.integers(0, 200)), st.integers(1, 9), st.integers(1, 40), st.sets(st.integers(0, 200)))
def test_parts_are_joined(steps: set[int], latest: int, every: int, asked: set[int]) -> None:
    rule = Keep(latest=latest, every=every, steps=asked)
    kept = set(rule.choose(sorted(steps), nothing, never))
    assert kept == {*sorted(steps)[-latest:], *(s for s in steps if s % every == 0), *(asked & steps)}


@given(st.dictionaries(st.integers(0, 50), st.floats(allow_nan=True) | st.text()), st.integers(1, 9))
def test_the_best_are_the_best(values: dict[int, Any], count: int) -> None:
    rule = Keep(best=(count, "x", "max"))
    kept = set(rule.choose(sorted(values), lambda step: numbers_of({"x": str(values[step])}, []), never))
    numbers = {}
    for step, value in values.items():
        try:
            numbers[step] = float(value)
        except ValueError:
            continue
    numbers = {step: value for step, value in numbers.items() if not math.isnan(value)}
    assert len(kept) == min(count, len(numbers))
    others = [value for step, value in numbers.items() if step not in kept]
    assert not others or min(numbers[step] for step in kept) >= max(others)


@pytest.mark.parametrize("background", [False, True])
def test_the_best_by_the_metrics_of_saves(tmp_path: Path, background: bool) -> None:
    """A metric is a number of the metadata; a tensor of one element has one, too."""
    losses = [np.float32(0.5), 0.25, np.array(3.0), 1]
    with Chain(tmp_path, "lossless", keyframe_every=0, keep=Keep(best=(2, "loss", "min"))) as chain:
        save = chain.save_async if background else chain.save
        for step, loss in enumerate(losses):
            save(step, {"w": np.arange(step, 9.0)}, {"run": "first"}, metrics={"loss": loss})
        chain.wait()
        assert chain.steps == [0, 1, 3]
        assert chain.info(1).metadata == {"run": "first", "loss": "0.25"}


@pytest.mark.parametrize(
    ("metadata", "metrics", "match"),
    [
        ({}, {"loss": "0.5"}, "metrics must be numbers; got '0.5' for 'loss'"),
        ({}, {"loss": np.ones(2)}, "metrics must be numbers; got array"),
        ({}, [0.5], "metrics must be a mapping from names to numbers; got list"),
        ({"loss": "0.5"}, {"loss": 0.5}, "'loss' must be in metadata or in metrics"),
    ],
)
def test_metrics_that_are_refused(tmp_path: Path, metadata: Any, metrics: Any, match: str) -> None:
    with Chain(tmp_path, "lossless") as chain, pytest.raises(ArgumentError, match=match):
        chain.save(0, {"w": np.ones(3)}, metadata, metrics=metrics)
    assert chain.steps == []


def test_what_goes_and_what_stays(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    files = {path.name: path.read_bytes() for path in entries(tmp_path)}
    found = chain.prune(Keep(steps=[4]), dry_run=True)
    assert found.removed == (0, 1, 2, 5)
    assert found.kept == {4: "asked for", 8: "newest"}
    assert found.needed == {3: 4, 6: 8, 7: 8}
    assert found.freed == sum(len(files[f"{step:012d}.lcc.h5"]) for step in (0, 1, 2, 5))
    assert chain.steps == list(range(9))
    assert chain.prune(Keep(steps=[4])) == found
    assert chain.steps == [3, 4, 6, 7, 8]
    for path in entries(tmp_path):
        assert path.read_bytes() == files[path.name]
    assert all_restore(tmp_path)
    assert validate(tmp_path, deep=True) == []
    assert chain.prune(Keep(steps=[4])).removed == ()
    chain.save(9, STATES[9])
    assert chain.prune(Keep(latest=1)).removed == (3, 4, 6, 7, 8)
    assert_same(chain.restore(), STATES[9])


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (Keep(latest=1), [6, 7, 8]),
        (Keep(latest=3, every=3), [0, 3, 6, 7, 8]),
        (Keep(best=(2, "loss", "max")), [0, 1, 6, 7, 8]),
        (Keep(newer_than=timedelta(hours=1)), list(range(9))),
        (Keep(steps=[0]), [0, 6, 7, 8]),
    ],
)
def test_rules(tmp_path: Path, rule: Keep, left: list[int]) -> None:
    chain = run_of(tmp_path)
    chain.prune(rule)
    assert chain.steps == left
    assert all_restore(tmp_path)


@pytest.mark.slow
@given(kept=st.sets(st.integers(0, 8), min_size=1), pins=st.sets(st.integers(0, 8)))
def test_all_that_stays_restores(
    tmp_path_factory: pytest.TempPathFactory, kept: set[int], pins: set[int]
) -> None:
    chain = run_of(tmp_path_factory.mktemp("run"))
    for step in pins:
        chain.pin(step)
    found = chain.prune(Keep(steps=kept))
    assert all_restore(chain.directory)
    assert set(chain.steps) == set(found.kept) | set(found.needed)
    assert set(found.kept) == kept | pins | {8}
    assert sorted({*found.kept, *found.needed, *found.removed}) == list(range(9))


def test_a_rule_that_keeps_nothing_is_refused(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    for rule in (Keep(steps=[99]), Keep(best=(3, "accuracy", "max"))):
        with pytest.raises(ArgumentError, match="keeps none of the 9 steps"):
            chain.prune(rule)
    with pytest.raises(ArgumentError, match=r"lccodec\.Keep"):
        chain.prune(3)
    assert chain.steps == list(range(9))
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nothing"):
        with pytest.raises((ChainError, StorageError)):
            HistoryChain(tmp_path / name).prune(Keep(latest=1))


def test_other_files_stay(tmp_path: Path) -> None:
    chain = run_of(tmp_path, newest="exact")
    mine = [tmp_path / name for name in ("5.lcc.h5", "notes.txt", "000000000001.lcc.h5.bak")]
    for path in mine:
        path.write_bytes(b"mine")
    (tmp_path / ".tmp-0123456789abcdef").write_bytes(b"left by a kill")
    chain.prune(Keep(latest=1))
    assert all(path.exists() for path in mine)
    assert not (tmp_path / ".tmp-0123456789abcdef").exists()
    assert chain.info().exact
    assert_same(chain.restore(), STATES[8])


# --- pins -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_pins_of_another_process(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    program = "import sys, lccodec; lccodec.Chain(sys.argv[1]).pin(1)"
    run_program(program, tmp_path)
    found = chain.prune(Keep(latest=1))
    assert (found.kept[1], found.needed[0]) == ("pinned", 1)
    assert chain.steps == [0, 1, 6, 7, 8]


def test_a_pin_that_comes_in_between(tmp_path: Path) -> None:
    """Where there are no locks, pins are looked for again before each group of files goes."""
    chain = run_of(tmp_path)

    class Pinning(Folder):
        def remove(self, names: Iterable[str]) -> None:
            super().remove(names)
            (tmp_path / "000000000001.pin").touch()

    class Unlocked(DirectoryStore):
        @contextmanager
        def locked(self) -> Iterator[Folder]:
            with Pinning(self.path, self.system) as folder:
                yield folder

    found = prune(Unlocked(tmp_path), Keep(latest=1))
    assert chain.steps == [0, 1, 6, 7, 8]
    assert found.removed == (2, 3, 4, 5)
    assert found.kept[1] == "pinned"


def test_what_was_pruned_cannot_be_pinned(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    chain.prune(Keep(latest=1))
    with pytest.raises(ChainError, match="was pruned"):
        chain.pin(1)
    assert chain.pins == []


# --- readers and writers beside it ----------------------------------------------------------------


def test_a_reader_keeps_what_it_has_opened(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    with open_step(DirectoryStore(tmp_path), 5) as file:
        chain.prune(Keep(latest=1))
        assert_same(file.state(), STATES[5])
    with pytest.raises(ChainError, match="no step 5; the nearest is 6; it was never saved, or it was pruned"):
        chain.restore(5)


def test_what_is_pruned_while_it_is_opened(tmp_path: Path) -> None:
    """The file is opened, and before its parent is, a prune has written it anew."""
    chain = run_of(tmp_path)
    rules = iter([Keep(latest=3), Keep(latest=2), Keep(latest=1)])

    class Pruned(DirectoryStore):
        def open(self, name: str) -> CheckpointReader:
            if name != checkpoint_name(8) and (rule := next(rules, None)):
                prune(DirectoryStore(tmp_path), rule, rewrite=True)
            return super().open(name)

    with open_step(Pruned(tmp_path)) as file:
        assert_same(file.state(), STATES[8])
    assert chain.steps == [8]

    class Stale(DirectoryStore):
        """The first list of steps is an old one."""

        def steps(self) -> dict[int, str]:
            return {step: checkpoint_name(step) for step in stale.pop()} if stale else super().steps()

    store, stale = Stale(tmp_path), [[8, 9]]
    with open_step(store) as file:
        assert_same(file.state(), STATES[8])
    stale = [[5]]
    with pytest.raises(ChainError, match="no step 5; the nearest is 8; it was never saved, or it was pruned"):
        open_step(store, 5)


def test_a_writer_goes_on(tmp_path: Path) -> None:
    """Another process's prune leaves what the next delta is taken against."""
    writer = run_of(tmp_path, 8)
    prune(DirectoryStore(tmp_path), Keep(steps=[0]))
    with warnings.catch_warnings(action="error"):
        writer.save(8, STATES[8])
    assert writer.info(8).parent == 7
    assert all_restore(tmp_path)


def test_after_each_save(tmp_path: Path) -> None:
    chain = HistoryChain(tmp_path, "lossless", keyframe_every=2, keep=Keep(latest=2, every=4))
    left = []
    for step in range(9):
        chain.save(step, STATES[step])
        left.append(chain.steps)
        assert all_restore(tmp_path)
    assert left[3] == [0, 1, 2, 3]
    assert left[4] == [0, 3, 4]
    assert left[8] == [0, 3, 4, 6, 7, 8]
    with pytest.raises(ArgumentError, match=r"lccodec\.Keep"):
        HistoryChain(tmp_path, keep=3)


def test_a_save_stands_if_pruning_fails(tmp_path: Path) -> None:
    chain = HistoryChain(tmp_path, "lossless", keep=Keep(best=(2, "loss", "min")))
    with pytest.warns(LccodecWarning, match="the state is saved, but pruning the chain failed") as caught:
        chain.save(0, STATES[0])
    assert caught[0].filename == __file__
    assert_same(chain.restore(), STATES[0])


def test_beside_another_prune_a_save_does_not_wait(tmp_path: Path) -> None:
    chain = HistoryChain(tmp_path, "lossless", keyframe_every=0, keep=Keep(latest=1))
    chain.save(0, STATES[0])
    with DirectoryStore(tmp_path).locked():
        chain.save(1, STATES[1])
        assert chain.steps == [0, 1]
    chain.save(2, STATES[2])
    assert chain.steps == [2]


# --- kept steps rewritten ----------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["lossless", "lc-3", "balanced"])
@pytest.mark.parametrize(
    "rule", [Keep(latest=1), Keep(latest=3), Keep(every=2), Keep(steps=[4, 5]), Keep(steps=[1])]
)
def test_kept_steps_need_only_kept_ones(tmp_path: Path, policy: str, rule: Keep) -> None:
    states = walk(9, shape=(40, 30))
    chain = Chain(tmp_path, policy, keyframe_every=5, newest="exact")
    save_all(chain, states)
    before = {step: chain.restore(step, exact=False) for step in chain.steps}
    deltas = {step: chain.info(step).deltas for step in chain.steps}
    told = chain.prune(rule, rewrite=True, dry_run=True)
    assert chain.steps == list(range(9))
    found = chain.prune(rule, rewrite=True)
    assert found == told
    assert chain.steps == list(found.kept)
    assert found.needed == {}
    for step in chain.steps:
        assert_same(chain.restore(step, exact=False), before[step])
        assert chain.info(step).deltas <= deltas[step]
    assert_same(chain.restore(), states[8])
    assert validate(tmp_path, deep=True) == []
    sizes = {each.step: each.after for each in found.rewritten}
    assert all(chain.info(step).file_bytes == size for step, size in sizes.items())
    assert found.cost == sum(each.after - each.before for each in found.rewritten)
    again = chain.prune(rule, rewrite=True)
    assert (again.removed, again.rewritten) == ((), ())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chain.save(9, states[0])
    assert validate(tmp_path, deep=True) == []


def test_children_of_what_is_written_anew_stay_as_they_are(tmp_path: Path) -> None:
    chain = run_of(tmp_path, newest="exact")
    sizes = {step: chain.info(step).file_bytes for step in chain.steps}
    found = chain.prune(Keep(latest=2), rewrite=True)
    assert [(each.step, each.parent) for each in found.rewritten] == [(7, None)]
    assert chain.steps == [7, 8]
    assert chain.info(8).file_bytes == sizes[8]
    assert chain.info(8).exact
    assert all_restore(tmp_path)


def test_what_cannot_be_written_anew_stays_with_what_it_needs(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    path = tmp_path / "000000000004.lcc.h5"
    flip(path, PAYLOAD_OFFSET + 65)
    with pytest.warns(LccodecWarning, match="step 5 cannot be rewritten, so what it needs stays"):
        found = chain.prune(Keep(steps=[5]), rewrite=True)
    assert found.needed == {3: 5, 4: 5}
    assert chain.steps == [3, 4, 5, 8]


def test_a_full_disk(tmp_path: Path) -> None:
    run_of(tmp_path)
    system = Faulty(errno.ENOSPC, lambda name, _: name == "write")
    with pytest.raises(StorageError, match="No space"):
        prune(DirectoryStore(tmp_path, system), Keep(latest=1), rewrite=True)
    assert Chain(tmp_path).steps == list(range(9))
    assert all_restore(tmp_path)


# --- damage, crashes, faults ----------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"damaged"])
def test_what_a_damaged_step_may_need_stays(tmp_path: Path, data: bytes) -> None:
    chain = run_of(tmp_path)
    (tmp_path / "000000000005.lcc.h5").write_bytes(data)
    with pytest.warns(LccodecWarning, match="step 5 cannot be read, so it is taken to need"):
        found = chain.prune(Keep(steps=[5]))
    assert found.needed == {3: 5, 4: 5, 6: 8, 7: 8}
    assert chain.prune(Keep(latest=1)).removed == (3, 4, 5)


def test_a_parent_that_was_deleted_by_hand(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    (tmp_path / "000000000004.lcc.h5").unlink()
    assert chain.prune(Keep(steps=[5])).removed == (0, 1, 2, 3)
    assert chain.steps == [5, 6, 7, 8]


def test_parents_that_go_with_their_children_are_found(tmp_path: Path) -> None:
    run_of(tmp_path / "run")
    work = lambda system: prune(Parentless(tmp_path / "run", system), Keep(latest=1))  # noqa: E731
    assert broken(tmp_path / "run", work, lambda _, place: all_restore(place))[1] > 0


def test_files_in_the_place_of_folders_stop_no_prune(tmp_path: Path) -> None:
    for name in (LINKS_NAME, PARITY_FOLDER):
        (tmp_path / name).write_text("a file of somebody else")
    with Chain(tmp_path, "lossless", keyframe_every=1) as chain:
        save_all(chain, walk(4), range(4))
        assert chain.prune(keep=Keep(latest=1)).removed
    assert (tmp_path / LINKS_NAME).is_file()

"""Groups of a history: which saves are ends, and what is coded again between two."""

import errno
import shutil
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import lccodec
from lccodec import ArgumentError, Chain, Keep, LccodecWarning, StorageError
from lccodec.chain.read.checkpoint import open_name
from lccodec.chain.save import hindsight
from lccodec.chain.save.hindsight import Groups, settle, unsettled
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.store import checkpoint_name
from lccodec.container.checkpoint import CheckpointReader
from lccodec.policy.presets import POLICIES

from ...support.crashes import hold
from ...support.drifting import ROLES, error, run_of
from ...support.paths import checkpoints
from ...support.settled import STATES, history, kinds, settle_all, waiting
from ...support.systems import attempts
from ...support.tuning import tune
from ...support.walks import assert_restores, assert_same, save_all

LONG_RUN = run_of(26)


def opened(directory: Path, size: int = 4, **options: Any) -> Chain:
    return Chain(directory, "balanced", roles=ROLES, hindsight=size, **options)


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in checkpoints(directory).values())


@pytest.mark.slow
def test_a_history_in_groups(tmp_path: Path) -> None:
    with Chain(tmp_path / "plain", "balanced", roles=ROLES) as plain:
        save_all(plain, LONG_RUN)
    with opened(tmp_path / "run", 8) as chain:
        for step, state in enumerate(LONG_RUN):
            chain.save(step, state)
            assert_same(chain.restore(), state)  # the newest is exact
            assert lccodec.validate(chain.directory) == []
    assert kinds(chain) == "kiiiiiiidiiiiiiidiiiiiiidd"
    assert [chain.info(step).parents for step in (3, 8, 9, 25)] == [(0, 8), (0,), (8, 16), (24,)]
    assert lccodec.validate(chain.directory, deep=True) == []
    assert size(chain.directory) < 0.75 * size(plain.directory)  # a third of that is exact
    moved = np.sqrt(np.mean([error(a["w"], b["w"]) ** 2 for a, b in pairwise(LONG_RUN)]))
    for step, state in enumerate(LONG_RUN):
        restored = chain.restore(step, exact=False)
        assert error(restored["w"], state["w"]) < 2 * moved
        assert (restored["v"] > 0).all()
        for name in ("mean", "count", "loss"):
            np.testing.assert_array_equal(restored[name], state[name])


def test_a_group_whose_settling_is_interrupted_is_settled_by_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt between two lines of it leaves no group as it was saved for good."""
    cut = [True]

    def pieces(*given: Any) -> Iterator[None]:
        yield
        if cut.pop():
            raise KeyboardInterrupt
        cut.append(False)
        return (yield from settle(*given))

    monkeypatch.setattr(hindsight, "settle", pieces)
    interrupted = 0
    with opened(tmp_path) as chain:
        for step, state in enumerate(LONG_RUN[:10]):
            try:
                chain.save(step, state)
            except KeyboardInterrupt:
                interrupted += 1
                cut.append(False)
    assert interrupted == 1
    assert kinds(chain)[:9] == "kiiidiiid"
    assert lccodec.validate(chain.directory, deep=True) == []


@pytest.mark.parametrize(
    ("ends", "between", "shape"), [("f8", "f4", (2, 600)), ("f4", "f2", (2, 600)), ("f4", "f4", (1200,))]
)
def test_an_array_has_another_form_at_the_save_before_an_end(
    tmp_path: Path, ends: str, between: str, shape: tuple[int, ...]
) -> None:
    """Its movement since that save is not known, though the end before has its form."""
    with opened(tmp_path) as chain:
        for step, form in enumerate([ends, *[between] * 3, ends]):
            values = np.linspace(1, 2 + step, 1200).astype(form)
            other = values.reshape((2, 600) if step in (0, 4) else shape)
            chain.save(step, {**LONG_RUN[step], "other": other})
        assert chain.info(4).parents == (0,)
        moved = {array.name: array.figures.movement for array in chain.info(4).arrays}
    assert moved["other"] is None
    assert moved["w"] is not None


@pytest.mark.slow
def test_what_is_told_is_measured(tmp_path: Path) -> None:
    """Errors of settled steps are those that they have now, and their lag is not known."""
    with opened(tmp_path, 8) as chain:
        save_all(chain, LONG_RUN[:9])
    for step in range(1, 8):
        restored, figures = chain.restore(step), chain.info(step).figures
        for name, role in ROLES.items():
            told = figures[role].error
            assert told == pytest.approx(error(restored[name], LONG_RUN[step][name]), rel=0.15)
        assert figures["weight"].lag is None
        assert chain.info(step).lossy


@pytest.mark.slow
@pytest.mark.parametrize("every", [0, 3, 8, 13])
def test_a_restore_replays_as_many_deltas_as_it_may(tmp_path: Path, every: int) -> None:
    with opened(tmp_path, keyframe_every=every) as chain:
        for step, state in enumerate(LONG_RUN):
            chain.save(step, state)
            assert max(chain.info(step).deltas for step in chain.steps) <= every + 1
    assert lccodec.validate(tmp_path, deep=True) == []
    assert kinds(chain).count("i") >= (0 if every == 0 else 15)
    for step in chain.steps:  # no keyframe is in a group
        parents = chain.info(step).parents
        if len(parents) == 2:
            assert all(chain.info(s).kind != "keyframe" for s in range(parents[0] + 1, parents[1]))


@pytest.mark.slow
def test_a_process_goes_on_where_another_one_ended(tmp_path: Path) -> None:
    """The first save begins a group; what was complete before is settled."""
    chain = opened(tmp_path)
    save_all(chain, LONG_RUN, range(6))
    with pytest.raises(KeyboardInterrupt), chain:
        raise KeyboardInterrupt
    with opened(tmp_path) as chain:
        for step in range(6, 12):
            chain.save(step, LONG_RUN[step])
            assert_same(chain.restore(), LONG_RUN[step])
    assert kinds(chain) == "kiiid" + "dd" + "iiid" + "d"
    assert chain.info(10).parent == 6
    assert lccodec.validate(tmp_path, deep=True) == []


def test_what_was_not_settled_is_settled_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(monkeypatch, hindsight_share=-1.0)
    chain = opened(tmp_path)
    save_all(chain, LONG_RUN, range(6))
    with pytest.raises(KeyboardInterrupt), chain:
        raise KeyboardInterrupt
    assert kinds(chain) == "kddddd"
    assert chain.info(4).parent == 0
    with opened(tmp_path) as chain:
        chain.save(6, LONG_RUN[6])
    assert kinds(chain) == "kiiiddd"
    with opened(tmp_path) as chain:  # one that saves nothing changes nothing
        before = size(tmp_path)
    assert size(tmp_path) == before


@pytest.mark.slow  # processes
def test_workers_write_the_same_files(tmp_path: Path) -> None:
    with opened(tmp_path / "here") as chain:
        save_all(chain, LONG_RUN)
    with opened(tmp_path / "there", workers=2) as other:
        for step, state in enumerate(LONG_RUN):
            other.save_async(step, state)
    assert kinds(chain) == kinds(other)
    for (_, one), (_, another) in zip(
        checkpoints(chain.directory).items(), checkpoints(other.directory).items(), strict=True
    ):
        assert one.read_bytes() == another.read_bytes()


@pytest.mark.slow
def test_a_chain_that_is_rolled_back_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path) as chain:
        save_all(chain, LONG_RUN, range(11))
        before = {step: chain.restore(step, exact=False) for step in range(11)}
        chain.rollback(6)
        assert_restores(chain, before, range(7), exact=False)
        save_all(chain, LONG_RUN, range(7, 14))
    assert lccodec.validate(tmp_path, deep=True) == []
    assert chain.info(11).parent == 7
    assert kinds(chain)[7:] == "diiidd" + "d"


@pytest.mark.slow
def test_steps_within_a_group_can_be_pruned(tmp_path: Path) -> None:
    with opened(tmp_path, keep=Keep(every=2, latest=5)) as chain:
        save_all(chain, LONG_RUN)
    with opened(tmp_path, keep=Keep(every=2, latest=5)) as chain:
        chain.prune(Keep(every=2, latest=5))
    assert chain.steps == [*range(0, 20, 2), *range(20, 26)]
    assert lccodec.validate(tmp_path, deep=True) == []


def test_a_save_that_fails_costs_no_other(tmp_path: Path) -> None:
    """The save that follows ends the group in its place."""
    with opened(tmp_path) as chain:
        save_all(chain, LONG_RUN, range(4))
        with pytest.raises(ArgumentError):
            chain.save(4, {**LONG_RUN[4], "w": np.array(["text"])})
        save_all(chain, LONG_RUN, range(4, 9))
    assert kinds(chain) == "kiiidiiid"


@pytest.mark.slow
def test_an_end_for_which_there_was_no_room_is_the_end_of_its_group(tmp_path: Path) -> None:
    full = StorageError(errno.ENOSPC, "no space", "somewhere")
    with opened(tmp_path) as chain:
        save_all(chain, LONG_RUN, range(4))
        with (
            mock.patch("lccodec.chain.save.reference.encode_plan", side_effect=full),
            pytest.warns(LccodecWarning, match="only in the exact file"),
        ):
            chain.save(4, LONG_RUN[4])
        save_all(chain, LONG_RUN, range(5, 7))
    assert kinds(chain) == "kiiiddd"
    assert [chain.info(step).parents for step in (3, 4, 5)] == [(0, 4), (0,), (4,)]
    assert lccodec.validate(chain.directory, deep=True) == []


@pytest.mark.slow
def test_exact_files_that_are_written_now_and_then(tmp_path: Path) -> None:
    with opened(tmp_path, exact_every=3) as chain:
        for step in range(12):
            chain.save(step, LONG_RUN[step])
            exact = chain.exact_step
            assert exact is not None
            assert_same(chain.restore(exact), LONG_RUN[exact])
    assert lccodec.validate(tmp_path, deep=True) == []


def test_no_error_of_settling_is_one_of_the_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr("lccodec.chain.save.hindsight.settle", broken)
    with pytest.warns(LccodecWarning, match="stays larger .* 'a defect'"), opened(tmp_path) as chain:
        save_all(chain, LONG_RUN, range(9))
    assert kinds(chain) == "kdddddddd"
    assert lccodec.validate(tmp_path, deep=True) == []


def test_groups_that_take_more_bytes_than_they_save_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def costs_more(*_: object) -> Iterator[None]:
        return False
        yield

    monkeypatch.setattr("lccodec.chain.save.hindsight.settle", costs_more)
    with opened(tmp_path, 2) as chain:
        save_all(chain, run_of(19, (5, 5)))
        planned = chain.plan(LONG_RUN[0]).parent
    ends = [step for step in chain.steps[2::2] if chain.info(step).parent == step - 2]
    assert ends == [2, 4, 8, 10, 16, 18]  # one rests, then two
    assert planned == 18


def test_groups_forget_what_they_have_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Groups] = []
    begun = Groups.__init__
    monkeypatch.setattr(
        Groups, "__init__", lambda self, *options: (made.append(self), begun(self, *options))[1]
    )
    with opened(tmp_path, 2) as chain:
        for step, state in enumerate(run_of(9)):
            chain.save(step, state)
    assert [sorted(groups._pays) for groups in made] == [[6, 8]]


def test_weights_that_turn_have_no_groups(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    one, other = (rng.standard_normal((30, 20)) for _ in range(2))
    with opened(tmp_path, 8) as chain:
        for step in range(17):
            turned = np.cos(step / 2) * one + np.sin(step / 2) * other
            chain.save(step, {**LONG_RUN[step], "w": turned.astype(np.float32)})
    assert kinds(chain) == "k" + 16 * "d"
    assert [chain.info(step).parent for step in (8, 16)] == [7, 15]


@pytest.mark.slow
def test_a_worker_that_is_given_up_stops_settling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Groups, "settle", lambda *_: None)
        with opened(tmp_path) as chain:
            save_all(chain, LONG_RUN, range(9))
    assert kinds(chain) == "kdddddddd"

    def gone() -> None:
        raise InterruptedError("the client is gone")

    groups = Groups(DirectoryStore(tmp_path), 4, 32)
    groups.base(None, POLICIES["balanced"])  # looks for what is not settled
    with pytest.raises(InterruptedError):
        groups.settle(60, gone)
    groups.settle_rest()
    assert kinds(chain) == "kiiidiiid"


def test_the_plan_says_what_becomes_of_a_step(tmp_path: Path) -> None:
    with opened(tmp_path, 3) as chain:
        found = []
        for step in range(5):
            found.append(chain.plan(LONG_RUN[step]).group)
            chain.save(step, LONG_RUN[step])
    again = "It is coded again from both when the later end is there."
    assert found == [
        "It begins a group.",
        f"It is number 1 of 2 between two ends, after step 0. {again}",
        f"It is number 2 of 2 between two ends, after step 0. {again}",
        "It ends a group: 2 steps between step 0 and this one are coded again from both, in the background.",
        f"It is number 1 of 2 between two ends, after step 3. {again}",
    ]
    with Chain(tmp_path / "plain", "balanced", roles=ROLES) as plain:
        assert plain.plan(LONG_RUN[0]).group is None


def test_damage_is_no_end(tmp_path: Path) -> None:
    """What cannot be settled stays, and a warning says so."""
    chain = opened(tmp_path)
    save_all(chain, LONG_RUN, range(4))
    path = checkpoints(tmp_path)[2]
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    with pytest.warns(LccodecWarning, match="stays larger than it could be"):
        path.write_bytes(data)
        chain.save(4, LONG_RUN[4])
        chain.close()
    assert_same(chain.restore(), LONG_RUN[4])
    assert error(chain.restore(1)["w"], LONG_RUN[1]["w"]) < 0.02


@pytest.mark.parametrize("hindsight", [1, -1, True, 2.5, "8"])
def test_what_is_no_size(tmp_path: Path, hindsight: Any) -> None:
    with pytest.raises(ArgumentError, match="hindsight must be 0 or an integer of at least 2"):
        Chain(tmp_path, hindsight=hindsight)


def test_what_groups_need(tmp_path: Path) -> None:
    with Chain(tmp_path / "a", "lossless", hindsight=8) as chain:
        with pytest.raises(ArgumentError, match="'lossless' loses nothing"):
            chain.save(0, LONG_RUN[0])
        assert chain.steps == []
    with (
        Chain(tmp_path / "b", "balanced", newest="history", hindsight=8) as chain,
        pytest.raises(ArgumentError, match="newest='exact'"),
    ):
        chain.save(0, LONG_RUN[0])


@pytest.mark.parametrize("workers", [None, pytest.param(1, marks=pytest.mark.slow)])
def test_a_plan_says_what_the_save_does(tmp_path: Path, workers: int | None) -> None:
    with opened(tmp_path, keyframe_every=9, workers=workers) as chain:
        for step, state in enumerate(LONG_RUN[:10]):
            plan = chain.plan(state)
            told = sum(each.stored_bytes for each in plan.estimates())
            assert told == pytest.approx(chain.save(step, state), abs=1500)
            assert chain.info(step).parent == plan.parent
            assert chain.info(step).kind == ("keyframe" if plan.parent is None else "delta")


@pytest.mark.slow
def test_what_is_settled_and_what_stays(tmp_path: Path) -> None:
    states = run_of(9, (40, 30))
    chain = waiting(tmp_path, states)
    assert kinds(chain) == "kdddddddd"
    assert unsettled(DirectoryStore(tmp_path), 100) == [(0, 4), (4, 8)]
    assert unsettled(DirectoryStore(tmp_path), 5) == [(4, 8)]
    before = [chain.info(step) for step in chain.steps]
    settle_all(DirectoryStore(tmp_path))
    assert kinds(chain) == "kiiidiiid"
    assert unsettled(DirectoryStore(tmp_path), 100) == []
    for old in before:
        new = chain.info(old.step)
        assert new.metadata == old.metadata
        assert (new.policy, new.exact_root) == (old.policy, old.exact_root)
        assert [(a.name, a.dtype, a.shape, a.role) for a in new.arrays] == [
            (a.name, a.dtype, a.shape, a.role) for a in old.arrays
        ]
        if new.kind == "interpolated":
            assert new.replaces == (old.root,)
            assert new.file_bytes < old.file_bytes
        else:
            assert new == old
        restored = chain.restore(old.step, exact=False)
        for name in ("mean", "count", "loss"):
            np.testing.assert_array_equal(restored[name], states[old.step or 0][name])
    assert_same(chain.restore(), states[-1])


def test_pinned_steps_stay(tmp_path: Path) -> None:
    chain = waiting(tmp_path)
    chain.pin(2)
    before = chain.restore(2)
    settle_all(DirectoryStore(tmp_path))
    assert kinds(chain) == "kddidiiid"
    assert_same(chain.restore(2), before)


def test_a_step_that_is_pinned_meanwhile(tmp_path: Path) -> None:
    chain = waiting(tmp_path)
    store = DirectoryStore(tmp_path)
    for number, _ in enumerate(settle(store, 0, 4)):
        if number == 2:
            chain.pin(3)
    assert kinds(chain) == "kdddddddd"


def test_nothing_is_settled_without_its_lock(tmp_path: Path) -> None:
    chain = waiting(tmp_path, STATES[:5])
    store = DirectoryStore(tmp_path)
    with store.locked():
        settle_all(DirectoryStore(tmp_path))
    assert kinds(chain) == "kdddd"


def test_steps_that_others_need_stay(tmp_path: Path) -> None:
    """A prune may have rewritten a step, or have removed an end."""
    chain = waiting(tmp_path, run_of(9, (12, 10)))  # all of them are small, and so exact
    chain.prune(Keep(steps=[0, 2, 3, 8]), rewrite=True)
    before = history(chain)
    for low, high in ((0, 8), (0, 4), (2, 8), (3, 3), (5, 1)):
        deque(settle(DirectoryStore(tmp_path), low, high), maxlen=0)
    assert lccodec.validate(tmp_path, deep=True) == []
    assert_same(history(chain), before)


def test_a_lossless_history_stays(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless", keyframe_every=4) as chain:
        save_all(chain, STATES)
    for low, high in ((0, 5), (0, 3)):
        deque(settle(DirectoryStore(tmp_path), low, high), maxlen=0)
    assert "i" not in kinds(chain)


def test_a_reader_that_comes_in_between(tmp_path: Path) -> None:
    """It has opened a delta, and finds that the parent is settled: so is the step by now."""
    waiting(tmp_path)

    class Settled(DirectoryStore):
        """A store whose groups are settled after the first checkpoint of it was opened."""

        def open(self, name: str) -> CheckpointReader:
            reader = super().open(name)
            settle_all(DirectoryStore(tmp_path))
            return reader

    with open_name(Settled(tmp_path), checkpoint_name(3)) as file:
        assert file.info().parents == (0, 4)
        assert_same(file.state(), Chain(tmp_path).restore(3))


def test_a_restore_that_goes_on(tmp_path: Path) -> None:
    """An open checkpoint says that its parents were replaced, or has their values."""
    chain = waiting(tmp_path)
    before = chain.restore(3)
    with lccodec.open(tmp_path / "000000000003.lcc.h5") as file:
        settle_all(DirectoryStore(tmp_path))
        try:
            assert_same(file.state(), before)
        except lccodec.ChainError as raised:
            assert "replaced by another file" in str(raised)


@pytest.mark.slow
@pytest.mark.parametrize("ignore", ["", "sync"])
def test_no_crash_loses_a_step(tmp_path: Path, ignore: str) -> None:
    chain = waiting(tmp_path / "run", STATES[:5])
    before = history(chain)
    settle_all(DirectoryStore(Path(shutil.copytree(tmp_path / "run", tmp_path / "settled"))))
    after = history(Chain(tmp_path / "settled"))

    def check(_: bool, place: Path) -> bool:
        try:
            found = history(Chain(place))
            assert_same(Chain(place).restore(), STATES[4])
            for step, state in enumerate(found):
                try:
                    assert_same(state, before[step])
                except AssertionError:
                    assert_same(state, after[step])
            settle_all(DirectoryStore(place))
            assert_same(history(Chain(place)), after)
        except (AssertionError, lccodec.LccodecError):
            return False
        return lccodec.validate(place, deep=True) == []

    work = lambda system: settle_all(DirectoryStore(chain.directory, system))  # noqa: E731
    hold(chain.directory, work, check, ignore, above=10)


@pytest.mark.slow
@pytest.mark.parametrize(("code", "sticky"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_faults_at_every_operation(tmp_path: Path, code: int, sticky: bool) -> None:
    chain = waiting(tmp_path / "run", STATES[:4], 3)
    before = history(chain)
    tried = attempts(
        chain.directory, lambda place, s: settle_all(DirectoryStore(place, s)), code, sticky=sticky
    )
    after = history(Chain(next(tried)[0]))
    for place, _ in tried:
        for step, state in enumerate(history(Chain(place))):
            same = state["w"].tobytes()
            assert same in (before[step]["w"].tobytes(), after[step]["w"].tobytes())
        settle_all(DirectoryStore(place))
        assert_same(history(Chain(place)), after)


@pytest.mark.slow
def test_a_group_with_a_jump_stays_as_it_was_saved(tmp_path: Path) -> None:
    for jump, expected in ((None, "kiiiiiiid"), (3, "kdddddddd")):  # movements are 0.011, the jump is 0.5
        states = run_of(9, (30, 40), jump=jump)
        chain = waiting(tmp_path / str(jump), states, 8)
        before = [error(chain.restore(step)["w"], state["w"]) for step, state in enumerate(states)]
        settle_all(DirectoryStore(chain.directory))
        assert kinds(chain) == expected
        after = [error(chain.restore(step)["w"], state["w"]) for step, state in enumerate(states)]
        assert (after == before) == (jump is not None)


@pytest.mark.parametrize("change", ["gone", "new", "shape", "dtype"])
def test_arrays_that_come_change_and_go(tmp_path: Path, change: str) -> None:
    """A group whose arrays have other names stays; other shapes and types are coded."""
    states = run_of(9, (20, 15))
    for step, state in enumerate(states):
        if change == "gone" and step > 1:
            del state["mean"]
        if change == "new" and step == 2:
            state["lora"] = np.ones((20, 20), np.float32)
        if change == "shape" and step > 1:
            state["w"] = state["w"][:, :5]
        if change == "dtype" and step == 2:
            state["w"] = state["w"].astype(np.float64)
    chain = waiting(tmp_path, states)
    settle_all(DirectoryStore(tmp_path))
    assert kinds(chain) == ("kiiid" if change in ("shape", "dtype") else "kdddd") + "iiid"
    assert lccodec.validate(tmp_path, deep=True) == []
    for step, state in enumerate(states):
        restored = chain.restore(step)
        assert restored.keys() == state.keys()
        assert (restored["w"].dtype, restored["w"].shape) == (state["w"].dtype, state["w"].shape)
        assert error(restored["w"], state["w"]) < 0.03


def test_what_is_not_finite_stays(tmp_path: Path) -> None:
    states = run_of(9, (20, 15))
    states[2]["w"][3, 3] = np.nan
    states[3]["v"][1, 1] = np.inf
    states[1]["m"][2, 2] = -np.inf
    chain = waiting(tmp_path, states)
    settle_all(DirectoryStore(tmp_path))
    assert kinds(chain) == "kiiidiiid"
    for step, state in enumerate(states):
        for name in ROLES:
            assert np.array_equal(np.isfinite(chain.restore(step)[name]), np.isfinite(state[name]))


@pytest.mark.slow
def test_a_weight_that_shares_a_frame_with_others(tmp_path: Path) -> None:
    states = run_of(9, (30, 40))
    for step, state in enumerate(states):
        state["bias"] = np.full(5, step, np.float32)
        state["seen"] = np.full(3, 64 * step, np.float32)
    roles = {"w": "weight", "bias": "weight"}
    with lccodec.Chain(tmp_path, "balanced", hindsight=4, roles=roles) as chain:
        save_all(chain, states)
    assert kinds(chain) == "kiiidiiid"
    for step, state in enumerate(states):
        restored = chain.restore(step)
        assert all(np.array_equal(restored[name], state[name]) for name in ("bias", "seen"))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["exp_avg", "list"])
def test_what_was_exact_when_it_was_saved_stays_exact(tmp_path: Path, place: str) -> None:
    """A mean of weights called a moment, and one that follows its weight at some steps only."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(50, 60)).astype(np.float32)
    mean, drift = weight / (2 if place == "exp_avg" else 1), 1e-3 * rng.normal(size=(50, 60))
    exact = dict[int, np.ndarray]()
    with Chain(tmp_path, hindsight=4) as chain:
        for step in range(9):
            weight = (weight + drift).astype(np.float32)
            follows = place == "exp_avg" or step % 2
            aside = weight - mean if follows else 0.1 * rng.normal(size=(50, 60))
            mean = (mean + 0.1 * aside).astype(np.float32)
            state = {"model": {"w": weight}, place: {"w": mean}}
            if f"{place}/w" in [array.name for array in chain.plan(state) if not array.lossy]:
                exact[step] = mean
            chain.save(step, state)
    assert len(exact) > 3
    for step, array in exact.items():
        assert np.array_equal(chain.restore(step, exact=False)[place]["w"], array)

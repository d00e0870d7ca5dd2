import errno
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import (
    ArgumentError,
    Chain,
    ChainError,
    DataError,
    ExponentBuckets,
    Policy,
    StorageError,
    UniformDeadzone,
)
from lccodec.container.system import System
from lccodec.policy.record import Record, read_record

from ..support.chains import HistoryChain
from ..support.damage import flip
from ..support.directories import entries
from ..support.oracle import lc_reconstruct
from ..support.strategies import ALL_DTYPES, bits_of, installed, random_array
from ..support.walks import assert_restores, assert_same, chain_of, save_all, walk


def test_every_step_of_a_lossless_chain(tmp_path: Path) -> None:
    states = walk(12)
    with HistoryChain(tmp_path, policy="lossless") as chain:
        for step, state in enumerate(states):
            chain.save(10 * step, state)
        assert chain.steps == [10 * step for step in range(12)]
        for step, state in enumerate(states):
            assert_same(chain.restore(10 * step), state)
        assert_same(chain.restore(), states[-1])


@pytest.mark.slow
@given(st.data())
def test_states_of_every_dtype_and_form(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Arrays appear, disappear, change shape and dtype, or stay: lossless restores them all."""
    with HistoryChain(
        tmp_path_factory.mktemp("chain"), policy="lossless", keyframe_every=data.draw(st.integers(0, 4))
    ) as chain:
        states = []
        for step in range(data.draw(st.integers(1, 5))):
            names = data.draw(st.lists(st.sampled_from(["a", "b", "c/d", "e~", ""]), unique=True, max_size=4))
            state: dict[str, Any] = {}
            for name in names:
                dtype = data.draw(st.sampled_from(["float32", *installed(ALL_DTYPES)]))
                shape = data.draw(st.sampled_from([(), (5,), (2, 3), (0,)]))
                state[name] = random_array(dtype, shape, data.draw(st.integers(0, 3)))
            state["scalars"] = [
                data.draw(st.none() | st.booleans() | st.integers() | st.text(max_size=3)),
                (1.5,),
            ]
            chain.save(step, state)
            states.append(state)
        assert_restores(chain, states, range(len(states)))


@pytest.mark.parametrize("bits", [2, 3])
def test_lc_chains_are_the_papers_closed_loop(tmp_path: Path, bits: int) -> None:
    states = walk(6)
    expected = states[0]["layer"]["weight"]
    with HistoryChain(tmp_path, policy=f"lc-{bits}") as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
            if chain.info(step).parent is None:
                expected = state["layer"]["weight"]
            else:
                expected = lc_reconstruct(state["layer"]["weight"], expected, bits, "float32")
            np.testing.assert_array_equal(bits_of(chain.restore(step)["layer"]["weight"]), bits_of(expected))


@pytest.mark.slow
def test_a_chain_goes_on_in_another_process(tmp_path: Path) -> None:
    """Same files, whether one process wrote them or several did (closed loop, determinism)."""
    program = """
import sys, numpy as np, lccodec
sys.path.insert(0, sys.argv[1])
from tests.support.walks import walk
states = walk(9)
first, last = int(sys.argv[3]), int(sys.argv[4])
with lccodec.Chain(sys.argv[2], policy="lc-3", keyframe_every=4) as chain:
    for step in range(first, last):
        chain.save(step, states[step])
"""
    root = str(Path(__file__).parents[2])
    for name, spans in {"one": [(0, 9)], "three": [(0, 3), (3, 4), (4, 9)]}.items():
        for first, last in spans:
            subprocess.run(
                [sys.executable, "-c", program, root, str(tmp_path / name), str(first), str(last)],
                check=True,
                cwd=root,
            )
    files = {name: {p.name: p.read_bytes() for p in entries(tmp_path / name)} for name in ("one", "three")}
    assert len(files["one"]) == 10  # one is the exact file
    assert files["one"] == files["three"]


@pytest.mark.slow
def test_a_restore_never_replays_more_deltas_than_it_may(tmp_path: Path) -> None:
    states = walk(80, shape=(300, 200))
    with HistoryChain(tmp_path, policy=Policy("rough", {"weight": ExponentBuckets(1)})) as chain:
        save_all(chain, states)
        deltas = [chain.info(step).deltas for step in chain.steps]
    assert max(deltas) == 32
    assert deltas.count(0) == 3


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["lossless", "balanced"])
def test_a_keyframe_ends_32_deltas_whatever_they_take(tmp_path: Path, policy: str) -> None:
    with HistoryChain(tmp_path, policy) as chain:
        save_all(chain, walk(68, shape=(20, 20)))
        assert [step for step in chain.steps if chain.info(step).parent is None] == [0, 33, 66]
        assert max(chain.info(step).deltas for step in chain.steps) == 32


@pytest.mark.parametrize("policy", ["lossless", "lc-3", "balanced"])
def test_the_tree_may_change_from_step_to_step(tmp_path: Path, policy: str) -> None:
    """Arrays come, go, and change their places: runs and roles are those of the step."""
    rng = np.random.default_rng(0)
    values = {name: rng.standard_normal(300, np.float32) for name in "abcdef"}
    trees = ["ab", "abc", "abc", "cab", "cab", "fab", "abcdef", "fedcba", "bd", "abd", "abd"]
    chain, saved = HistoryChain(tmp_path, policy=policy, roles={"*": "weight"}), []
    for step, names in enumerate(trees):
        values = {name: value + 0.01 * rng.standard_normal(300, np.float32) for name, value in values.items()}
        chain.save(step, {name: values[name] for name in names})
        # What goes on in memory and what goes on from the files are the same.
        saved.append(HistoryChain(tmp_path, policy=policy).restore())
        assert list(saved[-1]) == list(names)
        for name in names:
            np.testing.assert_allclose(saved[-1][name], values[name], atol=0.2)
            if policy == "lossless":
                assert_same(saved[-1][name], values[name])
        if policy != "lossless" and step == 1:
            assert not np.array_equal(saved[-1]["a"], values["a"])
    assert_restores(chain, saved, range(len(saved)))


def test_a_role_is_that_of_the_names_of_the_step(tmp_path: Path) -> None:
    """``m`` is a moment where there is ``v`` beside it, and the parameter of both."""
    policy = Policy("mine", {"first_moment": UniformDeadzone(step=50.0)})
    chain = HistoryChain(tmp_path, policy=policy)
    still = np.random.default_rng(0).standard_normal(5000)  # that deltas stay smaller than the keyframe
    for step, names in enumerate(["m", "m", "mv", "m", "mv"]):
        moving = {name: np.full(300, 2.0**step, np.float32) for name in names}
        chain.save(step, {"still": still, "w": np.ones(300, np.float32), **moving})
        exact = step == 0 or "v" not in names
        assert bool((chain.restore()["m"] == 2.0**step).all()) == exact
    with pytest.raises(ArgumentError, match="the role of 'm' must be one of"):
        HistoryChain(tmp_path, roles={"m": "no role"})


def test_a_state_may_change_in_place_between_saves(tmp_path: Path) -> None:
    state = {"w": np.zeros(100, np.float32)}
    with HistoryChain(tmp_path, policy="lossless") as chain:
        for step in range(5):
            state["w"] += step
            chain.save(step, state)
        restored = chain.restore(3)["w"]
        assert (restored == 6).all()
        restored += 1  # what is handed out is the caller's own
        chain.save(9, state)
        assert (chain.restore()["w"] == 10).all()


def test_only_what_is_asked_for(tmp_path: Path) -> None:
    states = walk(4)
    with HistoryChain(tmp_path, policy="lossless") as chain:
        save_all(chain, states)
        part = chain.restore(2, keys=["layer/bias", "epoch"])
        assert list(part) == ["layer/bias", "epoch"]
        np.testing.assert_array_equal(part["layer/bias"], states[2]["layer"]["bias"])
        assert part["epoch"] == 2
        assert set(chain.restore(keys=["layer"])) == {"layer/weight", "layer/bias"}
        with pytest.raises(ArgumentError, match="layer/wieght"):
            chain.restore(keys=["layer/wieght"])


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (lambda c: c.restore(99), ChainError, r"no step 99; the nearest is 3"),
        (lambda c: c.info("latest"), ArgumentError, "a step must be an integer; got 'latest'"),
        (lambda c: c.save(3, {}), ArgumentError, "step 3 exists already"),
        (lambda c: c.save(1, {}), ArgumentError, "step 1 exists already"),
        (lambda c: c.save(-1, {}), ArgumentError, "from 0"),
        (lambda c: c.save(True, {}), ArgumentError, "a step must be an integer"),
        (lambda c: c.save(2**53, {}), ArgumentError, "from 0"),
        (lambda c: c.save(9, {"a": {"b": np.array([None])}}), ArgumentError, "a/b"),
        (lambda c: c.save(9, {"a": {3: np.ones(2)}}), ArgumentError, "3"),
        (lambda c: c.save(9, {"a": {"when": np.zeros(2, "M8[s]")}}), ArgumentError, "a/when.*datetime64"),
        (lambda c: c.save(9, {"a": {1, 2}}), ArgumentError, "set"),
        (lambda c: c.save(9, {"a": 1}, metadata={"a": None}), ArgumentError, "metadata"),
    ],
)
def test_bad_calls_are_refused_and_nothing_is_lost(tmp_path: Path, act: Any, error: type, words: str) -> None:
    chain, states = chain_of(tmp_path)
    before = {p.name: p.read_bytes() for p in entries(tmp_path)}
    with pytest.raises(error, match=words):
        act(chain)
    assert {p.name: p.read_bytes() for p in entries(tmp_path)} == before
    assert_restores(chain, states, range(len(states)))
    chain.save(10, states[0])  # and the chain goes on
    assert_same(chain.restore(), states[0])
    assert chain.info().parent == 3


@pytest.mark.parametrize("number", [-1, 1.0, True, "3", None])
def test_a_number_of_deltas_that_is_none(tmp_path: Path, number: Any) -> None:
    with pytest.raises(ArgumentError, match="keyframe_every must be a non-negative integer; got"):
        Chain(tmp_path / "run", keyframe_every=number)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("step", [1.0, True, "3", -1, 2**53])
def test_a_step_that_is_none(tmp_path: Path, step: Any) -> None:
    """Where one is written, it must be one of the format; where one is read, it is not there."""
    error = ArgumentError if type(step) is not int else ChainError
    with Chain(tmp_path, "lossless") as chain:
        chain.save(5, {"w": np.ones(3)})
        with pytest.raises(ArgumentError, match="a step must be an integer"):
            chain.save(step, {"w": np.ones(3)})
        for call in (chain.restore, chain.info, chain.pin, chain.rollback):
            with pytest.raises(error, match=r"a step must be an integer; got|has no step"):
                call(step)
        assert list(chain.steps) == [5]


def test_a_step_before_the_latest_is_out_of_order(tmp_path: Path) -> None:
    with HistoryChain(tmp_path) as chain:
        chain.save(10, {"a": 1})
        with pytest.raises(ArgumentError, match="a step must be above the latest"):
            chain.save(5, {"a": 1})


def test_an_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(ChainError, match="holds no checkpoint"):
        HistoryChain(tmp_path / "new").restore()
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="not a directory"):
        HistoryChain(tmp_path / "file")


@pytest.mark.parametrize("place", [0.02, 0.3, 0.6, 0.95])
def test_a_damaged_checkpoint_is_an_error_that_names_it(tmp_path: Path, place: float) -> None:
    chain, states = chain_of(tmp_path)
    path = tmp_path / "000000000001.lcc.h5"
    flip(path, place)
    with pytest.raises(DataError, match=r"000000000001\.lcc\.h5"):
        chain.restore(1)
    assert_restores(chain, states, (0, 3))


@pytest.mark.parametrize("call", ["open", "write", "fsync", "link"])
def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    chain, states = chain_of(tmp_path)

    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(System, call, staticmethod(refuse))
        with pytest.raises(StorageError, match="No space left") as caught:
            chain.save(4, states[0])
    assert caught.value.errno == errno.ENOSPC
    assert sorted(p.name for p in entries(tmp_path)) == [f"{s:012d}.lcc.h5" for s in range(4)]
    assert_restores(chain, states, range(len(states)))
    chain.save(4, states[1])  # the reference in memory is not one that was never stored
    assert_same(chain.restore(4), states[1])


def test_roles_and_the_policy_of_a_checkpoint(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    names = ["w", "m", "v", "count"]
    rough = Policy("rough", {"weight": ExponentBuckets(1), "second_moment": UniformDeadzone(step=1.0)})
    states = [{name: generator.normal(size=100) for name in names} for _ in range(3)]
    states = [{**state, "v": 1 + np.square(state["v"])} for state in states]
    exact = []
    for step, (state, roles) in enumerate(zip(states, ({}, {}, {"w": "other"}), strict=True)):
        with Chain(tmp_path, policy=rough, roles=roles) as chain:
            chain.save(step, state)
            restored = chain.restore(step, exact=False)
            exact.append([name for name in names if np.array_equal(state[name], restored[name])])
            record = read_record(chain.info().policy)
            assert replace(record, known={}) == Record(rough, roles)
            assert record.known == ({1: "other", 2: "other"} if step == 0 else {})
    assert exact == [names, ["m", "count"], ["w", "m", "count"]]

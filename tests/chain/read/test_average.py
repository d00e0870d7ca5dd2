"""Which steps are averaged and what each counts, or why the choice is refused.

Averages equal NumPy's over restored states, walk a chain once, and take little memory.
"""

import shutil
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import ArgumentError, Chain, ChainError
from lccodec.chain.read import replay
from lccodec.chain.read.average import average, select_shares
from lccodec.chain.store.directory import DirectoryStore
from lccodec.frame.content import MAX_SHARED_COMPONENTS
from lccodec.policy.roles import Assignment

from ...support.chains import HistoryChain
from ...support.damage import flip
from ...support.strategies import bits_of, installed, random_array
from ...support.walks import assert_same, save_all

RUN = Path("run")
WEIGHTS = st.floats(0, 1e308) | st.integers(0, 10**6)


@given(st.dictionaries(st.integers(0, 10**6), WEIGHTS, min_size=1))
def test_shares_are_the_weights_by_their_sum(weights: dict[int, float]) -> None:
    if not any(weights.values()):
        return
    shares = select_shares(DirectoryStore(RUN), weights, weights=weights.values())
    assert list(shares) == sorted(weights)
    assert sum(shares.values()) == pytest.approx(1)
    largest = max(weights, key=lambda step: weights[step])
    for step, share in shares.items():
        assert share / shares[largest] == pytest.approx(weights[step] / weights[largest])


def test_all_count_the_same_by_default() -> None:
    assert select_shares(DirectoryStore(RUN), iter([30, 10])) == {10: 0.5, 30: 0.5}
    assert select_shares(DirectoryStore(RUN), [np.int64(3)]) == {3: 1.0}


@pytest.mark.parametrize("decay", [0.9, 1, np.float32(0.5)])
def test_decay_counts_age_in_checkpoints(decay: float) -> None:
    shares = select_shares(DirectoryStore(RUN), [7, 100, 8], decay=decay)
    weights = np.array([float(decay) ** age for age in (2, 1, 0)])
    np.testing.assert_allclose(list(shares.values()), weights / weights.sum(), rtol=1e-15)
    assert list(shares) == [7, 8, 100]


def test_the_last_steps(tmp_path: Path) -> None:
    with pytest.raises(ChainError, match="holds no checkpoint"):
        select_shares(DirectoryStore(tmp_path / "absent"), last=1)
    with Chain(tmp_path) as chain:
        for step in (3, 5, 1000):
            chain.save(step, {})
    assert list(select_shares(DirectoryStore(tmp_path), last=2)) == [5, 1000]
    assert list(select_shares(DirectoryStore(tmp_path), last=np.int8(9))) == [3, 5, 1000]
    assert select_shares(DirectoryStore(tmp_path), last=2, weights=[1, 3]) == {5: 0.25, 1000: 0.75}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either steps= or last="),
        ({"steps": [1], "last": 1}, "either steps= or last="),
        ({"last": 0}, "positive integer"),
        ({"last": True}, "positive integer"),
        ({"last": 1.5}, "positive integer"),
        ({"steps": []}, "at least one step"),
        ({"steps": 5}, "an iterable of steps; got 5"),
        ({"steps": ["1"]}, "a step must be an integer"),
        ({"steps": [4, 5, 4]}, "step 4 is given twice"),
        ({"steps": [1, 2], "weights": [1]}, "for each of 2 steps; got 1"),
        ({"steps": [1, 2], "weights": 0.9}, "for an exponential average, use decay="),
        ({"steps": [1, 2], "weights": [1, -1]}, "got -1"),
        ({"steps": [1, 2], "weights": [1, float("nan")]}, "got nan"),
        ({"steps": [1, 2], "weights": [1, float("inf")]}, "got inf"),
        ({"steps": [1, 2], "weights": [1, "a"]}, "got 'a'"),
        ({"steps": [1, 2], "weights": [1, None]}, "got None"),
        ({"steps": [1, 2], "weights": [0, 0.0]}, "at least one weight must be above 0"),
        ({"steps": [1, 2], "decay": 0}, "above 0 and at most 1; got 0"),
        ({"steps": [1, 2], "decay": 1.01}, "above 0"),
        ({"steps": [1, 2], "decay": float("nan")}, "above 0"),
        ({"steps": [1, 2], "decay": [1, 2]}, "above 0"),
        ({"steps": [1, 2], "decay": 0.5, "weights": [1, 2]}, "either weights= or decay="),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        select_shares(DirectoryStore(RUN), **arguments)


FLOATS = installed(["float16", "bfloat16", "float32", "float64", "complex64"])
SIZES = [(), (0,), (3,), (7, 20), (MAX_SHARED_COMPONENTS + 1,)]
MEANS = ("head.weight", "head.bias", "layers/0/weight")
DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53, "complex64": 24}


def leaves(state: Any) -> dict[str, Any]:
    return {"head.weight": state["head.weight"], "head.bias": state["head.bias"]} | {
        "layers/0/weight": state["layers"][0]["weight"]
    }


def check_mean(found: np.ndarray, arrays: list[np.ndarray], shares: list[float]) -> None:
    """The mean that NumPy takes in float64, but for its error there and one rounding."""
    assert (found.dtype, found.shape) == (arrays[0].dtype, arrays[0].shape)
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    stack = np.array([array.astype(wide) for array in arrays])
    expected = np.average(stack, axis=0, weights=shares)
    magnitude = np.average(np.abs(stack), axis=0, weights=shares)
    smallest = 2.0**-24 if found.dtype.name == "float16" else 2.0**-149
    bound = np.abs(expected) * 2.0 ** -DIGITS[found.dtype.name] * 1.001 + smallest
    bound += 2 * (len(arrays) + 2) * 2.0**-53 * magnitude  # NumPy's error is as large
    assert (np.abs(found.astype(wide) - expected) <= bound).all()


@pytest.mark.slow
@given(st.data())
def test_an_average_is_numpys(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    directory = tmp_path_factory.mktemp("run")
    dtypes = {name: data.draw(st.sampled_from(FLOATS)) for name in MEANS}
    shapes = {name: data.draw(st.sampled_from(SIZES)) for name in MEANS}
    policy = data.draw(st.sampled_from(["lossless", "lc-2", "lc-3"]))
    every = data.draw(st.integers(0, 4))
    gaps = data.draw(st.lists(st.integers(1, 50), min_size=1, max_size=7))
    steps = np.cumsum(gaps).tolist()
    changes = {name: data.draw(st.sets(st.sampled_from(steps))) for name in MEANS}
    values = {name: random_array(dtypes[name], shapes[name], 1, 0) for name in MEANS}
    with HistoryChain(directory, policy, keyframe_every=every) as chain:
        for step in steps:
            for name in MEANS:
                if step in changes[name]:
                    values[name] = random_array(dtypes[name], shapes[name], step, 0)
            state = {
                "layers": [{"weight": values["layers/0/weight"]}, (step, "text")],
                "head.weight": values["head.weight"],
                "head.bias": values["head.bias"],
                "tied": values["head.weight"],
                "bn": {"running_mean": np.full(5, step / 7, "f4"), "num_batches_tracked": np.array(step)},
                "moments": {"exp_avg_sq": np.full(30, step, "f4")},
            }
            chain.save(step, state)
    chosen = data.draw(st.lists(st.sampled_from(steps), min_size=1, unique=True))
    weights = data.draw(st.lists(st.floats(0.01, 9), min_size=len(chosen), max_size=len(chosen)))
    found = chain.average(chosen, weights=weights)
    states = [chain.restore(step) for step in chosen]
    for name, mean in leaves(found).items():
        check_mean(mean, [leaves(state)[name] for state in states], weights)
    newest = chain.restore(max(chosen))
    assert found["tied"] is found["head.weight"]
    for state in (found, newest):
        state["layers"][0] = state["head.weight"] = state["head.bias"] = state["tied"] = None
    assert_same(found, newest)
    shutil.rmtree(directory)


def saved(directory: Path, states: list[Any], **options: Any) -> Chain:
    with HistoryChain(directory, **{"policy": "lossless", **options}) as chain:
        save_all(chain, states)
    return chain


@pytest.mark.parametrize("name", FLOATS)
def test_the_mean_of_equal_arrays_is_the_array(tmp_path: Path, name: str) -> None:
    array = random_array(name, (300,), 5, 0)
    array[:3] = -0.0
    chain = saved(tmp_path, [{"weight": array}] * 7, keyframe_every=2)
    found = chain.average(last=7)["weight"]
    if name == "float64":  # of which float64 has no digits more
        np.testing.assert_allclose(found, array, rtol=1e-15)
    else:
        np.testing.assert_array_equal(bits_of(found), bits_of(array))


def test_what_is_not_finite_is_as_in_numpy(tmp_path: Path) -> None:
    columns = [(1, np.inf, np.inf, np.nan, 3e38), (2, np.inf, -np.inf, 1, 3e38)]
    chain = saved(tmp_path, [{"weight": np.array(column, "f4")} for column in columns])
    found = chain.average([0, 1])["weight"]
    np.testing.assert_array_equal(found, np.array([1.5, np.inf, np.nan, np.nan, 3e38], "f4"))
    assert_same(chain.average([0, 1], weights=[0, 1]), chain.restore(1))
    assert_same(chain.average([0, 1], weights=[1, 0])["weight"], chain.restore(0)["weight"])


def test_roles(tmp_path: Path) -> None:
    names = ("weight", "exp_avg", "exp_avg_sq", "running_var", "odd.weight")
    states = [
        {**{name: np.full(4, step, "f4") for name in names}, "quantized.weight": np.full(3, step, "i1")}
        for step in range(3)
    ]
    chain = saved(tmp_path, states, roles={"odd.*": "other"})

    def means(roles: Any) -> set[str]:
        found = chain.average(last=3, roles=roles)
        assert set(found) == set(states[0])
        assert {array[0] for array in found.values()} <= {1, 2}
        return {name for name, array in found.items() if array[0] == 1}

    assert means(("weight",)) == means("weight") == {"weight"}
    assert means(["first_moment", "second_moment"]) == {"exp_avg", "exp_avg_sq"}
    assert means("other") == {"running_var", "odd.weight"}
    for roles in ((), "weights", 3, ["weight", None]):
        with pytest.raises(ArgumentError, match="roles must be among weight"):
            chain.average(last=3, roles=roles)


def test_nothing_to_average_is_refused(tmp_path: Path) -> None:
    chain = saved(tmp_path, [{"x": np.ones(3), "weight": np.ones(3, "i4")}])
    with pytest.raises(ArgumentError, match=r"step 0 has no floating point array .* role weight"):
        chain.average(last=1)
    assert chain.average(last=1, roles="other")["x"].tolist() == [1, 1, 1]


def test_keys(tmp_path: Path) -> None:
    states = [{"m": {"weight": np.full(3, s, "f4"), "n": s}, "weight": np.ones(s + 1)} for s in range(3)]
    chain = saved(tmp_path, states)
    found = chain.average([0, 2], keys=["m"])  # the other weight changes its shape
    assert list(found) == ["m/weight", "m/n"]
    assert (found["m/weight"].tolist(), found["m/n"]) == ([1, 1, 1], 2)
    with pytest.raises(ArgumentError, match="has no 'k'"):
        chain.average([0, 2], keys="k")


W, B = np.ones((2, 3), "f4"), np.ones(2, "f4")


@pytest.mark.parametrize(
    ("old", "message"),
    [
        ({"a.weight": W}, "array 'a.bias' is not in step 0:"),
        (
            {"a.weight": W.T, "a.bias": B},
            r"'a.weight' is float32 \(3, 2\) in step 0, and float32 \(2, 3\) in",
        ),
        ({"a.weight": W, "a.bias": B.astype("f8")}, r"'a.bias' is float64 \(2,\) in step 0"),
        ({"a.weight": W, "a.bias": B, "c.weight": W.copy()}, "'c.weight' is in step 0, and not in step 1"),
    ],
)
def test_arrays_that_are_not_in_all_steps(tmp_path: Path, old: Mapping[str, Any], message: str) -> None:
    newer = {"a.weight": W + 1, "a.bias": B + 1, "step": 1}
    chain = saved(tmp_path, [dict(old), newer, newer])
    with pytest.raises(ArgumentError, match=message):
        chain.average([0, 1])
    chain.average([1, 2])


def test_other_arrays_may_come_and_go(tmp_path: Path) -> None:
    states = [{"weight": W * s, f"x{s}": np.ones(s + 1), "running_mean": np.ones(s)} for s in range(4)]
    chain = saved(tmp_path, states)
    found = chain.average([1, 3])
    assert list(found) == ["weight", "x3", "running_mean"]
    assert (found["weight"] == 2).all()
    assert found["running_mean"].shape == (3,)


def test_unknown_steps(tmp_path: Path) -> None:
    chain = saved(tmp_path, [{"weight": W}] * 3)
    for steps in ([1, 7], [-1, 2], [0, 1, 99]):
        with pytest.raises(ChainError, match="has no step"):
            chain.average(steps)
    with pytest.raises(ArgumentError, match="dtype must be"):
        chain.average([0], dtype="float64")


def test_damage_is_raised(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    chain = saved(tmp_path, [{"weight": rng.standard_normal(900)} for _ in range(4)])
    path = tmp_path / f"{1:012d}.lcc.h5"
    flip(path, 3000)
    with pytest.raises(lccodec.DataError):
        chain.average([0, 3])
    assert (chain.average([0])["weight"] == chain.restore(0)["weight"]).all()


def test_branches(tmp_path: Path) -> None:
    """Two steps with the same parent, as two writers leave them."""
    chain = saved(tmp_path, [{"weight": W}, {"weight": W * 2}])
    aside = (tmp_path / f"{1:012d}.lcc.h5").rename(tmp_path / "aside")
    HistoryChain(tmp_path).save(2, {"weight": W * 6})
    aside.rename(tmp_path / f"{1:012d}.lcc.h5")
    assert (chain.info(1).parent, chain.info(2).parent) == (0, 0)
    assert (chain.average([0, 1, 2])["weight"] == 3).all()


def test_each_frame_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    size = MAX_SHARED_COMPONENTS + 1
    sizes = {"a.weight": size, "b.weight": 40, "c.weight": 30, "a.exp_avg": size}
    state = {name: rng.standard_normal(n).astype("f4") for name, n in sizes.items()}
    states = [{name: array * np.float32(1 + s / 1e4) for name, array in state.items()} for s in range(9)]
    chain = saved(tmp_path, states, keyframe_every=3, roles={"*.weight": "weight"})
    assert [chain.info(step).parent for step in chain.steps] == [None, 0, 1, 2, None, 4, 5, 6, None]
    assert all(array.relative for array in chain.info(7).arrays)
    calls = []
    true = replay.decode_components

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(options["check_sum"])
        return true(*args, **options)

    monkeypatch.setattr(replay, "decode_components", counted)
    chain.average(last=7)
    # In each of the steps 0 to 8 the frames of a and of b with c, and the moment in the last one.
    assert len(calls) == 9 * 2 + 1
    assert all(calls)


@pytest.mark.slow
@pytest.mark.parametrize(("arrays", "states"), [(12, 1.6), (1, 4.3)])
def test_memory(tmp_path: Path, arrays: int, states: float) -> None:
    """Twenty checkpoints of five lines: one state, decoding one array, and its sum in float64."""
    rng = np.random.default_rng(0)
    size = 6_000_000 // arrays
    weights = {f"{i}/weight": rng.standard_normal(size).astype("f4") for i in range(arrays)}
    nbytes = 4 * size * arrays
    with HistoryChain(tmp_path, "lc-3", keyframe_every=3) as chain:
        for step in range(20):
            for weight in weights.values():
                weight[:: step + 2] += np.float32(0.01)
            chain.save(step, weights)
    tracemalloc.start()
    found = chain.average(last=20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) == arrays
    assert peak < states * nbytes


def test_a_small_array_does_not_keep_its_run(tmp_path: Path) -> None:
    chain = saved(tmp_path, [{f"{i}/weight": np.full(100, s + i, "f4") for i in range(9)} for s in range(2)])
    for array in chain.average(last=2).values():
        assert array.base is None or array.base.nbytes <= array.nbytes
        assert array.flags.writeable


class Listed:
    """A framework whose states are lists of one array, with a note of their dtype."""

    def to_numpy(
        self, state: Any, metadata: Mapping[str, str] | None = None, /
    ) -> tuple[Any, dict[str, str]]:
        return {"weight": state[0]}, {**(metadata or {}), "note": "listed"}

    def from_numpy(self, state: Any, metadata: Mapping[str, str], name: str = "", /) -> Any:
        return (name, metadata["note"], state)

    def roles(self, state: Any, /) -> Mapping[str, Assignment]:  # noqa: ARG002
        return {}


def test_with_an_adapter_the_state_is_the_frameworks(tmp_path: Path) -> None:
    with HistoryChain(tmp_path, "lossless", adapter=Listed()) as chain:
        for step in range(3):
            chain.save(step, [np.full(2, step, "f4")])
    name, note, state = chain.average(last=3)
    assert (name, note, state["weight"].tolist()) == ("", "listed", [1, 1])
    (found,) = chain.average(last=3, keys="weight").values()
    assert found[0] == "weight"


def test_bfloat16_without_its_package(tmp_path: Path) -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16).view(lccodec.BFLOAT16_BITS)  # 1 and 2
    chain = saved(tmp_path, [{"weight": bits}, {"weight": bits[::-1].copy()}])
    assert chain.average(last=2, dtype="float32")["weight"].tolist() == [1.5, 1.5]
    assert chain.average(last=2, dtype="bits")["weight"].dtype == lccodec.BFLOAT16_BITS


def test_what_is_told(tmp_path: Path) -> None:
    states = [{"a.weight": W, "x": B, "a.bias": B.copy()}] * 2
    with HistoryChain(tmp_path) as chain:
        for step, state in enumerate(states):
            chain.save(step, state, {"loss": str(step)})
    found = average(DirectoryStore(tmp_path), {0: 0.5, 1: 0.5})
    assert found.arrays == ("a.weight", "a.bias")
    assert found.metadata == {"loss": "1"}

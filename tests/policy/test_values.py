"""Copies: roundings of an array, and equal ones, are found by their values, all of them.

Of equal arrays the one that changed least is the source.

Copies and averages of weights are known by their values, and so is which of them are trained.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.element_types import BFLOAT16_BITS, narrow
from lccodec.policy.optimizer import find_optimizers
from lccodec.policy.policy import Candidate
from lccodec.policy.roles import FOLLOWER, MASTER, PARAMETER, PERHAPS, ROUNDED, UNNAMED, UNTRAINED, Role
from lccodec.policy.values import mark_copies, mark_followers, mark_rounded, mark_trained

from ..support.candidates import candidate

SINGLE = np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)


def half(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16)


def brain(values: np.ndarray) -> np.ndarray:
    return narrow(values).view(BFLOAT16_BITS)


def sources(*arrays: Candidate) -> dict[str, str]:
    mark_rounded(arrays)
    return {c.name: c.source for c in arrays if c.source is not None}


@pytest.mark.parametrize("rounded", [half, brain])
def test_a_rounding_is_a_copy(rounded: Any) -> None:
    found = sources(candidate("w", rounded(SINGLE)), candidate("master", SINGLE))
    assert found == {"w": "master"}


@given(st.sampled_from([half, brain]), st.integers(0, SINGLE.size - 1))
def test_one_other_bit_makes_it_none(rounded: Any, place: int) -> None:
    array = rounded(SINGLE)
    array.view(np.uint16).reshape(-1)[place] ^= 1
    assert sources(candidate("w", array), candidate("master", SINGLE)) == {}


def test_what_else_is_none() -> None:
    rounded = brain(SINGLE)
    for name, copy, source in (
        ("another shape", rounded.reshape(30, 20), SINGLE),
        ("float64", rounded, SINGLE.astype(np.float64)),
        ("integers", rounded.view(np.uint16), SINGLE),
        ("float32", SINGLE.copy(), SINGLE),
        ("few values", rounded[0, :5].copy(), SINGLE[0, :5].copy()),
        ("a constant", brain(np.ones_like(SINGLE)), np.ones_like(SINGLE)),
        ("nothing", rounded[:0], SINGLE[:0]),
    ):
        assert sources(candidate("w", copy), candidate("master", source)) == {}, name


def test_a_source_has_one_copy() -> None:
    arrays = candidate("w", brain(SINGLE)), candidate("again", brain(SINGLE)), candidate("half", half(SINGLE))
    assert sources(*arrays, candidate("master", SINGLE)) == {"w": "master"}
    assert sources(*arrays, candidate("master", SINGLE), candidate("ema", SINGLE)) == {
        "w": "master",
        "again": "ema",
    }


def test_names_decide_between_equal_arrays() -> None:
    names = ["a.weight", "b.weight", "c.weight"]
    arrays = [candidate(f"model/{name}", brain(SINGLE)) for name in names]
    masters = [candidate(f"master/{name}", SINGLE) for name in reversed(names)]
    assert sources(*arrays, *masters) == {f"model/{name}": f"master/{name}" for name in names}


@pytest.mark.parametrize(
    ("copy", "source", "expected"),
    [
        ("model/w", "optimizer/master/w", MASTER),
        ("model/w", "fp32_params/w", MASTER),
        ("model/w", "shadow/w", UNNAMED),
        ("params_bf16/w", "shadow/w", MASTER),
    ],
)
def test_the_float32_of_a_weight_is_one_if_a_name_says_so(copy: str, source: str, expected: str) -> None:
    weight = candidate(copy, brain(SINGLE), "weight", "a parameter")
    other = candidate(source, SINGLE)
    assert sources(weight, other) == {copy: source}
    assert (other.role == "weight", other.why) == (expected == MASTER, expected)
    assert weight.why == "a parameter"


@pytest.mark.parametrize(("copy", "role"), [("half/w", "weight"), ("w_bf16", "weight"), ("best/w", "other")])
def test_a_rounded_weight_is_one_if_a_name_says_so(copy: str, role: str) -> None:
    other = candidate(copy, half(SINGLE), why=UNTRAINED)
    assert sources(other, candidate("params/w", SINGLE, "weight", "a parameter")) == {copy: "params/w"}
    assert (other.role, other.why) == (role, ROUNDED if role == "weight" else UNTRAINED)


@pytest.mark.parametrize(
    ("role", "why"), [("other", "'teacher' is exact"), ("other", "given as '*'"), ("first_moment", "given")]
)
def test_what_is_known_of_an_array_stays(role: Role, why: str) -> None:
    other = candidate("master/w", SINGLE, role, why)
    assert sources(candidate("w", brain(SINGLE), "weight", "given"), other) == {"w": "master/w"}
    assert (other.role, other.why) == (role, why)


def test_an_optimizer_may_keep_the_float32_of_its_parameters() -> None:
    shapes = {"model/fc.weight": (9, 9), "model/fc.bias": (9,)}
    entries = ("exp_avg", "exp_avg_sq", "master_param")
    kept = {f"optimizer/state/{i}/{entry}": s for i, s in enumerate(shapes.values()) for entry in entries}

    def find(names: dict[str, tuple[int, ...]]) -> Any:
        return find_optimizers(names, lambda name: name in shapes, lambda _: False)

    found = find({**shapes, **kept})
    assert found.known
    assert found.parameters == set(shapes)
    assert found.moments.keys() == {name for name in kept if "exp_avg" in name}
    assert found.inside == set(kept)
    other = {name.replace("master_param", "second_copy"): s for name, s in kept.items()}
    assert not find({**shapes, **other}).known


def equal_to(*arrays: Candidate) -> dict[str, str]:
    mark_copies(arrays)
    return {c.name: c.source for c in arrays if c.source is not None}


@pytest.mark.parametrize("dtype", ["u1", "i2", "f2", "f4", "f8", "c8", "c16", "i8"])
def test_an_equal_array_is_a_copy(dtype: str) -> None:
    array = (SINGLE * 100).astype(dtype)
    assert equal_to(candidate("a", array), candidate("b", array.copy())) == {"b": "a"}


@given(st.integers(0, SINGLE.size - 1), st.integers(0, 31))
def test_one_other_bit_makes_an_equal_array_none(place: int, bit: int) -> None:
    other = SINGLE.copy()
    other.view(np.uint32).reshape(-1)[place] ^= np.uint32(1 << bit)
    assert equal_to(candidate("a", SINGLE), candidate("b", other)) == {}


def test_bits_are_compared() -> None:
    """0 is not -0, and NaN is NaN."""
    values = SINGLE.copy()
    values[3], values[4] = np.nan, 0.0
    negative = values.copy()
    negative[4] = -0.0
    names = ("a", values), ("b", negative), ("c", values.copy())
    assert equal_to(*(candidate(*each) for each in names)) == {"c": "a"}


def test_what_else_is_no_equal_array() -> None:
    for name, other in (
        ("another shape", SINGLE.reshape(30, 20)),
        ("another type", SINGLE.view(np.int32)),
        ("few bytes", SINGLE[0, :15].copy()),
        ("a constant", np.ones_like(SINGLE)),
        ("nothing", SINGLE[:0]),
        ("a scalar", np.float32(7).reshape(())),
    ):
        arrays = candidate("a", other.copy()), candidate("b", other), candidate("w", SINGLE)
        assert equal_to(*arrays) == ({"b": "a"} if name in ("another shape", "another type") else {}), name


def test_what_a_save_leaves_out_is_no_source() -> None:
    left = candidate("a", SINGLE, before=SINGLE, inherited=True)
    assert equal_to(left, candidate("b", SINGLE.copy())) == {}


@pytest.mark.parametrize("count", [2, 4, 5, 8, 9])
def test_equal_arrays_have_one_source(count: int) -> None:
    found = equal_to(*(candidate(f"{i}", SINGLE.copy()) for i in range(count)))
    half = (count + 1) // 2
    assert found == {f"{half + i}": f"{i}" for i in range(count - half)}


def test_the_source_is_what_changed_least() -> None:
    near, far = SINGLE + np.float32(1e-6), SINGLE[::-1].copy()
    some = SINGLE.copy()
    some[0] += 1
    arrays = {"new": None, "far": far, "near": near, "some": some, "same": SINGLE}
    while len(arrays) > 1:
        found = equal_to(*(candidate(name, SINGLE.copy(), before=before) for name, before in arrays.items()))
        best = list(arrays)[-1]
        assert best not in found
        assert set(found.values()) == set(list(arrays)[::-1][: len(arrays) // 2])
        del arrays[best]


def test_hashes_say_what_changed() -> None:
    arrays = [candidate(f"{i}", SINGLE.copy(), changed=share) for i, share in enumerate((0.5, 0.1, 0.9))]
    assert equal_to(*arrays) == {"2": "1"}


def test_what_has_a_rounding_is_a_source() -> None:
    rounded = narrow(SINGLE).view(BFLOAT16_BITS)
    arrays = candidate("ema", SINGLE.copy()), candidate("w", rounded), candidate("other/w", SINGLE.copy())
    assert equal_to(*arrays) == {"w": "other/w", "ema": "other/w"}
    two = candidate("again", rounded.copy()), candidate("w", rounded), candidate("master", SINGLE)
    assert equal_to(*two) == {"again": "master"}  # a rounding is no source


def test_many_arrays_alike_in_the_sample_are_not_compared_with_all() -> None:
    different = []
    for i in range(20):
        array = SINGLE.reshape(-1).copy()
        array[1] += i // 2  # not in the sample
        different.append(candidate(f"{i}", array))
    found = equal_to(*different)
    assert found == {"1": "0", "3": "2", "5": "4", "7": "6"}


SIZE = 2_000
RNG = np.random.default_rng(0)
BEFORE = RNG.normal(size=SIZE)
MOVED = 0.01 * RNG.normal(size=SIZE)
NOISE = 0.01 * RNG.normal(size=SIZE)
WEIGHT = BEFORE + MOVED


def marked(
    name: str, now: np.ndarray, before: np.ndarray, why: str = UNNAMED, lost: float = 0.0
) -> Candidate:
    """An array of no role, once it was compared with a weight."""
    single = [array.astype(np.float32) for array in (WEIGHT, BEFORE, now, before)]
    arrays = [candidate("w", single[0], "weight", before=single[1])]
    arrays.append(candidate(name, single[2], "other", why, single[3]))
    mark_followers(arrays, {name: lost})
    return arrays[1]


@pytest.mark.parametrize(
    ("now", "before", "follows"),
    [
        (BEFORE - 0.01 * MOVED + 0.1 * MOVED, BEFORE - 0.01 * MOVED, True),  # an average
        (BEFORE + 0.5 * MOVED, BEFORE - 20 * MOVED, True),  # a copy of a moment ago
        (BEFORE, BEFORE, False),  # a copy that rests as it was saved
        (WEIGHT + 0.1 * NOISE, WEIGHT, False),
        (BEFORE - MOVED, BEFORE, False),  # moves away
        (BEFORE + NOISE, BEFORE, False),
        (0.1 * BEFORE + 0.1 * MOVED, 0.1 * BEFORE, False),  # is far
        (RNG.normal(size=SIZE), RNG.normal(size=SIZE), False),
    ],
)
def test_what_follows(now: np.ndarray, before: np.ndarray, follows: bool) -> None:
    found = marked("list/0", now, before)
    assert (found.role, found.why) == (("weight", FOLLOWER) if follows else ("other", UNNAMED))


@pytest.mark.parametrize(("lost", "rests"), [(0, False), (0.0008, False), (0.001, True), (np.nan, False)])
def test_what_differs_by_what_was_lost_rests(lost: float, rests: bool) -> None:
    assert (marked("list/0", WEIGHT + 0.1 * NOISE, WEIGHT, lost=lost).role == "weight") == rests


@pytest.mark.parametrize("change", ["moves aside", "grows", "turns back"])
def test_what_is_near_a_weight_and_goes_its_own_way_is_exact(tmp_path: Path, change: str) -> None:
    """By less than the weight moves: nothing of it must be lost."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(50, 60))
    near = weight.astype(np.float32)
    chain = lccodec.Chain(tmp_path, newest="history")
    for step in range(4):
        moved = 0.01 * rng.normal(size=(50, 60))
        aside = {"moves aside": 0.1 * rng.permutation(moved), "grows": 0.001 * near, "turns back": -moved / 2}
        weight, near = weight + moved, (near + aside[change]).astype(np.float32)
        state = {"model": {"w": weight.astype(np.float32)}, "list": {"w": near}}
        chain.save(step, state)
        assert np.array_equal(chain.restore()["list"]["w"], near)


@pytest.mark.parametrize(
    "made",
    [lambda w: np.round(w * 40) / 40, lambda w: np.where(abs(w) < 0.4, 0, w)],
    ids=["quantized", "pruned"],
)
def test_what_has_few_values_keeps_them(made: Any) -> None:
    assert marked("deployed/w", made(WEIGHT), made(BEFORE)).role == "other"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e38])
@pytest.mark.parametrize("where", range(4))
def test_no_step_follows_from_what_is_not_finite(value: float, where: int) -> None:
    arrays = [array.astype(np.float32) for array in (WEIGHT, BEFORE, BEFORE + 0.9 * MOVED, BEFORE - MOVED)]
    arrays[where][5] = value
    with np.errstate(all="raise"):
        c = candidate("target/w", arrays[2], "other", UNNAMED, arrays[3])
        mark_followers([candidate("w", arrays[0], "weight", before=arrays[1]), c])
    assert c.step is None or 0 < c.step < np.inf


def test_a_run_that_diverged_is_saved(tmp_path: Path) -> None:
    """The weights were infinite at the save before, and the target is a copy of one before that."""
    chain = lccodec.Chain(tmp_path, newest="history")
    for step, (weight, target) in enumerate(((0.9, 0.8), (np.inf, 0.9), (1, 0.99))):
        w, t = (factor * WEIGHT.astype(np.float32) for factor in (weight, target))
        chain.save(step, {"model": {"weight": w}, "target": {"weight": t}})
    assert np.allclose(chain.restore()["target"]["weight"], t, atol=0.1)


def test_what_a_user_calls_exact_stays_exact() -> None:
    assert marked("target/w", BEFORE + 0.1 * MOVED, BEFORE, "given as 'target/*'").role == "other"


@pytest.mark.parametrize(
    ("name", "follows"),
    [("target_net/w", True), ("ema/shadow/0", True), ("teacher/w", False), ("ema_teacher/w", False)],
)
def test_names_of_what_is_exact(name: str, follows: bool) -> None:
    assert (marked(name, BEFORE + 0.1 * MOVED, BEFORE, "'x' is exact").role == "weight") == follows


SQUARES = np.random.default_rng(1).uniform(1, 2, SIZE) * 1e-4


@pytest.mark.parametrize(
    ("name", "mean", "before", "squares", "are_moments"),
    [
        ("m/w", NOISE, MOVED, SQUARES, True),
        ("m/w", NOISE, MOVED, 0.1 * SQUARES, True),
        ("m/w", 0.3 * BEFORE, MOVED, BEFORE**2, False),  # a mean of weights that began at zero
        ("m/w", NOISE, None, SQUARES, False),  # nobody knows yet
        ("m/w", NOISE, NOISE + 0.1 * MOVED, SQUARES, False),  # a parameter: it moves by little
        ("m/w", NOISE, MOVED, 0.001 * SQUARES, False),  # the mean and the variance of a posterior
        ("m/w", NOISE, MOVED, NOISE, False),  # values of attention
        ("m/w", NOISE, 0 * MOVED, SQUARES, False),  # squares without a mean before
        ("exp_avg/w", 0.3 * BEFORE, MOVED, BEFORE**2, False),
        ("exp_avg/w", NOISE, None, SQUARES, True),  # no other thing has this name
        ("exp_avg/w", NOISE, NOISE + 0.1 * MOVED, SQUARES, True),  # a slow mean
        ("exp_avg/w", NOISE, MOVED, NOISE, False),
        ("optimizer/m/w", BEFORE, None, -SQUARES, True),  # an optimizer's, whatever its values are
    ],
)
def test_moments_by_name_alone(
    name: str, mean: np.ndarray, before: np.ndarray | None, squares: np.ndarray, are_moments: bool
) -> None:
    arrays = [candidate("model/w", WEIGHT.astype(np.float32), "weight")]
    was = None if before is None else before.astype(np.float32)
    entry = name.split("/")[-2]
    arrays.append(candidate(name, mean.astype(np.float32), "first_moment", f"{entry!r} of an optimizer", was))
    square, also = "v" if entry == "m" else f"{entry}_sq", squares.astype(np.float32)
    other = name.replace(f"{entry}/", f"{square}/")
    arrays.append(candidate(other, also, "second_moment", f"{square!r} of an optimizer", also))
    mark_copies(arrays)
    roles = [c.role for c in arrays[1:]]
    assert roles == (["first_moment", "second_moment"] if are_moments else ["other", "other"])


def test_of_a_posterior_nothing_is_lost(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    layer = {name: rng.normal(size=(50, 60)).astype(np.float32) for name in ("w", "m", "v")}
    layer["v"] **= 2
    states = []
    with lccodec.Chain(tmp_path, hindsight=3) as chain:
        for step in range(7):
            factor = 1 + 0.01 * rng.normal(size=(50, 60)).astype(np.float32)
            layer = {name: array * factor for name, array in layer.items()}
            states.append({"layer": layer})
            chain.save(step, states[-1])
    for step, state in enumerate(states):
        found = chain.restore(step, exact=False)["layer"]
        assert all(np.array_equal(found[name], state["layer"][name]) for name in ("m", "v"))


def test_what_is_a_moment_at_the_second_save_stays_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    chain = lccodec.Chain(tmp_path, newest="history")
    lossy = []
    for step in range(5):
        arrays = [0.1 * rng.normal(size=(50, 60)) + 0.01 * step, rng.uniform(0.5, 1, (50, 60))]
        state = dict(zip("mv", [{"w": array.astype(np.float32)} for array in arrays], strict=True))
        state["params"] = {"w": rng.normal(size=(50, 60)).astype(np.float32)}
        lossy.append([array.lossy for array in chain.plan(state) if array.name != "params/w"])
        chain.save(step, state)
    assert lossy == [[False, False], *[[True, True]] * 4]


def test_a_mean_with_the_name_of_a_moment_is_kept(tmp_path: Path) -> None:
    chain = lccodec.Chain(tmp_path, newest="history")
    for step in range(3):
        weight = (BEFORE + step * MOVED).astype(np.float32)
        state = {"model": {"weight": weight}, "exp_avg": {"weight": np.float32(0.9) * weight}}
        chain.save(step, state)
    error = chain.restore()["exp_avg"]["weight"] - state["exp_avg"]["weight"]
    assert np.std(error) < 0.02


def run(step: int) -> dict[str, Any]:
    """A weight, its moments, a copy of every 4th step, and an average in a list."""
    rng = np.random.default_rng(1)
    path = rng.normal(size=(40, 50)) + np.cumsum(0.01 * rng.normal(size=(step + 1, 40, 50)), 0)
    average = path[0]
    for own in path:
        average = 0.9 * average + 0.1 * own
    copied = path[max(step - step % 4 - 1, 0)] if step >= 4 else path[0]
    moments = {"exp_avg": 0.1 * rng.normal(size=(40, 50)), "exp_avg_sq": rng.uniform(0.5, 1, (40, 50))}
    state = {"model": {"weight": path[-1]}, "adam": {"state": {"0": moments}}}
    state |= {"target": {"weight": copied}, "ema": {"shadow_params": [average]}}
    return state


def test_a_copy_costs_little_and_rests(tmp_path: Path) -> None:
    chain = lccodec.Chain(tmp_path, newest="history")
    told, errors = [], []
    for step in range(24):
        found = chain.plan(run(step))
        both = zip(found, found.estimates(), strict=True)
        told.append({a.name.partition("/")[0]: (a.why, a.stored, e.stored_bytes) for a, e in both})
        chain.save(step, run(step))
        errors.append(chain.restore()["target"]["weight"] - run(step)["target"]["weight"])
    assert {plan["ema"][0] for plan in told[3:]} == {FOLLOWER}
    assert all(plan["ema"][2] < 8 * SIZE / 8 for plan in told[3:])
    assert all(told[step]["target"][0] == FOLLOWER for step in range(8, 24, 4))
    assert sum(plan["target"][2] for plan in told[8:]) < 4 * SIZE * 16 / 12
    assert max(float(np.sqrt(np.square(error).mean())) for error in errors) < 0.01


def array_of(name: str, role: Role, moves: bool | None = True, shape: tuple[int, ...] = (4,)) -> Candidate:
    """An array; it has no reference if it is not known whether it moves."""
    before = None if moves is None else np.full(shape, 1 - moves, np.float32)
    why = PERHAPS if role == "other" else PARAMETER
    return candidate(name, np.ones(shape, np.float32), role, why, before)


@pytest.mark.parametrize(
    ("moves", "trained"),
    [
        ([True, False, True], "ac"),
        ([True, True, True], ""),  # one of them is an average
        ([True, False, False], ""),  # one that is trained had no gradient
        ([None, None, None], ""),  # the first save
        ([True, None, True], "ac"),
    ],
)
def test_as_many_as_the_optimizer_has(moves: list[bool | None], trained: str) -> None:
    moments = [array_of(f"m{n}", "first_moment") for n in range(3)]
    arrays = [*moments, array_of("d", "weight"), array_of("e", "other", shape=(5,))]
    arrays += [array_of(name, "other", each) for name, each in zip("abc", moves, strict=True)]
    mark_trained(arrays)
    assert "".join(a.name for a in arrays[5:] if (a.role, a.why) == ("weight", PARAMETER)) == trained
    assert arrays[4].role == "other"


def test_a_column_is_not_taken_for_all_of_a_matrix() -> None:
    """A sample at equal distances would see the first column alone."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(256, 64)).astype(np.float32)
    matrix[:, 0] = 0
    assert equal_to(candidate("a", matrix), candidate("b", matrix.copy())) == {"b": "a"}
    assert sources(candidate("w", half(matrix)), candidate("master", matrix)) == {"w": "master"}
    # Nor is an array a copy of a weight that one of its columns follows.
    before, moved = (rng.normal(size=(4096, 64)).astype(np.float32) * np.float32(k) for k in (1, 0.01))
    column, now, weight = np.arange(64) == 0, before + np.float32(0.1) * moved, before + moved
    was, other = (np.where(column, own, own[::-1]) for own in (before, now))
    arrays = [candidate("w", weight, "weight", before=before)]
    arrays.append(candidate("list/0", other, "other", UNNAMED, was))
    mark_followers(arrays)
    assert arrays[1].role == "other"

"""A batch is fitted as each of its arrays alone; a quantizer of a user's own is as good as ours.

Guarantees as numbers, words and checks; signs and zeros stay.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import (
    ArgumentError,
    Balanced,
    Chain,
    ExponentBuckets,
    KeyframeSteps,
    LogSteps,
    Lossless,
    Policy,
    Smooth,
    Triggered,
    UniformDeadzone,
    decode,
    encode,
)
from lccodec.element_types import components, negative, work, zero
from lccodec.frame.decode import decode_components
from lccodec.inspect.loss import guaranteed_error
from lccodec.parallel import PIECE
from lccodec.quantizers import Centres, Partition, Quantizer, Residual, register, registry
from lccodec.quantizers.base import EXACT, Guarantee, check_quantizer
from lccodec.quantizers.clusters import Clusters
from lccodec.quantizers.registry import parse_quantizer, quantizer_json, quantizer_text
from lccodec.quantizers.uniform import Weighted

from ..support.frames import encode_components
from ..support.strategies import REALS, Pair, dtype_of, installed, random_array
from ..support.walks import save_all

QUANTIZERS = [
    *(ExponentBuckets(2), ExponentBuckets(3, "mean"), LogSteps(1.0), Clusters(8)),
    *(UniformDeadzone(relative_step=2.0), UniformDeadzone(relative_step=0.01)),
    UniformDeadzone(max_error=1e-3),
]


@pytest.mark.parametrize("quantizer", QUANTIZERS, ids=str)
@given(
    sizes=st.lists(st.integers(1, 400), min_size=2, max_size=20),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    alone=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_a_batch_is_fitted_as_each_array_alone(
    quantizer: Quantizer, sizes: list[int], dtype: str, alone: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scales = np.repeat(10.0 ** rng.integers(-3, 1, len(sizes)), sizes)
    before = np.abs(rng.standard_normal(sum(sizes))) + 0.01
    after = (before * np.exp(0.3 * scales * rng.standard_normal(before.size))).astype(dtype)
    after[rng.random(after.size) < 0.02] = 1e4
    kind, bits = components(after)
    base = None if alone else components(before.astype(dtype))[1]
    batch = Residual(bits, base, kind, quantizer.ordered, np.array(sizes))
    together = quantizer.fit(batch)
    each = [quantizer.fit(residual) for residual in batch.each()]
    if together is None:
        assert not any(each)
        return
    counts = [0 if part is None else int(part.counts[0]) for part in each]
    # Of LogSteps, an array in a batch is never exact for the sake of byte planes.
    if not isinstance(quantizer, LogSteps) or alone:
        assert together.counts.tolist() == counts
    parts = np.split(together.representatives, np.cumsum(together.counts)[:-1])
    for own, part, low, high in zip(parts, each, together.zone.low, together.zone.high, strict=True):
        if part is not None:
            np.testing.assert_allclose(own, part.representatives, rtol=1e-3)
            own_zone = (part.zone.low[0], part.zone.high[0])
            if isinstance(quantizer, ExponentBuckets):  # differences outside may have symbol 0
                assert own_zone[0] <= low <= high <= own_zone[1]
            else:
                np.testing.assert_allclose((low, high), own_zone, rtol=1e-3)


@dataclass(frozen=True)
class Signs(Quantizer):
    """The mean step up and the mean step down, as sign SGD has them; small steps wait."""

    threshold: float = 0.5

    def bin_width(self, differences: np.ndarray) -> float:
        return 2 * self.threshold * float(np.sqrt(np.square(differences).mean()))

    def scaled(self, factor: float) -> Signs:
        return Signs(self.threshold * factor)

    def fit_one(self, residual: Residual) -> Centres | None:
        d = np.concatenate([d[np.isfinite(d)] for d, _ in residual.sample()])
        smallest = self.threshold * float(np.sqrt(np.square(d, dtype=float).mean())) if d.size else 0.0
        steps = [d[d < -smallest], d[d > smallest]]
        means = np.array([part.mean() for part in steps if part.size], residual.kind.work)
        return Centres.nearest(means, smallest) if means.size else None


@pytest.fixture(autouse=True)
def signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register it, whatever example of the documentation has that name."""
    monkeypatch.setitem(registry._registered, "Signs", Signs)
    assert register(Signs) is Signs


def test_a_quantizer_of_ones_own_works_wherever_ours_do(tmp_path) -> None:
    rng = np.random.default_rng(0)
    states = [{"w": rng.standard_normal((40, 50)).astype("f4"), "b": rng.standard_normal(70).astype("f4")}]
    states += [{k: v + rng.standard_normal(v.shape).astype("f4") * 1e-3 for k, v in states[0].items()}]
    frame = lccodec.encode(states[1]["w"], Signs(), states[0]["w"])
    back = lccodec.decode(frame, states[0]["w"])
    assert len(frame) < states[1]["w"].nbytes / 12
    assert len(np.unique(back - states[0]["w"])) < 2000
    assert 0 < np.abs(back - states[1]["w"]).mean() < np.abs(states[0]["w"] - states[1]["w"]).mean()

    policy = Policy("signs", {"weight": Signs(0.4)}, patterns={"b": Signs()})
    assert Policy.from_json(policy.to_json()) == policy
    assert str(policy.to_json()["roles"]["weight"]) == "{'quantizer': 'Signs', 'threshold': 0.4}"
    balanced = Balanced("own", {"weight": Signs()}, error=0.5, smallest=0, keyframes="exact")
    for number, chosen in enumerate([policy, balanced]):
        with Chain(tmp_path / str(number), chosen, newest="history") as chain:
            save_all(chain, states)
            restored = chain.restore()
            assert 0 < np.abs(restored["w"] - states[1]["w"]).mean() < 1e-3
        with Chain(tmp_path / str(number)) as again:  # by its name, as it was recorded
            assert again.policy == chosen


@pytest.mark.parametrize("sizes", [[300], [100, 200]])
def test_what_a_partition_gets_wrong_makes_no_frame_that_nobody_reads(sizes: list[int]) -> None:
    @dataclass(frozen=True)
    class Wrong(Quantizer):
        fault: str

        def fit_one(self, residual: Residual) -> Partition:
            values = np.array([-1, np.inf if self.fault == "infinite" else 1], residual.kind.work)
            found = Centres.nearest(values, 0.5)
            if self.fault == "symbols":  # of values that there are not
                return Centres(values[:1], found.edges, 0.5, np.inf)
            if self.fault == "counts":
                return Counted(found.representatives, found.edges, 0.5, np.inf)
            return found

    class Counted(Centres):
        counts = np.array([7])

    array = np.linspace(-2, 2, 300)
    kind, bits = components(array)
    shapes = [(size,) for size in sizes]
    for fault in ("infinite", "symbols", "none"):
        frame = b"".join(encode_components(bits, kind, shapes, Wrong(fault), None, run=len(sizes) > 1))
        back = decode_components(frame, None).view(np.float64)
        assert np.isfinite(back).all()
        if fault == "symbols":
            assert (back[array > 0.5] == array[array > 0.5]).all()
    with pytest.raises(ArgumentError, match=r"Wrong.* made a partition"):
        list(encode_components(bits, kind, shapes, Wrong("counts"), None, run=len(sizes) > 1))


def test_what_is_no_quantizer_is_refused() -> None:
    class Nothing(Quantizer):
        pass

    with pytest.raises(ArgumentError, match="dataclass"):
        register(Nothing)
    with pytest.raises(ArgumentError, match="already"):
        register(dataclass(type("Clusters", (Quantizer,), {})))
    with pytest.raises(ArgumentError, match="make one of it"):
        check_quantizer(Clusters)
    with pytest.raises(NotImplementedError, match="Nothing"):
        lccodec.encode(np.ones(3), Nothing())
    unnamed = dataclass(frozen=True)(type("Unnamed", (Quantizer,), {}))()
    with pytest.raises(ArgumentError, match="register"):
        Policy("p", {"weight": unnamed})
    with pytest.raises(ArgumentError):
        quantizer_json(unnamed)


@pytest.mark.parametrize("quantizer", [*QUANTIZERS, lccodec.Lossless(), Signs(0.25)], ids=str)
def test_quantizers_as_json_and_text(quantizer: Quantizer) -> None:
    assert parse_quantizer(quantizer_json(quantizer)) == quantizer
    names = {**vars(lccodec), "Clusters": Clusters, "Signs": Signs}
    assert eval(quantizer_text(quantizer), names) == quantizer  # noqa: S307


def test_a_bound_of_a_quantizer_is_its_guarantee() -> None:
    class Bounded(Quantizer):
        max_error = 0.25

    assert str(Bounded().guarantee) == "error at most 0.25"
    assert guaranteed_error(Bounded()) == 0.25
    assert str(Quantizer().guarantee) == ""
    assert guaranteed_error(Quantizer()) is None


FLOATS = installed(REALS)
GUARANTEED: list[Any] = [
    *(UniformDeadzone(step=0.3), UniformDeadzone(max_error=0.2), UniformDeadzone(max_error=1e-3)),
    *(UniformDeadzone(relative_step=2.0), UniformDeadzone(share=0.1), KeyframeSteps(first=1.0)),
    UniformDeadzone(relative_step=5.0, absolute=True),
    UniformDeadzone(relative_step=2.8, absolute=True, dead_zone=0.39),
    *(ExponentBuckets(1), ExponentBuckets(2), ExponentBuckets(3, "mean")),
    *(Clusters(4, 0.3, 0.01), Clusters(2, 0.0, 0.0)),
    *(LogSteps(1.0), Triggered(ExponentBuckets(2), 0.5), Lossless()),
]


def nonnegative(rng: np.random.Generator, name: str, size: int, zeros: float, hard: bool) -> np.ndarray:
    with np.errstate(all="ignore"):
        array = (rng.standard_exponential(size) * 10.0 ** rng.integers(-4, 3)).astype(dtype_of(name))
        if hard:
            special = random_array(name, (size,), int(rng.integers(1 << 30)), special=1.0)
            values = special.astype(np.float64)
            array = np.where((rng.random(size) < 0.1) & ~(values < 0), special, array)
    array[rng.random(size) < zeros] = 0
    array[rng.random(size) < zeros / 4] = -0.0
    return array


def check(array: np.ndarray, restored: np.ndarray) -> None:
    kind, before = components(array)
    _, after = components(restored)
    assert not negative(before, kind).any()
    assert not negative(after, kind).any()
    assert zero(after)[zero(before)].all()


@st.composite
def cases(draw: st.DrawFn) -> Pair:
    """An array without negative numbers and a reference: one like it, any, or none."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    name, size = draw(st.sampled_from(FLOATS)), draw(st.integers(0, 2000))
    zeros = draw(st.sampled_from([0.0, 0.1, 0.9]))
    array = nonnegative(rng, name, size, zeros, draw(st.booleans()))
    how = draw(st.sampled_from(["none", "near", "like", "any"]))
    if how == "none":
        return array, None
    if how == "near":
        with np.errstate(all="ignore"):
            return array, (array.astype(np.float64) + 0.1 * rng.standard_normal(size)).astype(array.dtype)
    if how == "like":
        return array, nonnegative(rng, name, size, zeros, hard=True)
    return array, random_array(name, (size,), draw(st.integers(0, 2**32)))


@given(cases(), st.sampled_from(GUARANTEED))
def test_one_array(pair: Pair, quantizer: Any) -> None:
    array, reference = pair
    check(array, decode(encode(array, quantizer, reference), reference))


@given(cases(), st.sampled_from(GUARANTEED), st.integers(0, 2**32))
def test_the_arrays_of_a_run(pair: Pair, quantizer: Any, seed: int) -> None:
    """Each by itself: beside them lies one with negative numbers."""
    array, reference = pair
    rng = np.random.default_rng(seed)
    signed = random_array("float32", (50,), seed, special=0).astype(array.dtype)
    parts = [part for part in np.split(array, [array.size // 3]) if part.size]
    kind, bits = components(np.concatenate([*parts, signed]))
    base = None
    if reference is not None and not quantizer.absolute:
        base = components(np.concatenate([reference, rng.permutation(signed)]))[1]
    shapes = [(part.size,) for part in [*parts, signed]]
    frame = b"".join(encode_components(bits, kind, shapes, quantizer, base, run=True))
    restored = decode_components(frame, base)
    check(array, restored[: array.size].view(array.dtype))


@pytest.mark.parametrize("quantizer", GUARANTEED)
@pytest.mark.parametrize("effort", ["normal", "high"])
def test_several_pieces_of_which_only_the_last_has_zeros(quantizer: Any, effort: Any) -> None:
    rng = np.random.default_rng(0)
    reference = rng.standard_exponential((2 * PIECE + 1024) // 64 * 64).astype(np.float32).reshape(-1, 64)
    array = np.abs(reference + 0.1 * rng.standard_normal(reference.shape).astype(np.float32))
    array[-9:] = 0
    check(array, decode(encode(array, quantizer, reference, effort=effort), reference))


def test_weights_by_their_moments() -> None:
    rng = np.random.default_rng(0)
    reference = np.abs(rng.standard_normal(5000)).astype(np.float32)
    array = np.abs(reference + rng.standard_normal(5000).astype(np.float32) * np.float32(0.3))
    array[::5] = 0
    kind, moment = components(rng.standard_exponential(5000).astype(np.float32))
    quantizer = Weighted(UniformDeadzone(relative_step=2.0), moment, kind, 1.0)
    check(array, decode(encode(array, quantizer, reference), reference))


def test_one_negative_number_lifts_it() -> None:
    """Then the array is one of signed numbers, and takes no bytes for its zeros."""
    rng = np.random.default_rng(0)
    reference = np.abs(rng.standard_normal(5000)).astype(np.float32) * np.float32(1e-3)
    array = np.zeros_like(reference)
    array[:100] = 1
    quantizer = UniformDeadzone(step=0.1)
    frame = encode(array, quantizer, reference)
    np.testing.assert_array_equal(decode(frame, reference)[100:], 0)
    array[7] = -1
    signed = encode(array, quantizer, reference)
    np.testing.assert_array_equal(decode(signed, reference)[100:], reference[100:])
    assert len(signed) < len(frame) / 10


def test_what_waits() -> None:
    """A small move is waited for, but not one to 0, nor while the reference is below 0."""
    reference = np.full(5000, 2, np.float32)
    kind, before = components(reference)
    quantizer = Triggered(ExponentBuckets(2), 0.5)
    for value, waits in ((1.9, True), (0.0, False), (-0.1, True)):
        array = np.full(5000, 1.9, np.float32)
        array[-1] = value
        assert quantizer.waits(components(array)[1], before, kind) == waits
    reference[-1] = -0.01
    assert not quantizer.waits(components(np.full_like(reference, 1.9))[1], before, kind)


@pytest.mark.parametrize("name", FLOATS)
def test_what_is_negative_and_what_is_zero(name: str) -> None:
    array = random_array(name, (4000,), 0, special=0.9)
    array[:4] = [0.0, -0.0, -np.inf, np.inf]
    kind, bits = components(array)
    with np.errstate(invalid="ignore"):
        values = work(bits, kind).astype(np.float64)
        np.testing.assert_array_equal(negative(bits, kind), values < 0)
        np.testing.assert_array_equal(zero(bits), values == 0)


def broken(guarantee: Guarantee, decoded: list[float], original: list[float]) -> list[bool]:
    kind, was = components(np.array(original, np.float32))
    found: list[bool] = guarantee.broken(components(np.array(decoded, np.float32))[1], was, kind).tolist()
    return found


@pytest.mark.parametrize("step", [0.001, 0.1, 0.25, 1 / 3, 1.0, 1.7, 64.0])
def test_words_are_not_better_than_what_holds(step: float) -> None:
    for guarantee, number in (
        (LogSteps(step).guarantee, LogSteps(step).max_ratio),
        (UniformDeadzone(max_error=step / 7).guarantee, step / 7),
        (Smooth(relative_error=step / 7).guarantee, step / 7),
    ):
        (told,) = re.findall(r"at most ([0-9.e+-]+)", str(guarantee))
        assert number <= float(told) <= 1.01 * number


def test_words() -> None:
    assert str(EXACT) == str(Lossless().guarantee) == "exact"
    assert str(Guarantee()) == str(UniformDeadzone(share=0.3).guarantee) == ""
    assert str(ExponentBuckets().guarantee) == ""
    assert str(UniformDeadzone(max_error=0.25).guarantee) == "error at most 0.25"
    assert str(LogSteps(1.0).guarantee) == "at most 1.61 times too large or too small"
    assert str(Smooth(max_error=0.5).guarantee) == "error at most 0.5"
    assert str(Smooth(0.5, 1e-3).guarantee) == "error at most 0.5 and 0.001 of the range"
    smooth = Smooth(0.5, minimum=0.0, maximum=2.0, conserve="sum")
    assert str(smooth.guarantee) == "error at most 0.5, at least 0.0, at most 2.0, and the sum is kept"
    signed = UniformDeadzone(relative_step=1.0, absolute=True)
    assert str(signed.guarantee) == "0, or of the same sign and at most 5.34 times as large"


def test_two_losses_add_up() -> None:
    bound, wider = Guarantee(max_error=1.0), Guarantee(max_error=2.0)
    assert bound.after(wider) == Guarantee(max_error=3.0)
    assert bound.after(EXACT) == EXACT.after(bound) == bound.either(EXACT) == bound
    assert bound.either(wider) == wider
    assert bound.after(LogSteps().guarantee) == Guarantee()
    shares = Guarantee(range_share=0.25).after(Guarantee(range_share=0.5))
    assert shares == Guarantee(range_share=0.5 + 0.25 * 2)
    assert LogSteps(1.0).guarantee.after(LogSteps(2.0).guarantee).max_ratio == LogSteps(3.0).max_ratio
    assert wider.follows_from(bound)
    assert wider.follows_from(EXACT)
    assert not bound.follows_from(wider)
    assert not EXACT.follows_from(bound)


def test_every_element_is_checked() -> None:
    x = [1.0, -1.0, 0.0, 2.0]
    assert broken(EXACT, [1.0, -1.0, -0.0, 2.0], x) == [False, False, True, False]
    assert broken(Guarantee(max_error=0.5), [1.5, -1.75, 0.0, 2.0], x) == [False, True, False, False]
    assert broken(Guarantee(range_share=0.25), [1.75, -1.8, 0.0, 2.0], x) == [False, True, False, False]
    assert broken(Guarantee(max_growth=2.0), [-0.5, -2.0, 0.1, 0.0], x) == [True, False, True, False]
    assert broken(LogSteps(1.0).guarantee, [1.5, 1.0, 1e-9, 4.0], [1, 1, 0, 2]) == [False, False, True, True]
    assert broken(Guarantee(minimum=0.5), [0.4, 0.4], [0.5, 0.4]) == [True, False]
    assert broken(Guarantee(), [-1.0, 0.5], [1.0, 0.0]) == [True, True]  # no number of it is negative
    assert broken(Guarantee(keeps_zeros=False), [-1.0, 0.5], [1.0, 0.0]) == [True, False]
    assert broken(Guarantee(), [np.nan, 1.0], [1.0, np.inf]) == [True, True]

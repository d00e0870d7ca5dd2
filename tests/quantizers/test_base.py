"""A batch is fitted as each of its arrays alone; a quantizer of a user's own is as good as ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import ArgumentError, Balanced, Chain, ExponentBuckets, LogSteps, Policy, UniformDeadzone
from lccodec.element_types import components
from lccodec.frame.decode import decode_components
from lccodec.inspect.loss import guaranteed_error
from lccodec.quantizers import Centres, Partition, Quantizer, Residual, register, registry
from lccodec.quantizers.base import check_quantizer
from lccodec.quantizers.clusters import Clusters
from lccodec.quantizers.registry import parse_quantizer, quantizer_json, quantizer_text

from ..support.frames import encode_components
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
def signs() -> Iterator[None]:
    register(Signs)
    yield
    del registry._registered["Signs"]


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

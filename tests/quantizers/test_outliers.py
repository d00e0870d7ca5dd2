"""A few extreme numbers take only their own bytes, and do not change how others are stored."""

from typing import Any

import numpy as np
import pytest

from lccodec import ExponentBuckets, LogSteps, UniformDeadzone, decode, encode
from lccodec.element_types import components
from lccodec.frame.decode import decode_components
from lccodec.quantizers.clusters import Clusters

from ..support.frames import encode_components
from ..support.strategies import REALS, dtype_of

SIZE = 1_000_000


def steps(name: str, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(SIZE) * 1e-3).astype(dtype_of(name))


def with_outliers(array: np.ndarray, value: float, count: int = 1, at: int = 262_144) -> np.ndarray:
    """At places of which some are, and some are not, among the samples that steps are chosen by."""
    changed = array.copy()
    changed[np.arange(count) * 20_011 + at] = value
    return changed


@pytest.mark.parametrize("at", [262_144, 700_000, SIZE - 1])
@pytest.mark.parametrize("value", [5.0, 50.0, -3e30])
@pytest.mark.parametrize(
    "quantizer",
    [
        *(UniformDeadzone(max_error=2e-4), UniformDeadzone(step=1e-3)),
        *(UniformDeadzone(relative_step=0.3), UniformDeadzone(relative_step=2.0)),
        UniformDeadzone(relative_step=1.0, absolute=True),
        *(ExponentBuckets(3), Clusters(8)),
    ],
)
def test_one_outlier(quantizer: Any, value: float, at: int) -> None:
    array = steps("float32")
    reference = None if quantizer.absolute else np.zeros_like(array)
    plain = encode(array, quantizer, reference)
    changed = with_outliers(array, value, at=at)
    frame = encode(changed, quantizer, reference)
    if not isinstance(quantizer, ExponentBuckets):  # whose largest buckets are promoted, as the paper has it
        assert len(frame) == pytest.approx(len(plain), rel=0.01)
        restored = decode(frame, reference)
        assert restored[at] == np.float32(value)
        others = np.arange(SIZE) != at
        error, expected = (np.std((a - array)[others]) for a in (restored, decode(plain, reference)))
        assert error == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("name", REALS)
@pytest.mark.parametrize("count", [1, 20])
def test_every_type(name: str, count: int) -> None:
    array = steps(name)
    for quantizer in (UniformDeadzone(max_error=5e-4), UniformDeadzone(relative_step=1.0)):
        plain = encode(array, quantizer)
        changed = with_outliers(array, 300.0, count)
        frame = encode(changed, quantizer)
        assert len(frame) == pytest.approx(len(plain), rel=0.01)
        assert (decode(frame)[changed == 300] == 300).all()


@pytest.mark.parametrize("low", [True, False])
@pytest.mark.parametrize("step", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("relative", [True, False])
def test_steps_of_the_logarithm(step: float, relative: bool, low: bool) -> None:
    rng = np.random.default_rng(0)
    array = (2.0 ** rng.uniform(-20, -18, SIZE)).astype(np.float32)
    reference = (array * 2.0 ** rng.normal(0, 0.3, SIZE)).astype(np.float32) if relative else None
    quantizer = LogSteps(step)
    plain = encode(array, quantizer, reference)
    changed = with_outliers(array, 1e-36 if low else 1e36)
    frame = encode(changed, quantizer, reference)
    assert len(frame) <= len(plain) * 1.01
    ratio = decode(frame, reference) / changed
    assert max(ratio.max(), 1 / ratio.min()) <= quantizer.max_ratio * (1 + 1e-6)


@pytest.mark.parametrize("quantizer", [UniformDeadzone(step=1e-3), UniformDeadzone(max_error=5e-4)])
def test_in_a_run(quantizer: Any) -> None:
    arrays = [steps("float32", seed)[:10_000] for seed in range(3)]
    plain, changed = (np.concatenate(x) for x in (arrays, arrays))
    changed[777], changed[12_000], changed[25_000] = 0.1, 5, -1e30
    sizes = []
    for array in (plain, changed):
        kind, bits = components(array)
        frame = b"".join(encode_components(bits, kind, [(10_000,)] * 3, quantizer, None, run=True))
        sizes.append(len(frame))
        restored = decode_components(frame, None).view(np.float32)
        assert np.abs(restored - array).max() <= 1e-3
    assert sizes[1] < sizes[0] + 150
    assert restored[25_000] == np.float32(-1e30)


@pytest.mark.parametrize("name", REALS)
def test_most_elements_are_never_exceptions(name: str) -> None:
    """Where no bin holds enough, the frame is as small as an exact one."""
    array = steps(name)[:50_000]
    exact = len(encode(array, UniformDeadzone(step=1e-37 if name == "float32" else 1e-300)))
    for step in (1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-12):
        for quantizer in (UniformDeadzone(step=step), UniformDeadzone(max_error=step)):
            assert len(encode(array, quantizer)) <= 1.05 * exact


def test_a_crowd_is_not_taken_for_outliers() -> None:
    """Where few elements have moved at all, these set the step."""
    reference = np.zeros(SIZE, np.float32)
    array = reference.copy()
    array[::100_000] = np.linspace(1, 2, 10)
    restored = decode(encode(array, UniformDeadzone(relative_step=2.0), reference), reference)
    assert (restored[array > 0] > 0).all()

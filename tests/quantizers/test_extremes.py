"""The ends of each type's range: nothing overflows with a warning, nothing becomes infinite."""

from typing import Any

import numpy as np
import pytest

from lccodec import ExponentBuckets, LogSteps, Lossless, Smooth, Triggered, UniformDeadzone, decode, encode
from lccodec.element_types import components, work
from lccodec.frame.decode import decode_components
from lccodec.quantizers.clusters import Clusters
from lccodec.quantizers.uniform import Weighted

from ..support.frames import encode_components
from ..support.profiles import LONG
from ..support.strategies import REALS, dtype_of, ends_of

SIZE = 3000
MOMENT = components(np.geomspace(1e-300, 1e300, SIZE))
QUANTIZERS: list[Any] = [
    *(UniformDeadzone(step=step) for step in (1e-310, 1e-3, 1e200, 1e308)),
    *(UniformDeadzone(max_error=bound) for bound in (1e-310, 1e-3, 1e200, 1.7e308)),
    *(UniformDeadzone(relative_step=step) for step in (1e-300, 0.1, 2.0, 1e300)),
    UniformDeadzone(relative_step=5.0, absolute=True),
    UniformDeadzone(relative_step=2.8, absolute=True, dead_zone=0.39),
    *(ExponentBuckets(1), ExponentBuckets(3), ExponentBuckets(3, "mean"), ExponentBuckets(8, "mean")),
    *(Clusters(8), Clusters(255, 0.0, 0.2, 1.0), Clusters(2, 0.0, 0.0, 0.0)),
    *(LogSteps(0.001), LogSteps(1.0), LogSteps(64)),
    *(Smooth(max_error=bound) for bound in (1e-310, 1e-3, 1e200, 1.7e308)),
    *(Smooth(relative_error=bound) for bound in (1e-300, 1e-6, 2.0)),
    Triggered(ExponentBuckets(2), 0.5),
    Weighted(UniformDeadzone(relative_step=2.0), MOMENT[1], MOMENT[0], 1.0),
    Lossless(),
]


def extremes(name: str) -> list[np.ndarray]:
    most, tiny = ends_of(name)
    rng = np.random.default_rng(0)
    sign = rng.choice([-1.0, 1.0], SIZE)
    root = most**0.65  # 1e200 for float64, whose square is past the end
    values = [
        np.full(SIZE, most),
        sign * most,
        sign * most * rng.uniform(0.3, 1, SIZE),
        sign * root * rng.uniform(0, 1, SIZE),
        np.where(rng.random(SIZE) < 0.01, most, rng.standard_normal(SIZE)),
        np.where(rng.random(SIZE) < 0.5, most, sign * tiny),
        sign * 10.0 ** rng.uniform(np.log10(tiny) + 1, np.log10(most), SIZE),
        sign * tiny,
        np.zeros(SIZE),
    ]
    with np.errstate(all="ignore"):
        return [np.clip(x, -most, most).astype(dtype_of(name)) for x in values]


@pytest.mark.parametrize("quantizer", QUANTIZERS, ids=repr)
@pytest.mark.parametrize("name", REALS)
def test_no_warning_and_nothing_infinite(name: str, quantizer: Any) -> None:
    """Of the references of an array, every second one; every one in the nightly profile."""
    arrays = extremes(name)
    turn = REALS.index(name) + QUANTIZERS.index(quantizer)
    for number, array in enumerate(arrays):
        references = None, arrays[number - 1], arrays[number - 4], array[::-1].copy()
        for reference in references if LONG else references[(number + turn) % 2 :: 2]:
            restored = decode(encode(array, quantizer, reference), reference)
            kind, bits = components(restored)
            assert np.isfinite(work(bits, kind)).all()
            before = None if reference is None else components(reference)[1]
            if isinstance(quantizer, Triggered) and before is not None:
                quantizer.waits(components(array)[1], before, kind)
            if isinstance(quantizer, UniformDeadzone) and quantizer.absolute:
                before = None
            shapes = [(10,), (1000,), (SIZE - 1010,)]
            frame = b"".join(
                encode_components(components(array)[1], kind, shapes, quantizer, before, run=True)
            )
            assert np.isfinite(work(decode_components(frame, before), kind)).all()

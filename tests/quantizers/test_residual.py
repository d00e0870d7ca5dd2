import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.element_types import components, subtract
from lccodec.parallel import PIECE
from lccodec.quantizers.residual import Residual, RowSums, Zone

from ..support.strategies import REALS, Pair, array_and_reference
from ..support.tuning import tune, tuned


def zone(low: float, high: float, work: np.dtype) -> Zone:
    return Zone(np.array([low], work), np.array([high], work))


@given(array_and_reference(REALS), st.lists(st.floats(0, 4), min_size=2, max_size=4), st.booleans())
@pytest.mark.parametrize("kept", [1 << 22, 0])
def test_what_is_outside_a_widening_zone(kept: int, pair: Pair, widths: list[float], lopsided: bool) -> None:
    array, reference = pair
    kind, bits = components(array)
    base = None if reference is None else components(reference)[1]
    d = subtract(bits, base, kind)
    with tuned(residual_max_kept_bytes=kept):
        residual = Residual(bits, base, kind)
        for width in sorted(widths):
            dead = zone(-width, width / 2 if lopsided else width, kind.work)
            for start in residual.pieces:
                places, found = residual.outside(start, dead)
                expected = np.flatnonzero(~((d > dead.low) & (d < dead.high)))
                np.testing.assert_array_equal(places, expected)
                np.testing.assert_array_equal(found, d[expected])


def test_pieces_are_taken_apart_and_forgotten_beyond_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, residual_max_kept_bytes=8 * (PIECE + 10))
    values = np.random.default_rng(0).standard_normal(3 * PIECE + 5).astype(np.float32)
    kind, bits = components(values)
    residual = Residual(bits, None, kind)
    everything = zone(0, 0, kind.work)
    assert list(residual.pieces) == [0, PIECE, 2 * PIECE, 3 * PIECE]
    first = residual.outside(0, everything)
    assert residual.outside(0, everything)[1] is first[1]  # kept
    np.testing.assert_array_equal(residual.outside(0, everything)[0], first[0])
    second = residual.outside(PIECE, everything)
    assert residual.outside(PIECE, everything)[1] is not second[1]  # no room
    assert residual.outside(3 * PIECE, everything)[0].tolist() == [0, 1, 2, 3, 4]
    # A wider zone makes room again.
    assert residual.outside(0, zone(-9, 9, kind.work))[0].size == 0
    second = residual.outside(PIECE, everything)
    assert residual.outside(PIECE, everything)[1] is second[1]
    np.testing.assert_array_equal(second[1], values[PIECE : 2 * PIECE])
    residual.release(PIECE)
    assert residual.outside(PIECE, everything)[1] is not second[1]


def sampled(values: np.ndarray) -> np.ndarray:
    kind, bits = components(values)
    return np.concatenate([d for d, _ in Residual(bits, None, kind).sample()])


def test_a_sample_is_spread_over_the_array() -> None:
    values = np.arange(1_000_003, dtype=np.float32)
    seen = sampled(values)
    assert 200_000 < seen.size <= 1 << 18
    assert np.median(seen) == pytest.approx(500_000, rel=0.02)
    few = values[:5000]
    np.testing.assert_array_equal(sampled(few), few)


@pytest.mark.parametrize("piece", [1, 7, 50, 10_000])
@pytest.mark.parametrize(
    ("shape", "components", "by"),
    [
        ((30, 40), 1, "rows"),
        ((30, 40), 1, "columns"),
        ((400, 3), 1, "columns"),
        ((20, 3, 10), 1, "rows"),
        ((20, 3, 10), 1, "columns"),
        ((20, 20), 2, "rows"),
        ((2, 600), 1, "rows"),
        ((15, 15), 1, ""),
        ((300,), 1, ""),
        ((1, 300), 1, ""),
        ((300, 1), 1, ""),
    ],
)
def test_means_of_rows_by_pieces(shape: tuple[int, ...], components: int, by: str, piece: int) -> None:
    """What each row or column has missed in the mean, whichever moves more as a whole."""
    rng = np.random.default_rng(0)
    size = int(np.prod(shape)) * components
    missed, d = rng.standard_normal((2, size))
    matrix = d.reshape(shape[0], -1) if by == "rows" else d.reshape(-1, shape[-1] * components)
    matrix += 3 * rng.standard_normal((matrix.shape[0], 1) if by == "rows" else matrix.shape[1])
    sums = RowSums(shape, size)
    for start in range(0, size, piece):
        sums.add(start, missed[start : start + piece], d[start : start + piece])
    shift = sums.shift(np.float64(0.2))
    assert (shift is None) == (not by)
    if shift is None:
        return
    means = missed.reshape(matrix.shape).mean(int(by == "rows"), keepdims=True)
    expected = np.broadcast_to(np.clip(means, -0.2, 0.2), matrix.shape).ravel()
    found = [shift.part(start, min(piece, size - start)) for start in range(0, size, piece)]
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shape", [(4000, 20), (20, 4000)])
def test_no_sums_of_very_many_rows(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the few long ones may be kept; the others would take memory like the array."""
    tune(monkeypatch, residual_max_sums=1000)
    d = np.random.default_rng(0).standard_normal(80_000)
    sums = RowSums(shape, d.size)
    sums.add(0, d, d)
    shift = sums.shift(np.float64(9))
    assert shift is not None
    assert shift.numbers.size == 20

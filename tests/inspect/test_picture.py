"""Pictures of fields show the values, the errors and the waves that are there."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec.chain.read.replay import DecodedArray
from lccodec.element_types import components
from lccodec.inspect.examination import examine
from lccodec.inspect.report import MAX_PICTURES, SIDE, Picture, Raster, picture, spectrum

PLACE = "ignore:.*is lossy for"  # the note of a chain about its policy


def decoded(values: np.ndarray) -> DecodedArray:
    kind, bits = components(values)
    return DecodedArray(kind, values.shape, bits)


def made(values: np.ndarray, original: np.ndarray | None = None) -> Picture:
    exact = None if original is None else components(original)[1]
    found = picture("u", 7, decoded(values), exact, 0.25)
    assert found is not None
    return found


def numbers(raster: Raster) -> np.ndarray:
    pixels = np.frombuffer(base64.b64decode(raster.pixels), np.uint8).reshape(raster.rows, raster.columns)
    found = raster.low + (pixels.astype(float) - 1) / 254 * (raster.high - raster.low)
    return np.where(pixels, found, np.nan)


def wave(*shape: int) -> np.ndarray:
    axes = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij", sparse=True)
    return np.asarray(sum(np.sin(axis / (3 + k)) for k, axis in enumerate(axes)))


@pytest.mark.parametrize(
    ("shape", "place"),
    [
        ((40, 50), "[:, :]"),
        ((9, 40, 50), "[4, :, :]"),
        ((40, 50, 3), "[:, :, 1]"),
        ((30, 30, 30), "[15, :, :]"),
        ((4, 20, 6, 20), "[2, :, 3, :]"),
    ],
)
def test_the_slice_is_in_the_middle_along_the_longest_axes(shape: tuple[int, ...], place: str) -> None:
    values = wave(*shape)
    found = made(values)
    assert (found.name, found.step, found.place, found.measured) == ("u", 7, place, 0.25)
    index = tuple(slice(None) if part == ":" else int(part) for part in place[1:-1].split(", "))
    assert (found.values.low, found.values.high) == (values[index].min(), values[index].max())
    np.testing.assert_allclose(numbers(found.values), values[index], atol=0.01)
    assert found.error is found.largest is found.original_power is None


def test_a_pixel_of_the_error_is_the_farthest_from_zero() -> None:
    original = wave(300, 257)
    values = original.copy()
    values[1, 256] += 1e-3
    values[200, 0] -= 2e-3
    found = made(values, original)
    assert (found.values.rows, found.values.columns) == (SIDE, SIDE)
    assert found.error is not None
    assert found.largest == found.error.high == -found.error.low == pytest.approx(2e-3)
    errors = numbers(found.error)
    assert np.nanmin(errors) == pytest.approx(-2e-3)
    assert np.nanmax(errors) == pytest.approx(1e-3, rel=0.02)
    assert np.count_nonzero(np.abs(errors) > 1e-4) == 2
    same = made(original, original)
    assert (same.largest, same.power) == (0.0, same.original_power)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_fill_values_and_what_is_not_finite_have_no_colour(dtype: type) -> None:
    original = wave(60, 60).astype(dtype)
    original[:10, :10] = 1e20
    original[30, 30], original[31, 31] = np.nan, np.inf
    values = original + dtype(1e-3)
    values[50, 50] = np.nan
    found = made(values, original)
    assert found.error is not None
    gone = np.isnan(numbers(found.values))
    assert np.count_nonzero(gone) == np.count_nonzero(np.isnan(numbers(found.error))) == 103
    assert gone[:10, :10].all()
    assert gone[[30, 31, 50], [30, 31, 50]].all()
    assert -2 < found.values.low < found.values.high < 2.1
    assert found.largest == pytest.approx(1e-3, rel=1e-3)


def test_what_has_no_number_has_no_picture() -> None:
    values = np.full((20, 20), np.nan)
    assert picture("u", 0, decoded(values), None, None) is None
    still = made(np.full((20, 20), 3.0), np.full((20, 20), 3.0))
    assert (still.values.low, still.values.high, still.largest, still.power) == (3.0, 3.0, 0.0, [])
    huge = made(np.array([[1.7e308, -1.7e308] * 10] * 20))
    assert set(numbers(huge.values).reshape(-1) > 0) == {True, False}


def test_a_wave_has_its_power_at_its_frequency_in_any_direction() -> None:
    at = np.arange(2000)
    for turned in (0.0, 0.5, 1.5):
        phase = np.cos(turned) * at[:90, None] + np.sin(turned) * at
        values = np.sin(2 * np.pi * 0.2 * phase) + 100
        values[3, 4] = np.nan
        frequencies, power = spectrum(values, np.isfinite(values), 2.0)
        assert frequencies[int(np.argmax(power))] == pytest.approx(0.2, abs=0.01)
        assert sum(
            each for f, each in zip(frequencies, power, strict=True) if abs(f - 0.2) > 0.03
        ) < 0.1 * sum(power)
    assert spectrum(values, np.zeros(values.shape, bool), 2.0) == ([], [])


def chain_of(path: Path, policy: object, count: int = 1, newest: str = "exact") -> None:
    with lccodec.Chain(path, policy, newest=newest) as chain:  # type: ignore[arg-type]
        for step in range(3):
            fields = {f"u{n}": wave(30 + n, 40) * (1 + 0.01 * step) for n in range(count)}
            noise = np.random.default_rng(0).standard_normal((30, 30))
            chain.save(step, {**fields, "line": wave(2000), "noise": noise})


@pytest.mark.filterwarnings(PLACE)
def test_fields_of_a_chain_have_pictures(tmp_path: Path) -> None:
    policy = lccodec.fields(relative_error=1e-4)
    chain_of(tmp_path / "run", policy)
    chain_of(tmp_path / "bare", policy, newest="history")
    chain_of(tmp_path / "exact", "lossless")
    (run,) = examine(tmp_path / "run").runs
    assert run.streams["smooth"] > 0
    (with_exact,) = run.pictures
    (bare,) = examine(tmp_path / "bare").runs[0].pictures
    (against,) = examine(tmp_path / "bare", against=tmp_path / "exact").runs[0].pictures
    (older,) = examine(tmp_path / "run", against=tmp_path / "exact", steps=[0, 1]).runs[0].pictures
    assert [each.name for each in (with_exact, bare, against, older)] == ["u0"] * 4
    assert [each.step for each in (with_exact, bare, against, older)] == [2, 2, 2, 1]
    assert bare.values == with_exact.values
    assert (bare.error, bare.largest) == (None, None)
    assert bare.measured is not None
    assert 0 < bare.measured < 1e-4 * np.ptp(wave(30, 40))
    assert with_exact == against
    restored = lccodec.Chain(tmp_path / "bare").restore(2)["u0"]
    assert against.largest == np.abs(restored - wave(30, 40) * 1.02).max() > 0
    assert examine(tmp_path / "exact").runs[0].pictures == []


@pytest.mark.filterwarnings(PLACE)
def test_the_largest_have_pictures(tmp_path: Path) -> None:
    chain_of(tmp_path / "run", lccodec.fields(relative_error=1e-4), count=MAX_PICTURES + 2)
    found = [each.name for each in examine(tmp_path / "run").runs[0].pictures]
    assert found == [f"u{n}" for n in range(2, MAX_PICTURES + 2)]

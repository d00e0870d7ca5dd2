"""The document of a report: plain, finite, rounded.

Pictures of fields show the values, the errors and the waves that are there.

Numbers beside the arrays become series: what changes, each once.

What is left out where there is more than a page can hold.
"""

import base64
import json
import math
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec.chain.read.replay import DecodedArray
from lccodec.container.manifest import Figures
from lccodec.container.tree import numbers_of
from lccodec.element_types import components
from lccodec.inspect.examination import examine
from lccodec.inspect.report import (
    FIGURES,
    MAX_CELLS,
    MAX_PICTURES,
    MAX_SERIES,
    MAX_STEPS,
    SIDE,
    STREAMS,
    ArrayRow,
    Checkpoint,
    Histogram,
    Picture,
    Raster,
    Report,
    Run,
    document,
    largest,
    picture,
    series_of,
    spectrum,
    step_limit,
)
from lccodec.table import evenly_spaced

from ..support.reports import made_up_report


def test_the_document_is_json_of_finite_numbers():
    found = document(made_up_report())
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    run = found["runs"][0]
    assert list(run["figures"]) == list(FIGURES)
    assert set(run["streams"]) == set(STREAMS)
    assert all(len(rows) == len(run["arrays"]) for rows in run["figures"].values())
    assert {len(series) for rows in run["figures"].values() for series in rows} == {len(run["steps"])}


def test_what_a_save_measured_has_all_of_its_numbers():
    known = Figures(spread=3.0, movement=0.1, error=0.075, lag=0.0123456, quantiles=(1.234567, 2.0))
    figures = {"weight": known}
    run = Run("x", "file", (), [Checkpoint(1, "delta", figures=figures)], (), [], {}, (), {})
    (found,) = document(Report("1", (), [run]))["runs"][0]["checkpoints"]
    assert found["figures"]["weight"] == {
        "spread": 3.0,
        "movement": 0.1,
        "error": 0.075,
        "lag": 0.012346,
        **dict.fromkeys(["rms", "minimum", "maximum", "zeros", "not_finite"]),
        "quantiles": [1.2346, 2.0],
        "error_in_movements": 0.75,
        "error_in_spreads": 0.025,
    }


def test_numbers_are_rounded_and_finite():
    figures = {"rms": [[1.23456789e-7, math.nan, math.inf, None]]}
    run = Run(
        "x",
        "file",
        (),
        [Checkpoint(None, "keyframe")],
        (),
        [0],
        figures,
        [Histogram(-1.0, 2.0, [[3]]), None],
        {},
    )
    found = document(Report("1", (), [run]))["runs"][0]
    assert found["figures"]["rms"] == [[1.2346e-7, None, None, None]]
    assert found["checkpoints"][0]["metadata"] == found["checkpoints"][0]["roles"] == {}
    assert found["histograms"] == [{"low": -1.0, "high": 2.0, "counts": [[3]]}, None]
    assert found["loss"] is None


def test_the_largest_numbers_are_not_rounded_to_infinity():
    largest = sys.float_info.max
    run = Run("x", "file", (), [], (), [0], {"rms": [[largest, -largest]]}, [], {})
    found = document(Report("1", (), [run]))["runs"][0]
    assert found["figures"]["rms"] == [[largest, -largest]]


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
    with lccodec.Chain(path, policy, newest=newest) as chain:
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


def test_what_is_a_number() -> None:
    texts = {"loss": " 0.5", "bad": "nan", "run": "third", "": "1"}
    scalars = [("loss", 3), ("flag", True), ("note", "x"), ("none", None), ("big", 10**400), ("lr", 0.1)]
    found = numbers_of(texts, scalars)
    assert math.isnan(found.pop("bad"))
    assert found == {"loss": 0.5, "": 1.0, "lr": 0.1}
    assert len(numbers_of({}, [(str(i), i) for i in range(10_000)])) == 256


def test_constants_steps_and_copies_are_left_out() -> None:
    numbers = [
        {"lr": 0.1, "step": i, "a": i % 3, "b": i % 3, "late": i} if i else {"lr": 0.1} for i in range(5)
    ]
    assert series_of(numbers, [7, 1, 2, 3, 4]) == {
        "step": [None, 1, 2, 3, 4],
        "a": [None, 1, 2, 0, 1],
    }
    assert series_of([{"x": math.nan}, {"x": math.nan}, {"x": math.nan}], [0, 1, 2]) == {}
    many = [{str(i): i * n for i in range(1, 100)} for n in range(3)]
    assert len(series_of(many, [5, 6, 8])) == MAX_SERIES


def test_a_run_has_its_loss_at_every_checkpoint(tmp_path: Path) -> None:
    """In the metadata and in the state; a checkpoint that cannot be read has none."""
    losses = [2.0, 1.5, math.nan, 0.75]
    with lccodec.Chain(tmp_path, "lossless") as chain:
        for step, loss in enumerate(losses):
            state = {"w": np.full(10, step, np.float32), "rate": 0.1 / (step + 1), "epoch": 1}
            chain.save(10 * step, state, metrics={"loss": loss})
    (run,) = examine(tmp_path, steps=[0]).runs
    assert list(run.scalars) == ["loss", "rate"]
    np.testing.assert_array_equal(run.scalars["loss"], losses)
    (found,) = document(examine(tmp_path))["runs"]
    assert found["scalars"]["loss"] == [2.0, 1.5, None, 0.75]
    last = sorted(tmp_path.glob("*.lcc.h5"))[-2]
    last.write_bytes(last.read_bytes()[:-100])
    (run,) = examine(tmp_path).runs
    assert len(run.scalars["loss"]) == len(run.checkpoints) == 4
    assert run.scalars["loss"][:2] == [2.0, 1.5] and run.scalars["loss"][-1] is None


def test_the_largest_arrays_in_their_order():
    rows = [
        ArrayRow(f"a{i}", "weight", "", "float32", (size,), size, "", 0, 0)
        for i, size in enumerate([5, 9, 5, 1])
    ]
    assert [row.name for row in largest(rows, 2)] == ["a0", "a1"]
    assert largest(rows) == rows


def test_steps_are_evenly_spaced():
    assert evenly_spaced(range(5), 5) == [0, 1, 2, 3, 4]
    spaced = evenly_spaced(range(1000), 100)
    assert (len(spaced), spaced[0], spaced[-1]) == (100, 0, 999)
    assert {after - before for before, after in pairwise(spaced)} == {10, 11}


def test_the_limit_follows_from_the_arrays():
    assert step_limit(300) * 300 == MAX_CELLS
    assert step_limit(0) == step_limit(1) == MAX_STEPS
    assert step_limit(MAX_CELLS) == 2

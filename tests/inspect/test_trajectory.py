"""Bins that grow count as NumPy does over the range that they have in the end.

The fused pass gives what a plain computation gives.

The effective rank of a change: by definition for small matrices, near it for large ones.

One array over the steps: the figures of a whole examination, with its own frames alone.
"""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lccodec
from lccodec.chain.read.checkpoint import open_path
from lccodec.chain.store.directory import BundleStore, DirectoryStore
from lccodec.element_types import components
from lccodec.frame.decode import decode_components
from lccodec.inspect.examination import examine
from lccodec.inspect.trajectory import DIRECTIONS, MAX_BINS, Bins, change_rank, course, measure, random_signs
from lccodec.parallel import PIECE

from ..support.groups import grouped
from ..support.paths import checkpoint_path
from ..support.runs import run_states, save_run
from ..support.strategies import array_and_reference

numbers = (
    st.floats(allow_nan=False, allow_infinity=False) | st.floats(-4, 4) | st.sampled_from([0.0, -0.0, 1.0])
)
rows = st.lists(st.lists(st.lists(numbers, min_size=1, max_size=20), max_size=3), min_size=1, max_size=12)


def counted(rows):
    bins = Bins()
    for pieces in rows:
        bins.begin()
        for piece in pieces:
            values = np.array(piece, np.float64)
            bins.add(values, float(values.min()), float(values.max()))
    return bins.histogram()


@pytest.mark.slow
@given(rows)
@example([[[2.6976711110360728e188, -2.3666914865698747e-137]]])
def test_every_value_is_counted_once_in_its_bin(rows):
    found = counted(rows)
    if not any(map(any, rows)):
        assert found is None
        return
    assert 1 <= max(map(len, found.counts)) <= MAX_BINS
    assert found.low < found.high
    for pieces, counts in zip(rows, found.counts, strict=True):
        values = [value for piece in pieces for value in piece]
        assert sum(counts) == len(values)
        assert all(found.low <= value <= found.high for value in values)


@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1.0, 3e7])
@pytest.mark.parametrize("shift", [0.0, 5.0, -1e6])
def test_counts_are_those_of_numpy(scale, shift):
    rng = np.random.default_rng(3)
    steps = [[rng.normal(shift, 1.5**step, 5000) * scale for _ in range(2)] for step in range(9)]
    found = counted(steps)
    used = max(map(len, found.counts))
    assert MAX_BINS // 2 <= used <= MAX_BINS
    edges = np.linspace(found.low, found.high, used + 1)
    expected = [np.histogram(np.concatenate(pieces), edges)[0].tolist() for pieces in steps]
    assert [list(row) for row in found.counts] == expected


def test_equal_values_need_one_bin():
    found = counted([[[0.0] * 5], [[0.0]]])
    assert found.counts == [[5], [1]]
    found = counted([[[3.0] * 5], [], [[3.0]]])
    assert (found.low, found.counts) == (3.0, [[5], [], [1]])


def test_the_largest_numbers():
    most = np.finfo(np.float64).max
    found = counted([[[-most, most]], [[0.0, 5e-324]]])
    assert (found.low, found.high) == (-most, most)
    assert [sum(row) for row in found.counts] == [2, 2]


def test_the_smallest_numbers():
    found = counted([[[5e-324, 1e-323, 0.0]]])
    assert found.low == 0.0
    assert found.counts == [[1, 1, 1]]


def measured(array, before=None, bins=None):
    kind, bits = components(array)
    return measure(bits, None if before is None else components(before)[1], kind, bins)


def plain(array):
    """Numbers to compute with, wide enough that no square of a narrower type is lost."""
    if array.dtype.kind == "c":
        return np.hypot(array.real.astype(np.longdouble), array.imag.astype(np.longdouble))
    return array.astype(np.longdouble)


def expected(array, before):
    """The figures, each by one expression of NumPy."""
    array = array.reshape(-1)
    finite = np.isfinite(array.astype(np.complex128) if array.dtype.kind == "c" else array.astype(np.float64))
    values = plain(array[finite])
    found = {
        "size": array.size,
        "not_finite": int((~finite).sum()),
        "zeros": float((values == 0).sum() / array.size) if array.size else 0.0,
        "minimum": float(values.min()) if values.size else None,
        "maximum": float(values.max()) if values.size else None,
        "rms": float(np.sqrt(np.mean(values**2))) if values.size else None,
        "movement": None,
    }
    if before is not None:
        before = before.reshape(-1)
        wide = np.clongdouble if array.dtype.kind == "c" else np.longdouble
        old, new = before.astype(wide), array.astype(wide)
        both = np.isfinite(old) & np.isfinite(new)
        top = np.sqrt(np.sum(np.abs(new[both] - old[both]) ** 2))
        bottom = np.sqrt(np.sum(np.abs(old[both]) ** 2))
        found["movement"] = float(top / bottom) if bottom else None
    return found


@settings(deadline=None)
@given(array_and_reference())
def test_figures_are_those_of_a_plain_computation(pair):
    array, before = pair
    with np.errstate(all="ignore"):
        want = expected(array, before)
        found = vars(measured(array, before))
    for name, value in want.items():
        if value is None or not math.isfinite(value) or found[name] is None:
            assert found[name] is None or not math.isfinite(value or 0), name
        else:
            assert found[name] == pytest.approx(value, rel=1e-9, abs=5e-324), name


def test_several_pieces_and_their_histogram():
    rng = np.random.default_rng(0)
    before = rng.normal(size=3 * PIECE + 7).astype(np.float32)
    array = before + rng.normal(size=before.size).astype(np.float32) / 64
    array[[1, PIECE, 2 * PIECE]] = np.nan, np.inf, 0
    bins = Bins()
    bins.begin()
    found = measured(array, before, bins)
    kept = array[np.isfinite(array)].astype(np.float64)
    both = np.isfinite(array)
    gaps = array[both].astype(np.float64) - before[both]
    assert (found.not_finite, found.zeros) == (2, 1 / array.size)
    assert (found.minimum, found.maximum) == (kept.min(), kept.max())
    assert found.rms == pytest.approx(np.sqrt(np.mean(kept**2)), rel=1e-12)
    old = before[both].astype(np.float64)
    assert found.movement == pytest.approx(np.linalg.norm(gaps) / np.linalg.norm(old), rel=1e-12)
    spread = bins.histogram()
    edges = np.linspace(spread.low, spread.high, len(spread.counts[0]) + 1)
    assert spread.counts == [np.histogram(kept, edges)[0].tolist()]


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_squares_out_of_range(scale):
    before, array = np.array([1.0, 2.0, 0.0]) * scale, np.array([1.0, 3.0, np.nan]) * scale
    found = measured(array, before)
    assert found.rms == pytest.approx(np.sqrt(5) * scale)
    assert found.movement == pytest.approx(1 / np.sqrt(5))


def test_a_movement_that_is_no_number():
    assert measured(np.array([1e300]), np.array([1e-300])).movement is None


def test_the_largest_complex_number():
    array = np.full(2, complex(1.7e308, 1.7e308))
    assert measured(array).maximum == np.finfo(np.float64).max


def test_nothing_to_measure():
    found = measured(np.zeros((0, 3), np.float32))
    assert (found.rms, found.movement, found.not_finite, found.zeros) == (None, None, 0, 0.0)
    found = measured(np.full(3, np.nan), np.ones(3))
    assert (found.rms, found.movement, found.not_finite) == (None, None, 3)
    assert measured(np.ones(3), np.zeros(3)).movement is None


def rank(change, dtype="f4", rows=0):
    before = np.ones(change.shape, dtype)
    after = (before + change).astype(dtype)
    kind, bits = components(after)
    return change_rank(bits, components(before)[1], kind, change.shape, rows)


def by_definition(matrix):
    values = np.linalg.svd(matrix, compute_uv=False)
    shares = values / values.sum()
    return np.exp(-np.sum(shares * np.log(shares)))


@pytest.mark.parametrize("shape", [(40, 300), (300, 40), (7, 3), (48, 48), (5, 4, 3, 3)])
def test_small_matrices_by_definition(shape):
    change = np.random.default_rng(1).normal(size=shape)
    assert rank(change, "f8") == pytest.approx(by_definition(change.reshape(shape[0], -1)), rel=1e-6)


def test_a_large_matrix_is_projected():
    change = np.random.default_rng(2).normal(size=(150, 100))
    projection = np.zeros((DIRECTIONS, 150))
    projection[np.arange(150) % DIRECTIONS, np.arange(150)] = random_signs(150)
    expected = by_definition(projection @ change)
    assert rank(change, "f8") == rank(change.T, "f8") == pytest.approx(expected, rel=1e-6)
    assert expected < DIRECTIONS


@pytest.mark.parametrize("true", [1, 3, 8])
def test_low_ranks_are_found(true):
    rng = np.random.default_rng(true)
    change = np.linalg.qr(rng.normal(size=(500, true)))[0] @ np.linalg.qr(rng.normal(size=(300, true)))[0].T
    assert rank(change, "f8") == pytest.approx(true, rel=0.1)


def test_some_rows_of_a_very_large_matrix():
    rng = np.random.default_rng(3)
    change = rng.normal(size=(1000, 2)) @ rng.normal(size=(2, 30))
    assert rank(change, "f8", rows=100) == pytest.approx(by_definition(change[::10]), rel=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_extreme_scales(scale):
    change = np.diag([1.0, 1.0, 0.0]) * scale
    kind, bits = components(change)
    assert change_rank(bits, np.zeros_like(bits), kind, change.shape) == pytest.approx(2)


def test_there_is_none():
    assert rank(np.zeros((3, 3))) is None
    assert rank(np.full((3, 3), np.nan)) is None
    assert rank(np.ones(9)) is None
    assert rank(np.ones((1, 9))) is None
    assert rank(np.ones((9, 1))) is None
    assert rank(np.ones((0, 9))) is None
    assert rank(np.ones((3, 3)), "i4") is None
    assert rank(np.ones((3, 3)), "c8") is None


NAME = "model/fc1.weight"


def about(chain, name=NAME):
    """What is known of the array."""
    return next(array for array in chain.info().arrays if array.name == name)


def examined(directory, name=NAME):
    """Its figures, as an examination of all arrays has them."""
    (run,) = examine(directory).runs
    index = [row.name for row in run.arrays].index(name)
    return {figure: rows[index] for figure, rows in run.figures.items()}


def test_figures_are_those_of_an_examination(tmp_path):
    chain = save_run(tmp_path / "run", run_states(8), keyframe_every=2)
    figures, array = examined(chain.directory), about(chain)
    seen = []
    found = course(DirectoryStore(chain.directory), array, lambda done, total: seen.append((done, total)))
    assert found.steps == chain.steps
    assert {name: series[0] for name, series in found.finish().items()} == figures
    assert seen == [(number, 8) for number in range(1, 9)]
    lccodec.bundle(chain.directory, tmp_path / "run.lccb")
    with BundleStore(tmp_path / "run.lccb") as bundle:
        assert course(bundle, array).finish() == found.finish()


def test_interpolated_steps_come_between_the_others(tmp_path):
    chain = grouped(tmp_path / "run", "balanced")
    found = course(DirectoryStore(chain.directory), about(chain, "w"))
    assert found.steps == chain.steps
    assert {name: series[0] for name, series in found.finish().items()} == examined(chain.directory, "w")


def test_only_its_own_frames_are_decoded(tmp_path, monkeypatch):
    chain = save_run(tmp_path / "run", run_states(6, width=300))
    array = about(chain)
    decoded = Counter()

    def counted(*args, **options):
        decoded["frames"] += 1
        return decode_components(*args, **options)

    monkeypatch.setattr("lccodec.chain.read.replay.decode_components", counted)
    course(DirectoryStore(chain.directory), array)
    assert decoded["frames"] == 6


def test_what_cannot_be_read_is_left_out(tmp_path):
    chain = save_run(tmp_path / "run", run_states(9), keyframe_every=2)
    array = about(chain)
    path = checkpoint_path(chain.directory, 80)
    path.write_bytes(path.read_bytes()[:-1])
    checkpoint_path(chain.directory, 30).unlink()
    assert course(DirectoryStore(chain.directory), array).steps == [0, 10, 20, 60, 70]
    data = bytearray(checkpoint_path(chain.directory, 10).read_bytes())
    with open_path(checkpoint_path(chain.directory, 10)) as file:
        link = file.links[-1]
        number = link.frame_of(link.names[NAME])
        data[link.reader._offsets[number] + link.manifest.frames[number].length // 2] ^= 1
    checkpoint_path(chain.directory, 10).write_bytes(bytes(data))
    assert course(DirectoryStore(chain.directory), array).steps == [0, 60, 70]


def test_an_array_that_came_later(tmp_path):
    states = run_states(4)
    for state in states[:2]:
        del state["model"]["fc1.weight"]
    chain = save_run(tmp_path / "run", states)
    assert course(DirectoryStore(chain.directory), about(chain)).steps == [20, 30]

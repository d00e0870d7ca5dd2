"""The codec's paths at a size that tells something, by pytest-benchmark.

By default (``--benchmark-disable`` in pyproject.toml) every one runs once, as an ordinary test that
holds the result; ``pytest -n 0 benchmarks/test_speed.py --benchmark-enable``
times them. Ratios to np.copyto, and peers, are in ``throughput.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from benchmarks.speed.inputs import as_dtype, load_walk, symbols_of_entropy
from lccodec.constants import MAX_STREAM_DEPTH
from lccodec.cursor import Cursor
from lccodec.entropy.stream_reader import read_stream
from lccodec.entropy.stream_writer import write_stream

Benchmark = Callable[..., Any]

VALUES = 1_000_000
WALK = load_walk(None)
QUANTIZERS = {
    "lc-2": lccodec.ExponentBuckets(bits=2),
    "lc-3": lccodec.ExponentBuckets(bits=3),
    "uniform": lccodec.UniformDeadzone(relative_step=2),
    "lossless": lccodec.Lossless(),
}
CODED = pytest.mark.parametrize("name", QUANTIZERS)
TYPED = pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])


def pair(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return an array and its reference."""
    array, reference = WALK.pair(VALUES)
    return as_dtype(array, dtype), as_dtype(reference, dtype)


def is_same(left: np.ndarray, right: np.ndarray) -> bool:
    """Tell whether two arrays hold the same bits."""
    return left.dtype == right.dtype and left.tobytes() == right.tobytes()


@pytest.mark.benchmark(group="copy")
def test_copy(benchmark: Benchmark) -> None:
    """What the other times are to be compared with."""
    array, _ = pair("float32")
    out = np.empty_like(array)
    benchmark(np.copyto, out, array)
    assert is_same(out, array)


@pytest.mark.benchmark(group="encode")
@TYPED
@CODED
def test_encode(benchmark: Benchmark, name: str, dtype: str) -> None:
    """The same arrays give the same bytes."""
    array, reference = pair(dtype)
    frame = benchmark(lccodec.encode, array, QUANTIZERS[name], reference)
    assert frame == lccodec.encode(array, QUANTIZERS[name], reference)
    assert len(frame) < array.nbytes


@pytest.mark.benchmark(group="decode")
@TYPED
@CODED
def test_decode(benchmark: Benchmark, name: str, dtype: str) -> None:
    """What is decoded into an array is what is decoded to a fresh one; lossless is that."""
    array, reference = pair(dtype)
    frame = lccodec.encode(array, QUANTIZERS[name], reference)
    out = np.empty_like(array)
    benchmark(lccodec.decode, frame, reference, out)
    assert is_same(out, lccodec.decode(frame, reference, dtype="bits"))
    assert name != "lossless" or is_same(out, array)


@pytest.mark.benchmark(group="huffman")
def test_huffman_encode(benchmark: Benchmark) -> None:
    """The Huffman stage comes within 3 % of the entropy."""
    symbols = symbols_of_entropy(3.70, 41, VALUES)
    pieces = benchmark(write_stream, symbols, MAX_STREAM_DEPTH)
    assert 8 * sum(map(len, pieces)) < 1.03 * 3.70 * VALUES


@pytest.mark.benchmark(group="huffman")
def test_huffman_decode(benchmark: Benchmark) -> None:
    """The Huffman stage gives the symbols back."""
    symbols = symbols_of_entropy(3.70, 41, VALUES)
    stream = memoryview(b"".join(write_stream(symbols, MAX_STREAM_DEPTH)))
    decoded = benchmark(lambda: read_stream(Cursor(stream, "stream"), VALUES))
    assert np.array_equal(decoded, symbols)


@pytest.mark.benchmark(group="chain")
def test_save(benchmark: Benchmark, tmp_path: Path) -> None:
    """Every save after the first makes a delta."""
    states = itertools.cycle([WALK.state(step, VALUES, VALUES // 4) for step in (0, 1)])
    steps = itertools.count()
    chain = lccodec.Chain(tmp_path, policy="lc-3", keyframe_every=1_000_000, newest="history")
    chain.save(next(steps), next(states))
    benchmark(lambda: chain.save(next(steps), next(states)))
    assert chain.info().parent == chain.steps[-2]


@pytest.mark.benchmark(group="chain")
@pytest.mark.parametrize("depth", [0, 8])
def test_restore(benchmark: Benchmark, tmp_path: Path, depth: int) -> None:
    """A chain opened anew gives what the latest state was decoded to."""
    with lccodec.Chain(tmp_path, policy="lc-3", newest="history") as chain:
        for step in range(depth + 1):
            chain.save(step, WALK.state(step, VALUES, VALUES // 4))
    state = benchmark(lambda: lccodec.Chain(tmp_path).restore())
    exact = WALK.state(depth, VALUES, VALUES // 4)
    assert state.keys() == exact.keys()
    assert all(np.abs(state[name] - exact[name]).max() < 0.1 for name in exact)


@pytest.mark.benchmark(group="one tensor")
def test_one_tensor(benchmark: Benchmark, tmp_path: Path) -> None:
    """One tensor out of many is exact."""
    state = WALK.state(0, VALUES, VALUES // 100)
    lccodec.save_file(state, tmp_path / "one.lcc.h5")
    name = list(state)[50]

    def read() -> np.ndarray:
        with lccodec.open(tmp_path / "one.lcc.h5") as file:
            return file.get(name)

    assert is_same(benchmark(read), state[name])

"""Arrays that change while they are coded, as those of a training thread do.

What is stored may be a mixture of moments. It decodes without error, and what the encoder keeps for
the next delta is exactly what a reader has.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import (
    POLICIES,
    Chain,
    ExponentBuckets,
    LogSteps,
    Lossless,
    Policy,
    Triggered,
    UniformDeadzone,
)
from lccodec.chain.save import plan
from lccodec.constants import ElementType
from lccodec.element_types import components, work
from lccodec.frame.content import MAX_SHARED_COMPONENTS
from lccodec.frame.decode import decode, decode_components
from lccodec.frame.encode import encode
from lccodec.parallel import PIECE
from lccodec.quantizers.clusters import Clusters
from lccodec.quantizers.uniform import Weighted

from ..support.background import repeated
from ..support.chains import HistoryChain
from ..support.frames import encode_components
from ..support.strategies import bits_of, dtype_of, installed
from ..support.tuning import tune

FLOATS = installed(["float16", "bfloat16", "float32", "float64"])
MOMENT = np.linspace(0.1, 4, 4 * PIECE, dtype=np.float32)
QUANTIZERS: dict[str, Any] = {
    "lossless": Lossless(),
    "step": UniformDeadzone(step=0.01),
    "fine step": UniformDeadzone(step=2e-5),
    "max_error": UniformDeadzone(max_error=0.01),
    "relative_step": UniformDeadzone(relative_step=0.5),
    "absolute": UniformDeadzone(relative_step=0.5, absolute=True),
    "buckets": ExponentBuckets(2),
    "mean buckets": ExponentBuckets(3, "mean"),
    "all buckets": ExponentBuckets(8),
    "clusters": Clusters(8, pruned=0.3, protected=0.01),
    "few clusters": Clusters(2, pruned=0.0, protected=0.0),
    "log steps": LogSteps(1.0),
    "fine log steps": LogSteps(0.01),
    "triggered": Triggered(ExponentBuckets(2), 0.1),
    "weighted": Weighted(UniformDeadzone(relative_step=2.0), *components(MOMENT)[::-1], 1.0),
}


class Moving(np.ndarray):
    """Memory that changes after every call that reads it: the worst that training can do."""

    move: Callable[[], None]

    def __array_finalize__(self, source: Any) -> None:
        self.move = getattr(source, "move", lambda: None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return self._read(getattr(ufunc, method), *inputs, **options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return self._read(function, *args, **options)

    def _read(self, function: Any, *inputs: Any, **options: Any) -> Any:
        result = function(*(_plain(x) for x in inputs), **{k: _plain(x) for k, x in options.items()})
        self.move()
        return result

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        if isinstance(key, slice):
            return part
        self.move()
        return np.array(part)

    def take(self, *args: Any, **options: Any) -> Any:
        return self._read(np.asarray(self).take, *args, **options)

    def astype(self, *args: Any, **options: Any) -> Any:
        return self._read(np.asarray(self).astype, *args, **options)

    def tobytes(self, *args: Any) -> bytes:
        return self._read(np.asarray(self).tobytes, *args)

    def copy(self, *args: Any) -> Any:
        return self._read(np.asarray(self).copy, *args)


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_plain(x) for x in value)
    return value.view(np.ndarray) if isinstance(value, Moving) else value


def moving(moments: list[np.ndarray]) -> Moving:
    memory = moments[0].copy()
    turns = iter(range(1 << 60))

    def move() -> None:
        memory[:] = moments[(next(turns) + 1) % len(moments)]

    array = memory.view(Moving)
    array.move = move
    return array


def moments_of(name: str, size: int, first: int = 0) -> tuple[np.ndarray, list[np.ndarray]]:
    """A reference, and an array at several moments: near, far, and with every hard value."""
    rng = np.random.default_rng(7)
    dtype = dtype_of(name)
    reference = rng.standard_normal(size) + 3
    near = reference + 0.01 * rng.standard_normal(size)
    far = 100 * reference
    hard = np.where(np.arange(size) % 3 == 0, -near, near)
    hard[::5] = 0
    hard[1::7] = np.nan
    hard[2::11] = -np.inf
    moments = [x.astype(dtype).view(f"u{dtype.itemsize}") for x in (near, far, hard, near * 1.001)]
    return reference.astype(dtype).view(moments[0].dtype), moments[first:] + moments[:first]


def check(
    name: str,
    quantizer: Any,
    size: int,
    relative: bool,
    first: int = 0,
    in_place: bool = True,
    **settings: Any,
) -> None:
    kind, _ = components(np.zeros(0, dtype_of(name)))
    reference, moments = moments_of(name, size, first)
    base = reference.copy() if relative else None
    out = base if in_place and base is not None else np.empty_like(reference)
    shape = (size // 64, 64) if size % 64 == 0 else (size,)
    frame = b"".join(encode_components(moving(moments), kind, [shape], quantizer, base, out, **settings))
    decoded = decode_components(frame, reference)
    np.testing.assert_array_equal(decoded, out)
    if isinstance(quantizer, Lossless):
        assert np.any([decoded == moment for moment in moments], axis=0).all()
    if getattr(quantizer, "max_error", None):
        check_bound(decoded, moments, kind, quantizer.max_error)


def check_bound(decoded: np.ndarray, moments: list[np.ndarray], kind: ElementType, bound: float) -> None:
    with np.errstate(invalid="ignore"):
        values = work(decoded, kind).astype(np.longdouble)
        fits = [
            (np.abs(values - work(moment, kind).astype(np.longdouble)) <= bound) | (decoded == moment)
            for moment in moments
        ]
    assert np.any(fits, axis=0).all()


@pytest.mark.parametrize("quantizer", QUANTIZERS.values(), ids=QUANTIZERS)
@pytest.mark.parametrize("relative", [False, True])
def test_every_read_sees_another_moment(quantizer: Any, relative: bool) -> None:
    for name in FLOATS:
        for first in range(3):  # which of the moments is the one that the partition is fitted to
            check(name, quantizer, 4096, relative, first)
    check("float32", quantizer, 2 * PIECE + 64, relative)
    check("float32", quantizer, 2 * PIECE + 64, relative, effort="high")
    check("float32", quantizer, 2 * PIECE + 64, relative, in_place=False)


@pytest.mark.parametrize("quantizer", QUANTIZERS.values(), ids=QUANTIZERS)
def test_differences_that_are_not_kept(quantizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large array they are taken a second time, and are others then."""
    tune(monkeypatch, residual_max_kept_bytes=0)
    for relative in (False, True):
        for first in range(3):
            check("float32", quantizer, 4096, relative, first)


@pytest.mark.parametrize("quantizer", QUANTIZERS.values(), ids=QUANTIZERS)
def test_several_blocks(quantizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, block_log2=PIECE.bit_length() - 1)
    check("float32", quantizer, 3 * PIECE + 100, relative=True)


@pytest.mark.parametrize("name", ["bool", "int8", "uint32", "int64"])
def test_integers(name: str) -> None:
    rng = np.random.default_rng(0)
    kind, reference = components(rng.integers(0, 2, 5000).astype(name))
    for low, high in ((0, 1), (0, 127)):  # noise is stored raw
        moments = [rng.integers(low, high + 1, 5000).astype(kind.bits) & (name != "bool" or 1) for _ in "abc"]
        for base in (None, reference.copy()):
            out = np.empty_like(reference)
            bits = moving(moments)
            frame = b"".join(encode_components(bits, kind, [(5000,)], Lossless(), base, out))
            np.testing.assert_array_equal(decode_components(frame, reference), out)


@contextmanager
def training(arrays: list[np.ndarray]) -> Iterator[None]:
    """A thread that moves arrays all the time."""
    rng = np.random.default_rng(0)

    def move() -> None:
        for array in arrays:
            np.add(array, array.dtype.type(0.01), out=array)
            array[:: int(rng.integers(2, 9))] *= array.dtype.type(rng.choice([-1.1, 3, 0.2]))
            np.clip(array, -1000, 1000, out=array)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with repeated(move):
            yield
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.slow
@pytest.mark.parametrize("quantizer", QUANTIZERS.values(), ids=QUANTIZERS)
def test_a_thread_that_trains(quantizer: Any) -> None:
    rng = np.random.default_rng(0)
    for size in (3000, 3 * PIECE + 5):
        array = rng.standard_normal(size).astype(np.float32)
        reference = array.copy()
        with training([array]):
            for _ in range(4):
                for base in (reference, None):
                    decode(encode(array, quantizer, base), base)


POLICY_NAMES = [*POLICIES, "clusters", "triggered"]


def policy_of(name: str) -> Policy | str:
    if name == "clusters":
        return Policy(name, {"weight": Clusters(8), "second_moment": UniformDeadzone(max_error=0.1)})
    if name == "triggered":
        return Policy(name, {"weight": Triggered(UniformDeadzone(step=0.01), 0.01)}, effort="high")
    return name


def state_of(rng: np.random.Generator) -> dict[str, dict[str, np.ndarray]]:
    """Arrays of runs, of a piece and of several."""
    sizes = {"a": 700, "b": 1200, "c": MAX_SHARED_COMPONENTS + 64, "d": 2 * PIECE + 128}
    return {
        part: {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
        for part in ("model", "exp_avg", "exp_avg_sq")
    } | {"half": {"w": rng.standard_normal(70_000).astype(np.float16)}}


def check_chain(chain: Chain) -> None:
    """What the chain keeps for the next delta is what its files decode to."""
    assert chain._writer._saver._latest is not None
    restored = chain.restore()
    for name, array in chain._writer._saver._latest.arrays.items():
        part, leaf = name.split("/")
        np.testing.assert_array_equal(bits_of(restored[part][leaf]), bits_of(array.bits))


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICY_NAMES)
def test_a_chain_of_what_moves_between_reads(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(array: np.ndarray) -> tuple[ElementType, np.ndarray]:
        kind, bits = components(array)
        values = array.reshape(-1)
        with np.errstate(over="ignore"):
            later = [(values * 1.01).astype(array.dtype), (values * -30).astype(array.dtype)]
        return kind, moving([bits, *(components(x)[1] for x in later)])

    monkeypatch.setattr(plan, "components", read)
    rng = np.random.default_rng(0)
    state = state_of(rng)
    with HistoryChain(tmp_path, policy_of(name), keyframe_every=2) as chain:
        for step in range(4):
            chain.save(step, state)
            check_chain(chain)
            for part in state.values():
                for array in part.values():
                    np.add(array, (0.01 * rng.standard_normal(array.size)).astype(array.dtype), out=array)


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICY_NAMES)
def test_a_chain_of_a_run_that_trains(name: str, tmp_path: Path) -> None:
    state = state_of(np.random.default_rng(0))
    arrays = [array for part in state.values() for array in part.values()]
    with HistoryChain(tmp_path, policy_of(name), keyframe_every=2) as chain:
        with training(arrays):
            for step in range(4):
                chain.save(step, state)
                check_chain(chain)
        for step in chain.steps:
            chain.restore(step)

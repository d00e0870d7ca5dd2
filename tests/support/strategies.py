"""Hypothesis strategies: arrays of every element type with their hard values, and states."""

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from lccodec.element_types import components, work

try:
    import ml_dtypes
except ImportError:  # the core needs none, and is tested without it too
    ml_dtypes = None

FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
#: The types that quantizers are for.
REALS = FLOATS[:4]
INTEGERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
ALL_DTYPES = INTEGERS + FLOATS

#: An array, and its reference if it has one.
Pair = tuple[np.ndarray, np.ndarray | None]


def installed(names: list[str]) -> list[str]:
    """The names of the types of which there can be arrays here."""
    return [name for name in names if name != "bfloat16" or ml_dtypes is not None]


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def ends_of(name: str) -> tuple[float, float]:
    """The largest finite number of a type, and the smallest that is above 0."""
    kind, _ = components(np.zeros(0, dtype_of(name)))
    largest = (1 << (8 * kind.size - 1)) - (1 << kind.mantissa) - 1
    most, tiny = work(np.array([largest, 1], kind.bits), kind).tolist()
    return most, tiny


def bits_of(array: np.ndarray) -> np.ndarray:
    """The bytes of an array, to compare patterns (NaN payloads and signs of zero included)."""
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


def wave(*shape: int, dtype: str = "float64") -> np.ndarray:
    """A smooth field."""
    axes = np.meshgrid(*(np.linspace(0, 3, n) for n in shape), indexing="ij", sparse=True)
    return np.asarray(sum(np.sin((k + 1) * axis) for k, axis in enumerate(axes))).astype(dtype_of(dtype))


def random_array(name: str, shape: tuple[int, ...], seed: int, special: float = 0.1) -> np.ndarray:
    """Ordinary values with a share of arbitrary bit patterns (NaN, Inf, subnormals, -0.0)."""
    rng = np.random.default_rng(seed)
    dtype = dtype_of(name)
    if name == "bool":
        return rng.random(shape) < 0.3
    size = int(np.prod(shape, dtype=np.int64))
    patterns = rng.integers(0, 256, size * dtype.itemsize, dtype=np.uint8).view(dtype)
    if dtype.kind in "iu":
        ordinary = rng.integers(0, 50, size).astype(dtype)
    elif dtype.kind == "c":
        ordinary = (rng.standard_normal(size) + 1j * rng.standard_normal(size)).astype(dtype)
    else:
        ordinary = (rng.standard_normal(size) * 10.0 ** rng.integers(-3, 3)).astype(dtype)
    return np.where(rng.random(size) < special, patterns, ordinary).astype(dtype, copy=False).reshape(shape)


shapes = st.lists(st.integers(0, 7), max_size=3).map(tuple) | st.tuples(st.integers(0, 3000))


@st.composite
def arrays(draw: st.DrawFn, names: list[str] = ALL_DTYPES, special: float | None = None) -> np.ndarray:
    share = draw(st.sampled_from([0.0, 0.02, 1.0])) if special is None else special
    name = draw(st.sampled_from(installed(names)))
    return random_array(name, draw(shapes), draw(st.integers(0, 2**32)), share)


@st.composite
def array_and_reference(draw: st.DrawFn, names: list[str] = ALL_DTYPES, special: float | None = None) -> Pair:
    array = draw(arrays(names, special))
    how = draw(st.sampled_from(["none", "near", "any", "same"]))
    if how == "none":
        return array, None
    if how == "same":
        return array, array.copy()
    other = random_array(array.dtype.name, array.shape, draw(st.integers(0, 2**32)))
    if how == "any" or array.dtype.kind in "biu":
        return array, other
    scale = draw(st.sampled_from([1e-3, 1e-1]))
    with np.errstate(all="ignore"):
        return array, (array + (other * np.array(scale).astype(array.dtype))).astype(array.dtype)


#: Leaves of states, and states of any form.
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
ARRAYS = st.builds(
    lambda shape, dtype: np.arange(math.prod(shape)).reshape(shape).astype(dtype),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.sampled_from(["f4", "f8", "i8", "u1", "?", "c8"]),
)
STATES = st.recursive(
    SCALARS | ARRAYS,
    lambda child: st.lists(child) | st.lists(child).map(tuple) | st.dictionaries(st.text(), child),
    max_leaves=20,
)

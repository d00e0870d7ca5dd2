"""Arrays of every type of JAX, a network of Flax NNX that learns, and trees that are the same."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
from flax import nnx

from .walks import assert_same, pattern

INTEGERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
BYTES = [
    *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
]
NARROW = ["float4_e2m1fn", "int2", "int4", "uint2", "uint4"]
DTYPES = [*INTEGERS, *FLOATS, *BYTES, *NARROW]


def random_array(name: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Arbitrary bit patterns; of the types narrower than a byte every value."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
    if name == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    size = int(np.prod(shape))
    if name in NARROW:
        low = -(2 ** (int(name[-1]) - 1)) if name.startswith("int") else 0
        high = 4 if name == "float4_e2m1fn" else low + 2 ** int(name[-1])
        return rng.integers(low, high, size).astype(dtype).reshape(shape)
    return rng.integers(0, 256, size * dtype.itemsize, np.uint8).view(dtype).reshape(shape)


@pattern.register
def _(leaf: jax.Array) -> Any:
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return leaf.dtype, leaf.shape, np.asarray(jax.random.key_data(leaf) if is_key else leaf).tobytes()


def assert_same_tree(left: Any, right: Any) -> None:
    assert jax.tree_util.tree_structure(left) == jax.tree_util.tree_structure(right)
    assert_same(jax.tree_util.tree_leaves(left), jax.tree_util.tree_leaves(right))


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs, width: int = 8) -> None:
        self.layers = nnx.List([nnx.Linear(4, width, rngs=rngs), nnx.Linear(width, 2, rngs=rngs)])
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.layers[1](self.dropout(jax.nn.relu(self.norm(self.layers[0](x)))))


@nnx.jit
def update(model: Net, optimizer: nnx.Optimizer, x: jax.Array) -> None:
    optimizer.update(model, nnx.grad(lambda m: (m(x) ** 2).mean())(model))


def train(model: Net, optimizer: nnx.Optimizer, steps: range) -> None:
    for step in steps:
        update(model, optimizer, jax.random.normal(jax.random.key(step), (16, 4)))


def parts(seed: int) -> tuple[Net, nnx.Optimizer]:
    model = Net(nnx.Rngs(seed))
    return model, nnx.Optimizer(model, optax.adamw(1e-2), wrt=nnx.Param)


class Unkeyed:
    def __init__(self, *items: Any) -> None:
        self.items = items


jax.tree_util.register_pytree_node(Unkeyed, lambda u: (u.items, None), lambda _, items: Unkeyed(*items))

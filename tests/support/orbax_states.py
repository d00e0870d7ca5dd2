"""A state of JAX with a leaf of every kind, and the managers of Orbax that save it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp

from lccodec.adapters.orbax import LCCheckpointHandler


def state():
    weights = {
        "w": jnp.arange(6.0).reshape(3, 2),
        "b": jnp.ones(2, jnp.bfloat16),
        "f8": jnp.linspace(0, 1, 5).astype(jnp.float8_e4m3fn),
        "half": jnp.zeros((0, 3), jnp.float16),
        "on": jnp.array([True, False]),
        "z": jnp.array([1 + 2j]),
    }
    optimizer = optax.chain(optax.clip(1.0), optax.adam(1e-3), optax.trace(0.9))
    return {
        "params": weights,
        "opt": optimizer.init(weights),
        "key": jax.random.key(3),
        "keys": jax.random.split(jax.random.key(4, impl="rbg"), 3),
        "host": np.arange(4, dtype=np.int64),
        "scalar": np.float32(2.5),
        "epoch": 7, "lr": 0.1, "name": "run/1~", "flag": True, "nothing": None, "raw": b"\x00",
        "a/b": [1, (2.0, [])],
    }  # fmt: skip


def bits(leaf):
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf).tobytes() if hasattr(leaf, "dtype") else leaf


def check_same(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for (path, a), b in zip(jax.tree.leaves_with_path(found), jax.tree.leaves(expected), strict=True):
        assert isinstance(a, jax.Array) == isinstance(b, jax.Array), path
        assert getattr(a, "dtype", type(a)) == getattr(b, "dtype", type(b)), path
        assert bits(a) == bits(b), path


def abstract(tree):
    return jax.tree.map(
        lambda x: (
            jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) if isinstance(x, jax.Array) else x
        ),
        tree,
    )


def manager(path, handler=None, **options):
    options = ocp.CheckpointManagerOptions(**options)
    return ocp.CheckpointManager(path, item_handlers=handler or LCCheckpointHandler(), options=options)

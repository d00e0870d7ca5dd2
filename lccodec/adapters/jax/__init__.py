"""JAX: any pytree of parameters, NNX and optax states, random keys; JAX arrays go in and come out.

>>> import tempfile, jax, jax.numpy as jnp, optax, lccodec
>>> import lccodec.adapters.jax as adapter
>>> params = {"w": jnp.ones((3, 2)), "b": jnp.zeros(2, jnp.bfloat16)}
>>> tree = {"params": params, "opt": optax.adamw(1e-3).init(params), "step": 7}
>>> tree["key"] = jax.random.key(0)
>>> with lccodec.Chain(tempfile.mkdtemp(), policy="lossless", adapter=adapter) as chain:
...     _ = chain.save(7, tree)
...     state = chain.restore()  # plain containers: a named tuple becomes a dict
>>> abstract = {**jax.eval_shape(lambda: {**tree, "step": 0}), "step": 0}
>>> restored = adapter.load_into(abstract, state)  # with the target's types, or an error
>>> type(restored["opt"][0]).__name__, restored["params"]["b"].dtype, restored["step"]
('ScaleByAdamState', dtype(bfloat16), 7)

`Chain.save_async` copies the tree, so that its buffers may be donated.

The names in a checkpoint are the key paths of `jax.tree_util`. The value of an NNX Variable has the
name of the Variable, as in ``nnx.to_pure_dict``. The types of nodes are not stored, and no module
is imported because a file names it: a tree comes back as dicts, lists and tuples, or with the types
of a target. What a node holds beside its children (static fields) also comes from the target.

Users import this folder, not its modules. Needs the extra ``jax``.
"""

from ...errors import DependencyError

try:
    import jax  # noqa: F401 - all modules of the folder need both
    import ml_dtypes  # noqa: F401
except ImportError:
    raise DependencyError("needs JAX: pip install 'lccodec[jax]'") from None

from ..tree.matching import LoadReport
from .roles import roles
from .states import from_numpy, to_numpy
from .target import load, load_file, load_into, save, save_file

__all__ = [
    "LoadReport",
    "from_numpy",
    "load",
    "load_file",
    "load_into",
    "roles",
    "save",
    "save_file",
    "to_numpy",
]

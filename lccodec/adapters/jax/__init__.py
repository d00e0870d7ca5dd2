"""JAX: pytrees of arrays, of Flax and optax among them. `lccodec.adapters.jax` is all that a user imports.

The folder's modules are its own, but for those of Orbax. Needs the extra ``jax``.
"""

from .states import from_numpy, load, load_file, load_into, roles, save, save_file, to_numpy

__all__ = ["from_numpy", "load", "load_file", "load_into", "roles", "save", "save_file", "to_numpy"]

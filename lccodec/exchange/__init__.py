"""Convert a network's weights and Adam moments between torch and Flax NNX.

The two frameworks differ in names and layouts of arrays, not only in types. `to_flax` and
`to_torch` convert the state of a module; `adam_to_flax` and `adam_to_torch` convert the moments of
its optimizer. Rules (your own, then `RULES`) say which names correspond, and how the array is laid
out on either side (`LAYOUTS`). Exactly one rule must map each array; otherwise, one error lists all
problems. States hold NumPy arrays; no framework is needed.

Examples
--------
The same Sequential in both frameworks; Flax keeps its layers in ``layers``:

>>> import numpy as np, torch
>>> from flax import nnx
>>> import lccodec.adapters.jax as jax_adapter, lccodec.adapters.torch as torch_adapter
>>> ours = torch.nn.Sequential(torch.nn.Linear(2, 3))
>>> theirs = nnx.Sequential(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
>>> state, _ = torch_adapter.to_numpy(ours.state_dict())
>>> like, note = jax_adapter.to_numpy(nnx.state(theirs))
>>> rules = [Rule("**", "layers/**", "module")]
>>> nnx.update(theirs, jax_adapter.from_numpy(to_flax(state, rules, like), note))
>>> x = np.ones((1, 2), np.float32)
>>> np.allclose(theirs(x), ours(torch.tensor(x)).detach(), rtol=1e-5)
True

README.md beside this file says what is mapped, what is not, and how a rule is found.
"""

from .mapping import adam_to_flax, adam_to_torch, to_flax, to_torch
from .rules import LAYOUTS, RULES, Rule, load_rules

__all__ = ["LAYOUTS", "RULES", "Rule", "adam_to_flax", "adam_to_torch", "load_rules", "to_flax", "to_torch"]

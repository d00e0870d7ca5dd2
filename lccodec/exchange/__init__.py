"""True exchange between frameworks: the same network in torch and in Flax NNX, weights and Adam's moments.

Names and layouts differ, not only types. `to_flax` and `to_torch` map the state of a module, `adam_to_flax`
and `adam_to_torch` the moments of its optimizer, by a table of rules (`RULES`, and before them the user's
own) that say which name is which and how the array lies on either side (`LAYOUTS`). Everything is mapped by
exactly one rule, or an error lists all that is not. States are of NumPy arrays; no framework is needed.

Examples
--------
The same Sequential in both, whose layers Flax keeps in ``layers``:

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

What is mapped, what is not and how a rule is found: README.md beside this file.
"""

from .adam import adam_to_flax, adam_to_torch
from .layouts import LAYOUTS
from .mapping import to_flax, to_torch
from .rules import RULES, Rule, load_rules

__all__ = ["LAYOUTS", "RULES", "Rule", "adam_to_flax", "adam_to_torch", "load_rules", "to_flax", "to_torch"]

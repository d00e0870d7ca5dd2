"""Files of every format: read and written by suffix, and moved to another framework.

`formats` and `conversion` do that. `named_arrays`, `structure` (what names alone do not say),
`shards` and `disk` are what the formats have in common. Imports the chain, the exchange and
``adapters/tree``; the adapters of npz and safetensors import it.
"""

from .formats import check_suffix, load_file, save_file

__all__ = ["check_suffix", "load_file", "save_file"]

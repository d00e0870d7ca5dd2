"""Files of every format: read, written, and converted for another framework.

`formats` chooses the format by the suffix of a file, `steps` reads the steps of files from their
names, and `conversion` converts a state. `structure` (names, and what names alone do not say),
`shards` and `disk` are what the formats have in common. Imports the chain, the exchange and
``adapters/tree``; npz and safetensors import it.
"""

from .formats import check_suffix, load_file, save_file

__all__ = ["check_suffix", "load_file", "save_file"]

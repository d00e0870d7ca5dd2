"""Files of other formats: states as named arrays, shards, the format that a suffix tells.

Imports the chain and the exchange; the adapters of npz and safetensors import it.
"""

from .suffixes import check_suffix, load_file, save_file

__all__ = ["check_suffix", "load_file", "save_file"]

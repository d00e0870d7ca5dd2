"""Seals: hashes of files that are not lccodec's, in a text file that ``sha256sum -c`` reads.

- :func:`seal` writes them for a file or a directory: ``.safetensors``, ``.pt``, directories of
  torch DCP, any files.
- :func:`check` says which files have changed, are missing or are new, and names the damaged tensors
  of ``.safetensors`` files.

The adapters that read such files verify a seal that they find, and so do the verbs ``convert``,
``save`` and ``plan``. Needs no framework and no extra.
"""

from .seal import Sealed, check, is_sealed, seal

__all__ = ["Sealed", "check", "is_sealed", "seal"]

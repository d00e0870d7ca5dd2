"""PyTorch: state dicts, modules, optimizers. `lccodec.adapters.torch` is all that a user imports.

The folder's modules are its own, but for those of DCP and Lightning. Needs the extra ``torch``.
"""

from .states import (
    OnDevice,
    check,
    from_numpy,
    load,
    load_file,
    load_into,
    roles,
    roles_of,
    save,
    save_file,
    to_numpy,
)

__all__ = [
    "OnDevice",
    "check",
    "from_numpy",
    "load",
    "load_file",
    "load_into",
    "roles",
    "roles_of",
    "save",
    "save_file",
    "to_numpy",
]

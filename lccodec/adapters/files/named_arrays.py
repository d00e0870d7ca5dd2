"""A state as arrays by name, which is all that files of other formats can hold.

The name of an array is its path in the state: keys and positions joined by ``/``. A ``/`` inside a
key stays ``/``; a checkpoint writes it as ``~1`` (LCC-STA-07). So a flat dict keeps its names
through a chain and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from ...container.tree import array_names, flatten, select
from ...element_types import Array, element_type
from ...errors import ArgumentError

__all__ = ["named_arrays", "named_leaves", "plain_names"]

Value = TypeVar("Value")


def plain_names(leaves: Mapping[str, Value]) -> dict[str, Value]:
    """Return leaves of a checkpoint under the names that they have in other formats.

    Raises
    ------
    ArgumentError
        If two leaves would have the same name, as in ``{"a": {"b": x}, "a/b": y}``.

    Examples
    --------
    >>> plain_names({"model/w~1b": 1})
    {'model/w/b': 1}
    """
    plain: dict[str, Value] = {}
    for name, value in leaves.items():
        key = name.replace("~1", "/").replace("~0", "~")
        if key in plain:
            raise ArgumentError(f"two entries of the state would both be named {key!r}")
        plain[key] = value
    return plain


def named_leaves(state: Any) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the leaves of a state by name: arrays, and scalars that no array can hold.

    An int, float or bool becomes an array without dimensions (int64 or uint64, float64, bool). An
    array in two places has both names.

    Parameters
    ----------
    state
        A nested dict, list or tuple of arrays and scalars.

    Returns
    -------
    tuple
        The arrays, and the other scalars: None, str, bytes and integers of more than 64 bits.

    Raises
    ------
    ArgumentError
        For names that collide, and for anything that a checkpoint cannot hold. The message names
        the place.
    """
    flat = flatten(state)
    # The state gets a key of its own, so that an empty key inside it is not a special case.
    tree = {"": flat.tree}
    _, scalars = select(tree, flat.scalars, [""])
    leaves: dict[str, Any] = {name: flat.arrays[index] for name, index in array_names(tree).items()}
    for name, value in scalars.items():
        array = np.asarray(value) if isinstance(value, int | float) else None
        leaves[name] = value if array is None or array.dtype.hasobject else array
    arrays, others = {}, {}
    for name, value in plain_names({name[1:]: value for name, value in leaves.items()}).items():
        if not isinstance(value, np.ndarray):
            others[name] = value
            continue
        try:
            element_type(value.dtype)
        except ArgumentError as error:
            raise ArgumentError(f"array {name!r}: {error}") from None
        arrays[name] = value
    return arrays, others


def named_arrays(state: Any, form: str) -> dict[str, Array]:
    """Return the leaves of a state as arrays by name, as `named_leaves`.

    Parameters
    ----------
    form
        The name of the kind of file, for errors.

    Raises
    ------
    ArgumentError
        As `named_leaves`; also for a scalar that no array can hold.
    """
    arrays, others = named_leaves(state)
    for name, value in others.items():
        kind = "int of more than 64 bits" if isinstance(value, int) else type(value).__name__
        raise ArgumentError(
            f"state entry {name!r} is a {kind}: {form} file holds arrays and numbers; "
            "write a .safetensors or .lcc.h5 file, or choose arrays by --key"
        )
    return arrays

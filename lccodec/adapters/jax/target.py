"""A state gets the structure and types of a target; if anything differs, an error lists it."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Final

import jax
import numpy as np

from ...chain.read.arrivals import Arrivals
from ...element_types import in_host_order
from ..tree.matching import check_same
from ..tree.plain import from_outline, from_plain
from .states import host_leaf, placed
from .tree import described, leaves, rebuild

__all__ = ["load_into"]

_NUMBER_KINDS: Final[dict[Any, Any]] = {bool: np.bool_, int: np.integer, float: np.floating}


def load_into(target: Any, state: Any) -> Any:
    """Check all of a state, then return it in the structure and with the types of a target.

    Parameters
    ----------
    target
        A pytree of `jax.ShapeDtypeStruct` (as `jax.eval_shape` makes), of arrays, or of plain
        values; the values do not matter. An array gets the sharding of the target; without one it
        goes to the default device. Where the target has NumPy arrays, the result has too. A number
        and an array without dimensions fit each other if the value stays the same.
    state
        The saved state: a pytree with the same names, of any nodes. Or the leaves of a chain as
        ``chain.restore_iter()`` yields them: then each array goes straight to the devices of the
        target while the rest is decoded.

    Returns
    -------
    object
        A new tree; `target` is not changed.

    Raises
    ------
    ArgumentError
        Lists every leaf that is missing, unexpected, of another shape or dtype, or of a shape that
        the sharding of the target cannot divide.
    DataError, ChainError, StorageError
        If leaves of a chain cannot be decoded.
    """
    if isinstance(state, Arrivals):
        with state:
            return _load_arrivals(target, state)
    wanted = dict(leaves(target))
    found = _checked(wanted, leaves(state))
    return rebuild(target, lambda name, like: _placed(found[name], like, name))


def _load_arrivals(target: Any, arrivals: Arrivals) -> Any:
    """Check what a chain holds, then place each array when it arrives."""
    state, hollow = from_outline(arrivals, host_leaf)
    wanted = dict(leaves(target))
    found = _checked(wanted, leaves(state) if arrivals.whole else state.items())
    made: dict[str, Any] = {}
    inner: dict[int, Any] = {}  # arrays inside leaves, such as a deque, by the id of what stands for them
    for name, value in arrivals.arrays:
        if not isinstance(value, np.ndarray):
            continue
        host = from_plain(value, arrivals.metadata, name, host_leaf)
        if name in wanted:
            made[name] = _placed(_fitted(host, wanted[name]), wanted[name], name)
        elif name in hollow:
            inner[id(hollow[name])] = host

    def leaf(name: str, like: Any) -> Any:
        return made[name] if name in made else _placed(copy.deepcopy(found[name], inner), like, name)

    return rebuild(target, leaf)


def _checked(wanted: dict[str, Any], state: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the leaves of a state as the target has them, by name; raise if one does not fit."""
    found = {name: _fitted(leaf, wanted.get(name)) for name, leaf in state}
    check_same(
        {name: _describe(leaf) for name, leaf in wanted.items()},
        {name: _describe(leaf) for name, leaf in found.items()},
        [problem for name, leaf in wanted.items() for problem in _indivisible(name, leaf)],
    )
    return found


def _placed(value: Any, like: Any, name: str) -> Any:
    """Return a leaf that fits as the target has it: on its devices, of NumPy, or plain."""
    value = in_host_order(value) if isinstance(value, np.ndarray) else value
    if isinstance(like, jax.Array | jax.ShapeDtypeStruct):
        return placed(value, like.sharding, name)
    if isinstance(like, np.ndarray | np.generic):
        return np.asarray(value) if isinstance(like, np.ndarray) else np.asarray(value)[()]
    return value


def _fitted(value: Any, like: Any) -> Any:
    """Turn a number into an array without dimensions, or back, as the target has it.

    The step of Linen's `TrainState` is an int until a jitted function has returned it. If the value
    would change, it is returned as it is.
    """
    number, array = (value, like) if type(value) in _NUMBER_KINDS else (like, value)
    if (
        type(number) not in _NUMBER_KINDS
        or not hasattr(array, "dtype")
        or getattr(array, "shape", None) != ()
    ):
        return value
    if not jax.numpy.issubdtype(array.dtype, _NUMBER_KINDS[type(number)]):
        return value
    if array is value:
        return type(number)(np.asarray(value))
    try:
        made = np.asarray(value, array.dtype)
    except OverflowError:
        return value
    return made if type(value)(made) == value or value != value else value  # noqa: PLR0124 - NaN


def _describe(value: Any) -> str:
    """Return the type and shape of an array, in words."""
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return "no array"
    return described(value)


def _indivisible(name: str, value: Any) -> list[str]:
    sharding = getattr(value, "sharding", None)
    try:
        if sharding is not None:
            sharding.shard_shape(value.shape)
    except ValueError as error:
        return [f"{name}: {error}"]
    return []

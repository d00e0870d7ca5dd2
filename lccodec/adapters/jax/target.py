"""A state gets the structure and types of a target; if anything differs, an error lists it.

A checkpoint file is loaded to a target, too.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import jax
import numpy as np

from ...chain.read.checkpoint import Arrivals, OpenCheckpoint, open_file
from ...chain.save import single_file
from ...element_types import in_host_order
from ...errors import ArgumentError
from ...policy.policy import Policy
from ...policy.roles import Role
from ..tree.matching import LoadReport, Renaming, check_same, paired
from ..tree.plain import from_outline, from_plain
from .roles import roles as known_roles
from .states import described, from_numpy, host_leaf, leaves, placed, rebuild, to_numpy

_NO_ARRAY: Final = "no array"
_NUMBER_KINDS: Final[dict[Any, Any]] = {bool: np.bool_, int: np.integer, float: np.floating}


def load_into(
    target: Any,
    state: Any,
    *,
    strict: bool = True,
    prefix: str = "",
    rename: Mapping[str, str] | None = None,
    report: Callable[[LoadReport], object] | None = None,
) -> Any:
    """Check all of a state, then return it in the structure and with the types of a target.

    Parameters
    ----------
    target
        A pytree of `jax.ShapeDtypeStruct` (as `jax.eval_shape` makes), of arrays, or of plain
        values. An array gets the sharding of the target; without one it goes to the default device.
        Where the target has NumPy arrays, the result has too. A number and an array without
        dimensions fit each other if the value stays the same. A function of the target stays where
        the state has None, as `equinox.filter` leaves it.
    state
        The saved state: a pytree with the same names, of any nodes. Or the leaves of a chain as
        ``chain.restore_iter()`` yields them: then each array goes straight to the devices of the
        target while the rest is decoded.
    strict
        If False, leaves that only one of the two has are skipped, and an `LccodecWarning` says
        which: the result has the values of the target there. Shapes and types must still fit.
    prefix
        The part of the state that belongs to the target, as ``"params"`` or ``"run/params"``.
    rename
        New names for leaves of the state, by name or pattern, as ``{"params/enc/*":
        "params/encoder/*"}`` (see `lccodec.adapters.tree.matching.Renaming`).
    report
        Is called with a `LoadReport` of what was loaded, renamed, missing and left over.

    Returns
    -------
    object
        A new tree; `target` is not changed.

    Raises
    ------
    ArgumentError
        Lists up to ten leaves of each kind that are missing, unexpected, of another shape or dtype,
        of a shape that the sharding of the target cannot divide, of a name that fits two, or that
        have a value nowhere. Also if not one array fits.
    DataError, ChainError, StorageError
        If leaves of a chain cannot be decoded.
    """
    if not (report is None or callable(report)):
        raise ArgumentError(f"report must be a function such as print; got {report!r}")
    wanted = dict(leaves(target))
    matched = partial(_Matched, wanted, strict=strict, prefix=prefix, renaming=Renaming(rename))
    if isinstance(state, Arrivals):
        with state:
            match, leaf = _arriving(matched, state)
    else:
        match = matched(leaves(state))
        values = match.shared

        def leaf(name: str, like: Any) -> Any:
            return _placed(values[name], like, name)

    made = rebuild(target, lambda name, like: leaf(name, like) if name in match.shared else like)
    match.report.tell(report, strict=strict)
    return made


def _arriving(
    matched: Callable[[Iterable[tuple[str, Any]]], _Matched], arrivals: Arrivals
) -> tuple[_Matched, Callable[[str, Any], Any]]:
    """Check what a chain holds, then place each array when it arrives."""
    state, hollow = from_outline(arrivals, host_leaf)
    match = matched(leaves(state) if arrivals.whole else state.items())
    wanted, shared = match.wanted, match.shared
    made: dict[str, Any] = {}
    inner: dict[int, Any] = {}  # arrays inside leaves, such as a deque, by the id of what stands for them
    for saved, value in arrivals.arrays:
        if not isinstance(value, np.ndarray):
            continue
        host = from_plain(value, arrivals.metadata, saved, host_leaf)
        name = match.names.get(saved)
        if name in wanted:
            made[name] = _placed(_fitted(host, wanted[name]), wanted[name], name)
        elif saved in hollow:
            inner[id(hollow[saved])] = host

    def leaf(name: str, like: Any) -> Any:
        return made[name] if name in made else _placed(copy.deepcopy(shared[name], inner), like, name)

    return match, leaf


class _Matched:
    """The leaves of a state as the target has them, by the names of the target.

    `wanted` and `shared` are the leaves of the target, and those of the state that it has; `names`
    has the name in the target of each leaf of the state.
    """

    def __init__(
        self,
        wanted: dict[str, Any],
        state: Iterable[tuple[str, Any]],
        *,
        strict: bool,
        prefix: str,
        renaming: Renaming,
    ) -> None:
        items = dict(state)
        start = _start(prefix, items)
        called = {name: name.removeprefix(start) for name in items if name.startswith(start)}
        pairs, problems = paired(wanted, called.values(), renaming)
        renaming.check_used()
        self.wanted = wanted
        self.names = {name: pairs[short] for name, short in called.items()}
        theirs_by_name = {
            self.names[name]: _fitted(items[name], wanted.get(self.names[name])) for name in called
        }
        # `equinox.filter` leaves None in the place of a function: that is the target's.
        self.shared = {
            name: value
            for name, value in theirs_by_name.items()
            if name in wanted and not (value is None and callable(wanted[name]))
        }
        self.report = LoadReport(
            list(self.shared),
            {name: new for name, new in self.names.items() if new in wanted and new != called[name]},
            [name for name in wanted if name not in theirs_by_name],
            [name for name in theirs_by_name if name not in wanted],
        )
        problems += [problem for name, leaf in wanted.items() for problem in _indivisible(name, leaf)]
        own = {name: described(leaf) or _NO_ARRAY for name, leaf in wanted.items()}
        theirs = {name: described(leaf) or _NO_ARRAY for name, leaf in theirs_by_name.items()}
        fits = any(own[name] == theirs[name] != _NO_ARRAY for name in self.shared)
        if not strict and (fits or set(own.values()) <= {_NO_ARRAY}):
            problems += [
                f"{name}: is not in the state, and has no value in the target (jax.ShapeDtypeStruct)"
                for name in self.report.missing
                if isinstance(wanted[name], jax.ShapeDtypeStruct)
            ]
            own, theirs = ({name: words[name] for name in self.shared} for words in (own, theirs))
        elif not strict:
            problems.append("not one array of the state fits the target")
        check_same(own, theirs, problems, "strict=False skips what only one of the two has" if strict else "")


def _start(prefix: object, names: Iterable[str]) -> str:
    """Return what the names of the leaves begin with that a prefix stands for."""
    if not isinstance(prefix, str):
        raise ArgumentError(f"prefix must be a string such as 'params'; got {prefix!r}")
    start = prefix if prefix.endswith(".") or not prefix else f"{prefix}/"
    if not any(name.startswith(start) for name in names) and prefix:
        raise ArgumentError(f"the state has nothing under the prefix {prefix!r}")
    return start


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
    kind, dtype = _NUMBER_KINDS.get(type(number)), getattr(array, "dtype", None)
    if kind is None or dtype is None or getattr(array, "shape", None) != ():
        return value
    if not jax.numpy.issubdtype(dtype, kind):
        return value
    if array is value:
        return type(number)(np.asarray(value))
    try:
        made = np.asarray(value, array.dtype)
    except OverflowError:
        return value
    return made if type(value)(made) == value or value != value else value  # noqa: PLR0124 - NaN


def _indivisible(name: str, value: Any) -> list[str]:
    sharding = getattr(value, "sharding", None)
    try:
        if sharding is not None:
            sharding.shard_shape(value.shape)
    except ValueError as error:
        return [f"{name}: {error}"]
    return []


def save(
    state: Any,
    metadata: dict[str, str] | None = None,
    *,
    policy: str | Policy = "lossless",
    roles: Mapping[str, Role] = MappingProxyType({}),
    reference: Any = None,
) -> bytes:
    """Return a pytree as the bytes of a checkpoint file, as `lccodec.save` does.

    Roles that the structure of the state says need not be given. The reference is a pytree, too.
    Errors are also those of `to_numpy`.
    """
    before = None if reference is None else to_numpy(reference)[0]
    return single_file.coded(*to_numpy(state, metadata), policy, roles, before, known_roles(state))


def save_file(state: Any, path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write a pytree to a lossless checkpoint file, atomically.

    The errors are those of `to_numpy` and `lccodec.save_file`.
    """
    plain, kept = to_numpy(state, metadata)
    single_file.save_file(plain, path, kept)


def load(data: bytes, target: Any = None, *, reference: Any = None) -> Any:
    """Return the pytree in the bytes of a checkpoint file.

    `target` is as in `load_file`, and `reference` as for `lccodec.load`, a pytree. The errors are
    those of `load_file`, and of `lccodec.load`.
    """
    before = None if reference is None else to_numpy(reference)[0]
    return _loaded(single_file.opened(data, before), target)


def load_file(path: str | os.PathLike[str], target: Any = None) -> Any:
    """Return the pytree in a checkpoint file; any framework may have written it.

    With a target, arrays go straight to the devices of its shardings, each as soon as it is
    decoded. None gives plain containers. The errors are those of `from_numpy`, `load_into` and
    `lccodec.load_file`.
    """
    return _loaded(open_file(path), target)


def _loaded(file: OpenCheckpoint, target: Any) -> Any:
    if target is not None:
        return load_into(target, Arrivals(file, dtype="bits"))
    with file:
        return file.restored(from_numpy)

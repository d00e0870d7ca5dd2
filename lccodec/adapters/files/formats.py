"""What the adapters of other file formats share: a state as named arrays, and files written whole.

Other formats hold arrays by name and nothing else. The name of an array is its path in the state, keys and
positions joined by ``/``, with every key as it is: no ``~1`` for the ``/`` inside a key, as in a checkpoint
(LCC-STA-07), so that a flat dict keeps its names on the way through a chain and back.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from ...container.system import checked_path, flag
from ...container.tree import array_names, flatten, select
from ...element_types import Array, element_type
from ...errors import ArgumentError, StorageError

__all__ = [
    "named_arrays",
    "named_leaves",
    "plain_names",
    "regular_file",
    "replacing",
    "steps_in_names",
    "storage",
]

Value = TypeVar("Value")


def plain_names(leaves: Mapping[str, Value]) -> dict[str, Value]:
    """Return leaves of a checkpoint under the names that other formats give them.

    Raises
    ------
    ArgumentError
        If two leaves would have one name, as ``{"a": {"b": x}, "a/b": y}`` has.

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

    An int, float or bool becomes an array without dimensions (int64 or uint64, float64, bool). An array in
    two places stands under both names.

    Parameters
    ----------
    state
        A nested dict, list or tuple of arrays and scalars.

    Returns
    -------
    tuple
        The arrays; and None, str, bytes and integers of more than 64 bits.

    Raises
    ------
    ArgumentError
        For names that collide, and whatever a checkpoint cannot hold either; names the place.
    """
    flat = flatten(state)
    # Below a key of its own the state is found whole, also where one of its keys is the empty string.
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
        What to call the kind of file in an error.

    Raises
    ------
    ArgumentError
        As `named_leaves`, and for a scalar that no array can hold.
    """
    arrays, others = named_leaves(state)
    for name, value in others.items():
        kind = "int of more than 64 bits" if isinstance(value, int) else type(value).__name__
        raise ArgumentError(
            f"state entry {name!r} is a {kind}: {form} file holds arrays and numbers; "
            "write a .safetensors or .lcc.h5 file, or choose arrays by --key"
        )
    return arrays


def steps_in_names(paths: Iterable[Path]) -> dict[int, Path] | None:
    """Return files by their steps, rising: the last number in each name, suffix apart.

    Returns
    -------
    dict or None
        None if a name has no number.

    Raises
    ------
    ArgumentError
        If two files have the same number.

    Examples
    --------
    >>> steps_in_names([Path("v2_step10.npz"), Path("v2_step9.npz")])  # doctest: +ELLIPSIS
    {9: ...Path('v2_step9.npz'), 10: ...Path('v2_step10.npz')}
    >>> steps_in_names([Path("final.npz")])
    """
    steps: dict[int, Path] = {}
    for path in paths:
        numbers = re.findall(r"[0-9]+", path.stem)
        if not numbers:
            return None
        step = int(numbers[-1])
        if step in steps:
            raise ArgumentError(
                f"{steps[step]} and {path} are both of step {step} by their names; give a step"
            )
        steps[step] = path
    return {step: steps[step] for step in sorted(steps)}


@contextmanager
def storage(action: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Let what the operating system refuses surface as StorageError."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(error.errno, f"{action}: {error.strerror or error}", str(path)) from error


@contextmanager
def regular_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for reading; a FIFO or device is refused, as reading it may never end.

    Raises
    ------
    StorageError
        For what is no regular file, and if the operating system cannot read it.
    """
    path = checked_path(path)
    with storage("cannot read", path), open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise StorageError(errno.EINVAL, "cannot read: not a regular file", str(path))
        yield file


def _open_at_once(name: str, flags: int) -> int:
    """Open a file; without O_NONBLOCK, to open a FIFO waits for a writer."""
    return os.open(name, flags | flag("O_NONBLOCK"))


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the path of an empty temporary file that takes the place of `path` once it is written.

    It takes the mode of the file it replaces. A symbolic link is replaced by a file, with the mode of what it
    points to.

    Raises
    ------
    ArgumentError
        If there can be no file of that name.
    StorageError
        If the operating system refuses to write; what was there stays, and no temporary is left.
    """
    target = checked_path(path)
    temporary = target.parent / f".tmp-{secrets.token_hex(8)}"
    with storage("cannot write", target):
        try:
            kept = _mode(target)
            # While it is written, nobody may read it who could not read what it replaces.
            temporary.touch(0o666 if kept is None else 0o600, exist_ok=False)
            if kept is not None:
                temporary.chmod(kept | 0o600)  # a file that is read-only is written all the same
            mode = temporary.stat().st_mode if kept is None else kept
            yield temporary
            with temporary.open("r+b") as file:
                temporary.chmod(mode)  # safetensors writes a file of its own, that only its owner can read
                os.fsync(file.fileno())  # a crash must not leave the new name on an empty file
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


def _mode(path: Path) -> int | None:
    """Return the permissions of a regular file, None where there is none."""
    try:
        status = path.stat()
    except OSError:  # whoever writes there is told what is wrong
        return None
    return stat.S_IMODE(status.st_mode) if stat.S_ISREG(status.st_mode) else None

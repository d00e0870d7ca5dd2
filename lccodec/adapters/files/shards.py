"""Index files of sharded states, ``model.safetensors.index.json``: which file holds a tensor.

``{"metadata": {...}, "weight_map": {tensor: file}}``, as Hugging Face writes it, and reads what is
written here. The names of files are not trusted: they must be names in the directory of the index,
never paths.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from ...element_types import Array
from ...errors import ArgumentError, DataError, FormatError, StorageError
from ..seals.reading import read_sealed
from .disk import replacing

__all__ = [
    "INDEX_SUFFIX",
    "SHARD_BYTES",
    "SHARD_NAME",
    "is_index",
    "load_shards",
    "read_index",
    "save_shards",
]

INDEX_SUFFIX: Final = ".index.json"
SHARD_BYTES: Final = 5_000_000_000  # of the tensors in a shard, as in transformers
_SIZE_KEY: Final = "total_size"  # of the metadata: the bytes of all tensors
_RULE: Final = "safetensors"
SHARD_NAME: Final = re.compile(r"[^/\\:\0]+\.safetensors")  # no directory, no drive, and not another index

Value = TypeVar("Value")


def is_index(path: str | os.PathLike[str]) -> bool:
    """Whether a path has the name of an index."""
    return str(path).endswith(INDEX_SUFFIX)


def read_index(path: str | os.PathLike[str]) -> tuple[dict[Path, list[str]], dict[str, str]]:
    """Return the files of an index with the names of their tensors, and its metadata.

    Raises
    ------
    ChecksumError
        If it is not as it was sealed (`lccodec.adapters.seals`).
    FormatError
        If it is not an index, or the name of a file is not one in the same directory.
    StorageError
        If the operating system cannot read it.
    """
    where = str(path)
    text = read_sealed(path)
    try:
        index = json.loads(text)
        weights: dict[str, str] = index["weight_map"]
        metadata: dict[str, Any] = index.get("metadata") or {}
        files: dict[str, list[str]] = {}
        for name, file in weights.items():
            files.setdefault(file, []).append(name)
        kept = {key: v if type(v) is str else json.dumps(v) for key, v in metadata.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise FormatError(_RULE, where, "not an index of shards: it has no weight_map") from None
    for file in files:
        if type(file) is not str or not SHARD_NAME.fullmatch(file):
            raise FormatError(
                _RULE, where, f"not the name of a .safetensors file in the same directory: {file!r}"
            )
    return {Path(path).with_name(file): names for file, names in files.items()}, kept


def load_shards(path: str | os.PathLike[str], load: Callable[[Path], dict[str, Value]]) -> dict[str, Value]:
    """Return the tensors of all shards of an index by name.

    Parameters
    ----------
    load
        Returns the tensors of one file.

    Raises
    ------
    FormatError
        If the index and a shard do not have the same tensors. The message names them.
    StorageError
        If a shard is missing.
    """
    files, _ = read_index(path)
    # Path.is_file raises for a name that is too long.
    if missing := [file.name for file in files if not os.path.isfile(file)]:  # noqa: PTH113
        message = f"{len(missing)} of {len(files)} shards are missing: {', '.join(missing)}"
        raise StorageError(errno.ENOENT, message, str(path))
    tensors: dict[str, Value] = {}
    for file, names in files.items():
        found = load(file)
        if differing := sorted(set(names) ^ set(found)):
            raise FormatError(
                _RULE, f"{path}: {file.name}", f"only one of index and shard has {', '.join(differing)}"
            )
        tensors.update(found)
    return tensors


def save_shards(
    path: str | os.PathLike[str],
    arrays: Mapping[str, Array],
    metadata: Mapping[str, str],
    max_bytes: int,
    write: Callable[[Path, dict[str, Array]], None],
) -> None:
    """Write arrays into shards of at most `max_bytes` each, and their index.

    A larger array has a shard of its own. The shards get their names when all are written, and the
    index comes last. Then shards of an older index of this name go, if it has others.

    Parameters
    ----------
    metadata
        Strings for the index.
    write
        Writes arrays into the file of a path.

    Raises
    ------
    ArgumentError
        If `max_bytes` is not a positive integer, or `write` raises it.
    StorageError
        If the operating system refuses.
    """
    if type(max_bytes) is not int or max_bytes < 1:
        raise ArgumentError(f"the size of a shard must be a positive number of bytes; got {max_bytes!r}")
    groups = _grouped(arrays, max_bytes)
    target = Path(path)
    stem = _stem(target)
    files = [
        target.with_name(f"{stem}-{number:05d}-of-{len(groups):05d}.safetensors")
        for number in range(1, len(groups) + 1)
    ]
    weights = {name: file.name for file, group in zip(files, groups, strict=True) for name in group}
    total = sum(array.nbytes for array in arrays.values())
    index = {"metadata": {**metadata, _SIZE_KEY: total}, "weight_map": weights}
    older = _shards_of(target)
    with ExitStack() as stack:  # left from the last on: the index gets its name after the shards
        text = json.dumps(index, indent=2, ensure_ascii=False) + "\n"
        stack.enter_context(replacing(target)).write_text(text, encoding="utf-8")
        for file, group in zip(files, groups, strict=True):
            write(stack.enter_context(replacing(file)), group)
    for file in older.difference(files):
        with suppress(OSError):  # the new state is whole without that
            file.unlink()


def _shards_of(index: Path) -> set[Path]:
    """Return the shards of an index that have names as `save_shards` gives them."""
    try:
        files, _ = read_index(index)
    except (DataError, StorageError):
        return set()
    name = re.compile(re.escape(_stem(index)) + r"-[0-9]{5}-of-[0-9]{5}\.safetensors")
    return {file for file in files if name.fullmatch(file.name)}


def _stem(index: Path) -> str:
    return index.name.removesuffix(INDEX_SUFFIX).removesuffix(".safetensors")


def _grouped(arrays: Mapping[str, Array], max_bytes: int) -> list[dict[str, Array]]:
    """Return arrays in their order, as many in each group as fit; one group at least."""
    groups: list[dict[str, Array]] = [{}]
    held = 0
    for name, array in arrays.items():
        if groups[-1] and held + array.nbytes > max_bytes:
            groups.append({})
            held = 0
        groups[-1][name] = array
        held += array.nbytes
    return groups

"""Index files of sharded states, ``model.safetensors.index.json``: which file holds a tensor.

``{"metadata": {...}, "weight_map": {tensor: file}}``, as Hugging Face writes it. The names of files
are not trusted: they must be names in the directory of the index, never paths.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from ...errors import FormatError, StorageError
from .disk import regular_file

__all__ = ["INDEX_SUFFIX", "is_index", "load_shards", "read_index"]

INDEX_SUFFIX: Final = ".index.json"
_RULE: Final = "safetensors"
_SHARD_NAME: Final = re.compile(r"[^/\\:\0]+\.safetensors")  # no directory, no drive, and not another index

Value = TypeVar("Value")


def is_index(path: str | os.PathLike[str]) -> bool:
    """Whether a path has the name of an index."""
    return str(path).endswith(INDEX_SUFFIX)


def read_index(path: str | os.PathLike[str]) -> tuple[dict[Path, list[str]], dict[str, str]]:
    """Return the files of an index with the names of their tensors, and its metadata.

    Raises
    ------
    FormatError
        If it is not an index, or the name of a file is not one in the same directory.
    StorageError
        If the operating system cannot read it.
    """
    where = str(path)
    with regular_file(path) as stream:
        text = stream.read()
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
        if type(file) is not str or not _SHARD_NAME.fullmatch(file):
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
    if missing := [file.name for file in files if not file.is_file()]:
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

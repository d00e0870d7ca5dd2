"""Index files of sharded states, ``model.safetensors.index.json``: which tensor lies in which file beside it.

``{"metadata": {...}, "weight_map": {tensor: file}}``, as Hugging Face writes it. The names of files come from
outside: they are names in the directory of the index, never paths.
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
_SHARD: Final = re.compile(r"[^/\\:\0]+\.safetensors")  # no directory and no drive, and no index again

Value = TypeVar("Value")


def is_index(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of an index, by its name."""
    return str(path).endswith(INDEX_SUFFIX)


def read_index(path: str | os.PathLike[str]) -> tuple[dict[Path, list[str]], dict[str, str]]:
    """Return the files of an index, each with the names of its tensors, and the metadata as strings.

    Raises
    ------
    FormatError
        If it is no index, or a file is not named as one beside it.
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
        raise FormatError(_RULE, where, "not an index of shards: no object with a weight_map") from None
    for file in files:
        if type(file) is not str or not _SHARD.fullmatch(file):
            raise FormatError(_RULE, where, f"not the name of a .safetensors file beside it: {file!r}")
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
        If the index and a shard do not have the same tensors; names them.
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

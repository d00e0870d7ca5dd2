"""Index files of sharded states, ``model.safetensors.index.json``: which file holds a tensor.

``{"metadata": {...}, "weight_map": {tensor: file}}``, as Hugging Face writes it, and reads what is
written here. The names of files are not trusted: they must be names in the directory of the index,
never paths.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from ...container.folder import Folder, read_bounded, replacing
from ...container.system import storage_errors
from ...element_types import Array
from ...errors import ArgumentError, DataError, FormatError, StorageError
from ..seals import read_sealed
from .header import INDEX_SUFFIX

SHARD_BYTES: Final = 5_000_000_000  # of the tensors in a shard, as in transformers
MAX_INDEX_BYTES: Final = 100_000_000  # as of a header: more would only take memory
_SIZE_KEY: Final = "total_size"  # of the metadata: the bytes of all tensors
_RULE: Final = "safetensors"
SHARD_NAME: Final = re.compile(r"[^/\\:\0]+\.safetensors")  # no directory, no drive, and not another index

Value = TypeVar("Value")


def read_index(path: str | os.PathLike[str]) -> tuple[dict[Path, list[str]], dict[str, str]]:
    """Return the files of an index with the names of their tensors, and its metadata.

    A ``DataError`` says that it is not as sealed, too large, or names a file elsewhere.
    """
    return parse_index(path, read_sealed(path, MAX_INDEX_BYTES))


def parse_index(path: str | os.PathLike[str], text: bytes) -> tuple[dict[Path, list[str]], dict[str, str]]:
    """Return the same of the text of an index, which nobody has verified; raise ``FormatError``."""
    where = str(path)
    try:
        index = parsed(text, _RULE, where)
        weights: dict[str, str] = index["weight_map"]
        metadata: dict[str, Any] = index.get("metadata") or {}
        files: dict[str, list[str]] = {}
        for name, file in weights.items():
            files.setdefault(file, []).append(name)
        kept = {key: v if type(v) is str else json.dumps(v) for key, v in metadata.items()}
    except (FormatError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise FormatError(_RULE, where, "not an index of shards: it has no weight_map") from None
    for file in files:
        if type(file) is not str or not SHARD_NAME.fullmatch(file):
            raise FormatError(
                _RULE, where, f"not the name of a .safetensors file in the same directory: {file!r}"
            )
    return {Path(path).with_name(file): names for file, names in files.items()}, kept


def parsed(text: bytes, rule: str, where: str) -> Any:
    """Return the document that a text of JSON is; raise ``FormatError`` if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise FormatError(rule, where, "not JSON, or nested too deeply") from None


def load_shards(path: str | os.PathLike[str], load: Callable[[Path], dict[str, Value]]) -> dict[str, Value]:
    """Return the tensors of all shards of an index by name; `load` returns those of one file."""
    files, _ = read_index(path)
    # Path.is_file raises for a name that is too long.
    if missing := [file.name for file in files if not os.path.isfile(file)]:  # noqa: PTH113
        message = f"{len(missing)} of {len(files)} shards are missing: {', '.join(missing)}"
        raise StorageError(errno.ENOENT, message, str(path))
    tensors: dict[str, Value] = {}
    for file, names in files.items():
        shard = load(file)
        if differing := sorted(set(names) ^ set(shard)):
            raise FormatError(
                _RULE, f"{path}: {file.name}", f"only one of index and shard has {', '.join(differing)}"
            )
        tensors.update(shard)
    return tensors


def save_shards(
    path: str | os.PathLike[str],
    arrays: Mapping[str, Array],
    metadata: Mapping[str, str],
    max_bytes: int,
    write: Callable[[Path, dict[str, Array]], None],
) -> None:
    """Write arrays into shards of at most `max_bytes` each, or of one array, and their index.

    No shard gets a name that an older index of this name uses. The shards get their names when all
    are written, the index comes last, then the older shards go: whatever is killed, the index and
    its shards are of one state. Several processes wait for each other.
    """
    if type(max_bytes) is not int or max_bytes < 1:
        raise ArgumentError(f"the size of a shard must be a positive number of bytes; got {max_bytes!r}")
    groups, target = _grouped(arrays, max_bytes), Path(path)
    total = sum(array.nbytes for array in arrays.values())
    with storage_errors("cannot write", target), Folder(target.parent) as folder:
        folder.lock()
        there, older = set(folder.names()), _shards_of(target)
        files = _free_names(target, len(groups), there, older)
        weights = {name: file.name for file, group in zip(files, groups, strict=True) for name in group}
        index = {"metadata": {**metadata, _SIZE_KEY: total}, "weight_map": weights}
        with replacing(target) as temporary:
            text = json.dumps(index, indent=2, ensure_ascii=False) + "\n"
            temporary.write_text(text, encoding="utf-8")
            try:
                with ExitStack() as stack:
                    for file, group in zip(files, groups, strict=True):
                        write(stack.enter_context(replacing(file)), group)
            except BaseException:
                with suppress(OSError):
                    folder.remove({file.name for file in files} - there)
                raise
        name = re.escape(_stem(target)) + r"(?:-[0-9]+)?-[0-9]{5}-of-[0-9]{5}\.safetensors"
        with suppress(OSError):  # the new state is whole without that
            folder.remove(filter(re.compile(name).fullmatch, older or ()))


def _shards_of(index: Path) -> set[str] | None:
    """Return the names of the shards of an index, unverified; ``None`` if it cannot be read."""
    if not os.path.lexists(index):
        return set()
    try:
        return {file.name for file in parse_index(index, read_bounded(index, MAX_INDEX_BYTES, _RULE))[0]}
    except FormatError:  # nobody reads it
        return set()
    except (DataError, StorageError):
        return None


def _free_names(index: Path, count: int, there: set[str], older: set[str] | None) -> list[Path]:
    """Return paths for so many shards of an index.

    They have the usual names, unless the older index may use these: then others, which no file has.
    """
    taken = there if older is None else older
    for number in itertools.count(1):
        mark = "" if number == 1 else f"-{number}"
        names = [f"{_stem(index)}{mark}-{n:05d}-of-{count:05d}.safetensors" for n in range(1, count + 1)]
        if taken.isdisjoint(names):
            break
        taken = there
    return [index.with_name(name) for name in names]


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

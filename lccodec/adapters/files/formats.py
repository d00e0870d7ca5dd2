"""What files are, by their names and first bytes: which format a file has, and which step.

The suffix gives the format. It may be wrong: Lightning gives the files of every plugin the suffix
``.ckpt``, and a checkpoint of lccodec is an HDF5 file. `recognize` tells what a file is by its
first and last bytes, and nothing more. HDF5 files have many suffixes: a file of another suffix is
read if its first bytes say that it is one, and the suffixes of `HDF5` are written. A ``.ckpt``,
``.h5`` or ``.hdf5`` file may also be a checkpoint.

Steps are read from the names of files, or of their folders. A number is a step only if it is a
whole one, and if it is clear which number is meant. In a name with several, a word says it
(`_STEP_WORDS`, the first kind that occurs); without such a word, it is the number in which the
names differ. Nothing is guessed: decimals, dates, numbers after different words, and names with a
number beside names without one are refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal

from ...constants import (
    BUNDLE_MAGIC,
    CHECKPOINT_SUFFIX,
    MANIFEST_DATASET,
    PAYLOAD_DATASET,
    TRAILER_MAGIC,
    TRAILER_SIZE,
)
from ...container.folder import regular_file
from ...container.system import StrPath, checked_path, storage_errors
from ...errors import ArgumentError, DataError
from .header import INDEX_SUFFIX
from .zip_archive import member_names

NPZ: Final = ".npz"
SAFETENSORS: Final = ".safetensors"
INDEX: Final = SAFETENSORS + INDEX_SUFFIX
#: Suffixes of HDF5 files: of netCDF-4, NeXus, CXI, anndata, PySCF, MATLAB and others.
HDF5: Final = (
    *(".h5", ".hdf5", ".nc", ".nc4", ".chk", ".nxs", ".nx", ".nx5", ".nxspe", ".cxi", ".emd", ".hspy"),
    *(".hdf", ".he5", ".cdf", ".h5ad", ".h5mu", ".loom", ".cool", ".mcool", ".nwb", ".fast5", ".mat"),
    *(".cgns", ".exo", ".med", ".silo", ".ims", ".h5m", ".h5oina", ".jld2", ".dream3d"),
)
TORCH: Final = (".pt", ".pth", ".ckpt")
#: Lightning's .ckpt files hold more than a state.
WRITTEN_BY_TORCH: Final = (".pt", ".pth")
_WRITTEN: Final = (NPZ, SAFETENSORS, INDEX, CHECKPOINT_SUFFIX, *HDF5, *WRITTEN_BY_TORCH)
#: The suffixes that errors name.
SHOWN: Final = (NPZ, SAFETENSORS, INDEX, CHECKPOINT_SUFFIX, *HDF5[:3], *WRITTEN_BY_TORCH)
#: Suffixes of the files that can be read; HDF5 files are read under any suffix.
READ: Final = tuple(dict.fromkeys((*_WRITTEN, *TORCH)))


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    name: str  # a word for programs
    title: str  # what it is, in words
    suffixes: tuple[str, ...] = ()  # by which `lccodec.adapters.files` reads it
    advice: str = ""  # if it is not read: what to do instead


_KINDS: Final = (
    Kind("checkpoint", "an lccodec checkpoint", (".lcc.h5",)),
    Kind("bundle", "an lccodec bundle", (), "unbundle writes its files into a directory"),
    Kind("safetensors", "a safetensors file", (".safetensors",)),
    Kind("safetensors-index", "an index of safetensors shards", (".safetensors.index.json",)),
    Kind("npz", "an archive of NumPy arrays", (".npz",)),
    Kind("torch", "a file of torch.save", (".pt", ".pth", ".ckpt")),
    Kind("torchscript", "a TorchScript program", (), "save the state_dict() of its module with torch.save"),
    Kind("keras", "a Keras model archive", (), "unzip it: the .weights.h5 file in it can be read"),
    Kind("hdf5", "an HDF5 file", (".h5", ".hdf5")),
    Kind("netcdf3", "a netCDF-3 file", (), "convert it with nccopy -4: lccodec reads netCDF-4"),
    Kind("npy", "a single NumPy array", (), "write it into an archive with numpy.savez"),
    Kind(
        "pickle", "a Python pickle", (), "if you trust it, load it and save its arrays with lccodec.save_file"
    ),
    Kind("zip", "a zip archive", (), "unzip it"),
    Kind("empty", "an empty file", (), "nothing is in it"),
)

#: The kinds by name.
KINDS: Final = {kind.name: kind for kind in _KINDS}

_HEAD_BYTES: Final = 4096  # the directory of an HDF5 file begins at 0, 512, 1024 or 2048
_HDF5_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
_HDF5_PLACES: Final = (512, 1024, 2048)
# Where a checkpoint has the names of its datasets (LCC-H5-05), also if it is cut off.
_DATASETS: Final = (PAYLOAD_DATASET.encode(), MANIFEST_DATASET.encode())
_DATASET_PLACES: Final = slice(94, 101), slice(116, 124)
_ZIP_START: Final = b"PK\x03\x04"
_EMPTY_ZIP: Final = b"PK\x05\x06"
#: torch.save before version 1.6 wrote a pickle (protocol 2) of an integer of ten bytes.
_STARTS: Final[dict[str, bytes | tuple[bytes, ...]]] = {
    "bundle": BUNDLE_MAGIC,
    "netcdf3": (b"CDF\1", b"CDF\2", b"CDF\5"),
    "npy": b"\x93NUMPY",
    "torch": b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.",
}
_PICKLE_PROTOCOLS: Final = tuple(bytes([0x80, protocol]) for protocol in (2, 3, 4, 5))
_MAX_SAFETENSORS_HEADER: Final = 100_000_000


def check_suffix(path: StrPath, write: bool = False) -> Path:
    """Return the path of a file; raise ArgumentError if its format cannot be read, or written.

    >>> check_suffix("w.ckpt", write=True)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    lccodec.errors.ArgumentError: ...w.ckpt: is only read, as ...: not one of .npz, ..., .pt, .pth
    """
    path = checked_path(path)
    if path.name.endswith(_WRITTEN if write else READ) or (not write and _is_hdf5(path)):
        return path
    if not write and (kind := _kind(path)) is not None and kind.name != "empty":
        advice = f"give it the suffix {kind.suffixes[0]}" if kind.suffixes else kind.advice
        raise ArgumentError(f"{path} is {kind.title}: {advice}")
    only = "is only read, as it holds more than a state; write .pt for torch.load: "
    why = only if write and path.name.endswith(READ) else ""
    shown = SHOWN if write else (*SHOWN, *TORCH[len(WRITTEN_BY_TORCH) :])
    raise ArgumentError(f"{path}: {why}not one of {', '.join(shown)}")


def is_state(path: Path) -> bool:
    """Return whether a file in a folder is one of a state, by its suffix or as an HDF5 file."""
    if path.name.endswith(HDF5[2:]):  # some are suffixes of other formats, too
        return _is_hdf5(path)
    return path.is_file() and (path.name.endswith(READ) or _is_hdf5(path))


def _is_hdf5(path: Path) -> bool:
    return _kind(path) is KINDS["hdf5"]


def _kind(path: Path) -> Kind | None:
    """Return the kind of a file; ``None`` if it is not known, or there is no such file."""
    with suppress(OSError, ValueError):  # there is no such path
        return recognize(path) if path.is_file() else None
    return None


def is_checkpoint(path: Path) -> bool:
    """Return whether `load_file` reads a file as a checkpoint: by its suffix, or what is in it."""
    if path.name.endswith(CHECKPOINT_SUFFIX):
        return True
    if path.name.endswith(READ) and path.suffix not in (*HDF5, *TORCH):
        return False
    return recognize(path) is KINDS["checkpoint"]


def recognize(path: str | os.PathLike[str]) -> Kind | None:
    """Return the kind of a file by its first and last bytes, or None; nothing is verified."""
    with regular_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_HEAD_BYTES)
        file.seek(max(0, size - TRAILER_SIZE))
        name = _name(head, file.read(TRAILER_SIZE), size) or _archive_name(head, file)
    return None if name is None else KINDS[name]


def _name(head: bytes, tail: bytes, size: int) -> str | None:
    """Return the name of a kind that first and last bytes show."""
    if not head:
        return "empty"
    if tail.startswith(TRAILER_MAGIC):
        return "checkpoint"
    if head.startswith(_HDF5_SIGNATURE):
        named = tuple(head[place] for place in _DATASET_PLACES)
        return "checkpoint" if named == _DATASETS else "hdf5"
    if any(head[place : place + 8] == _HDF5_SIGNATURE for place in _HDF5_PLACES):  # behind a user block
        return "hdf5"
    for name, starts in _STARTS.items():
        if head.startswith(starts):
            return name
    length = int.from_bytes(head[:8], "little")
    if head[8:9] == b"{" and 2 <= length <= min(size - 8, _MAX_SAFETENSORS_HEADER):
        return "safetensors"
    if head.lstrip().startswith(b"{") and (b'"weight_map"' in head or b'"total_size"' in head):
        return "safetensors-index"
    return "pickle" if head.startswith(_PICKLE_PROTOCOLS) else None


def _archive_name(head: bytes, file: BinaryIO) -> str | None:
    """Return the name of a kind that the members of a zip archive show."""
    if not head.startswith((_ZIP_START, _EMPTY_ZIP)):
        return None
    try:
        names = member_names(file)
    except DataError:
        return "zip"
    ends = {name.rpartition("/")[2] for name in names if name.count("/") <= 1}
    if "data.pkl" in ends:
        return "torchscript" if "constants.pkl" in ends else "torch"
    if "config.json" in ends and any(name.endswith(".weights.h5") for name in names):
        return "keras"
    return "npz" if all(name.endswith(".npy") for name in names) else "zip"


#: Words before a number, from the best on. Those of the second list end in the word.
_STEP_WORDS: Final = (
    re.compile(r"it|its|.*(?:steps?|iters?|iterations?|updates?)"),
    re.compile(r".*(?:checkpoint|ckpt|chkpt)"),
    re.compile(r"ep|.*epochs?"),
)
_ANY_WORD: Final = len(_STEP_WORDS)  # the rank of all other words

_TOKEN: Final = re.compile(
    r"(?P<word>[A-Za-z]*)[ _=.-]*"
    r"(?:(?P<date>[0-9]{4}([-_.])[0-9]{1,2}\3[0-9]{1,2}(?![0-9])|[0-9]{1,2}([-_.])[0-9]{1,2}\4[0-9]{4}(?![0-9]))"
    r"|(?P<decimal>[0-9]+(?:\.[0-9]+)+(?:[eE][-+]?[0-9]+)?|[0-9]+[eE]-?[0-9]+)"
    r"|(?P<short>[0-9]+[kKmMbBtT])(?![A-Za-z0-9])"
    r"|(?P<whole>[0-9]+))"
)
_SHARD: Final = re.compile(r"-[0-9]+-of-[0-9]+$")  # a part of a state, which an index names
_MAX_FOLDERS_OF_ONE_FILE: Final = 2  # that are searched for its step, from the nearest on
_MAX_SHOWN_FILES: Final = 5  # in one error

Source = Literal["names", "folders"]


@dataclass(frozen=True)
class Numbering:
    """Files by rising step, and where their numbers are: in their names, or in their folders'."""

    steps: dict[int, Path]
    source: Source


@dataclass(frozen=True)
class _Number:
    """A number in a name. `step` is None if it is not a whole one; `word` may call it a step."""

    text: str
    word: str  # empty if it is not one of `_STEP_WORDS`
    rank: int
    step: int | None


def number_files(paths: Sequence[Path]) -> Numbering | None:
    """Return files by rising step; None if none of them has a number.

    Names come first, without their suffixes; then the folders in which the paths differ, from the
    nearest on. Of a single file, a folder counts if a word says that its number is a step, or if
    the number is the whole name. Folders with such a word come before names with other numbers. An
    ``ArgumentError`` says that it is not clear which numbers are the steps, or names files of one
    step.

    >>> number_files([Path("v2_step10.npz"), Path("v2_step9.npz")]).steps  # doctest: +ELLIPSIS
    {9: ...Path('v2_step9.npz'), 10: ...Path('v2_step10.npz')}
    >>> numbering = number_files([Path("checkpoint-500/model.npz")])
    >>> list(numbering.steps), numbering.source
    ([500], 'folders')
    >>> number_files([Path("final.npz")])
    """
    stems, folders = [_stem(path) for path in paths], _folders(paths)
    for path, stem in zip(paths, stems, strict=True):
        if _SHARD.search(stem):
            raise ArgumentError(f"{path} is one shard of a state: give its index, *{INDEX_SUFFIX}")
    if not any(map(_is_a_step, stems)):  # checkpoint-500/llama2.npz
        for names in folders:
            if all(map(_has_step_word, names)) and (file_numbers := _numbers(names, paths)) is not None:
                return _numbering(file_numbers, paths, "folders")
    numbers = _numbers(stems, paths)
    # A number that all names share, and no word calls a step, says nothing: a/model2, b/model2.
    alike = len(paths) > 1 and len({path.name for path in paths}) == 1 and not _is_a_step(stems[0])
    if numbers is None or alike:
        for names in folders:
            if (file_numbers := _numbers(names, paths)) is not None:
                return _numbering(file_numbers, paths, "folders")
    return None if numbers is None else _numbering(numbers, paths, "names")


def _stem(path: Path) -> str:
    """Return the name of a file without the suffix of its format."""
    suffix = max((ending for ending in READ if path.name.endswith(ending)), key=len, default=path.suffix)
    return path.name.removesuffix(suffix)


def _numbering(numbers: Sequence[int], paths: Sequence[Path], source: Source) -> Numbering:
    by_number: dict[int, Path] = {}
    for step, path in zip(numbers, paths, strict=True):
        if step in by_number:
            raise ArgumentError(f"by their names, {by_number[step]} and {path} are both of step {step}")
        by_number[step] = path
    return Numbering({step: by_number[step] for step in sorted(by_number)}, source)


def _folders(paths: Sequence[Path]) -> list[list[str]]:
    """Return the names of the folders that may have the steps, from the nearest on."""
    above = [path.parts[-2::-1] for path in paths]
    if len(paths) == 1:
        near = [name for name in above[0][:_MAX_FOLDERS_OF_ONE_FILE] if _is_a_step(name)]
        return [near[:1]] if near else []
    levels = [list(level) for level in zip(*above, strict=False)]
    return [level for level in levels if len(set(level)) > 1]


def _is_a_step(name: str) -> bool:
    return name.isdecimal() or _has_step_word(name)


def _has_step_word(name: str) -> bool:
    """Return whether a name has a number after a word such as step."""
    return any(number.rank < _ANY_WORD for number in _tokens(name))


def _numbers(names: Sequence[str], paths: Sequence[Path]) -> list[int] | None:
    """Return the step in each name, or None if no name has a number."""
    candidates = [_candidates(name) for name in names]
    if not any(candidates):
        return None
    if lacking := [path for path, numbers in zip(paths, candidates, strict=True) if not numbers]:
        other = next(path for path, numbers in zip(paths, candidates, strict=True) if numbers)
        raise ArgumentError(f"{other} has a number, but {_listed(lacking)} has none: all files need one")
    for path, numbers in zip(paths, candidates, strict=True):
        if broken := next((number for number in numbers if number.step is None), None):
            raise ArgumentError(f"{path}: a step must be a whole number; got {broken.text}")
    columns = (
        list(zip(*candidates, strict=True)) if len({len(numbers) for numbers in candidates}) == 1 else []
    )
    if len(columns) > 1:
        columns = [column for column in columns if len({number.step for number in column}) > 1]
    if len(columns) != 1:
        path, numbers = next((p, e) for p, e in zip(paths, candidates, strict=True) if len(e) > 1)
        texts = " and ".join(number.text for number in numbers)
        raise ArgumentError(f"{path}: it is not clear which number is the step: {texts}")
    if len({number.word for number in columns[0]}) > 1:
        raise ArgumentError(
            f"{_listed(paths)}: the numbers follow different words, and it is not clear which is the step"
        )
    return [number.step or 0 for number in columns[0]]


def _candidates(name: str) -> list[_Number]:
    """Return the numbers of a name that may be its step: those with the best word."""
    tokens = _tokens(name)
    best = [number for number in tokens if number.rank == min(token.rank for token in tokens)]
    if best and best[0].rank == _ANY_WORD:  # a loss beside a number without a word is no step
        best = [number for number in best if number.step is not None] or best
    return best


def _tokens(name: str) -> list[_Number]:
    tokens = []
    for match in _TOKEN.finditer(name):
        word = (match["word"] or "").lower()
        rank = next((r for r, words in enumerate(_STEP_WORDS) if words.fullmatch(word)), _ANY_WORD)
        if match["short"] and rank == _ANY_WORD:
            continue  # of a name, as in llama-7b
        text = next(match[kind] for kind in ("date", "decimal", "short", "whole") if match[kind])
        tokens.append(
            _Number(text, word if rank < _ANY_WORD else "", rank, int(text) if match["whole"] else None)
        )
    return tokens


def files_below(directory: Path) -> list[Path]:
    """Return the files of states in a directory; without one, the only such file of each folder.

    Parts of a state that an index names are left out. If there is no file, or a folder has several,
    that is an ``ArgumentError``.
    """
    if files := _states_in(directory):
        return files
    with storage_errors("cannot list", directory):
        folders = sorted(path for path in directory.iterdir() if path.is_dir() and path.name[0] != ".")
    inner = {folder: states for folder in folders if (states := _states_in(folder))}
    if not inner:
        raise ArgumentError(f"{directory}: no file of a state ({', '.join(SHOWN)}) in it or in its folders")
    for folder, states in inner.items():
        if len(states) > 1:
            names = _listed([path.relative_to(folder) for path in states])
            raise ArgumentError(
                f"{folder} has several files: {names}. Give those to save, as in"
                f" {directory}/*/{states[0].name}"
            )
    return [path for states in inner.values() for path in states]


def _states_in(directory: Path) -> list[Path]:
    with storage_errors("cannot list", directory):
        files = [path for path in sorted(directory.iterdir()) if is_state(path)]
    return [path for path in files if not _SHARD.search(_stem(path))]


def _listed(paths: Collection[Path]) -> str:
    shown = ", ".join(map(str, list(paths)[:_MAX_SHOWN_FILES]))
    return shown + (" and others" if len(paths) > _MAX_SHOWN_FILES else "")

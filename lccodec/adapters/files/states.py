"""States of whatever a path is: read, written, and converted for another framework.

A ``.lcc.h5`` file is a checkpoint; it is written lossless. A ``.safetensors.index.json`` file comes
with its shards, which are one state. A ``.pt`` or ``.pth`` file is one of ``torch.save``. It has no
place for metadata, nor has an ``.npz`` file. `convert` goes by the rules of `lccodec.exchange`.

`open_whole` reads what names other files, too. A link is followed to its step. The chunks of a
distributed checkpoint are put together from the chains of all ranks, and the parts of a checkpoint
of Orbax from all processes. A folder that was packed is read from its checkpoint. What is no state,
and a share of one, raises an error that names the way to the whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np

from ...chain.mend.ranks import rank_folders
from ...chain.overview import Progress
from ...chain.read.checkpoint import OpenCheckpoint, checked_names, kept, open_path
from ...chain.read.info import CheckpointInfo
from ...chain.read.links import LINK_KEY, PYTREE_KIND, RECORD_KIND, UNBOUNDED, Bounds, kind_of
from ...chain.save.single_file import save_file as save_checkpoint
from ...chain.store.directory import DirectoryStore, is_chain
from ...constants import CHECKPOINT_SUFFIX
from ...container.system import Address, Place, StrPath, checked_place
from ...container.tree import TYPES, array_names, flatten, metadata_strings, select, unflatten
from ...element_types import Array, components, from_components
from ...errors import ArgumentError, DependencyError, warn
from ...exchange import Rule, adam_to_flax, adam_to_torch, to_flax, to_torch
from ...exchange.mapping import leaves
from ...exchange.rules import SEPARATORS
from ...inspect.loss import Originals
from ...policy.declared import ENTRY
from ...policy.roles import Assignment
from ..chains import PACKED, open_linked
from ..tree import BYTE_TYPES, from_plain, to_plain
from .formats import (
    HDF5,
    INDEX,
    KINDS,
    NPZ,
    SAFETENSORS,
    TORCH,
    WRITTEN_BY_TORCH,
    Kind,
    check_suffix,
    files_below,
    is_checkpoint,
    number_files,
    recognize,
)
from .header import is_index
from .shards import SHARD_BYTES
from .structure import plain_names

_ORBAX_PART: Final = "process-0.lcc.h5"
_MAX_NAMES_SHOWN: Final = 3


class Together:
    """A state that was put together from many files, with the face of an open checkpoint."""

    progress: Progress = False  # nobody is told of it: all is read

    def __init__(
        self, state: Any, metadata: dict[str, str], info: CheckpointInfo, roles: Mapping[str, Assignment]
    ) -> None:
        self._flat, self._metadata, self._info = flatten(state), metadata, info
        self.roles = roles

    def __enter__(self) -> Self:
        return self

    def _do_nothing(self, *_: object) -> None:
        """Do nothing: all is read, its checksums were compared, and all files are closed."""

    __exit__ = close = verify = _do_nothing

    def keys(self) -> list[str]:
        """Return the names of the arrays."""
        return list(self._flat.names)

    def metadata(self) -> dict[str, str]:
        """Return the metadata, with the note of types."""
        return dict(self._metadata)

    def info(self) -> CheckpointInfo:
        """Return what is stored in the file that names the others."""
        return self._info

    def state(self, keys: Any = None, dtype: Literal["float32", "bits"] | None = None) -> Any:
        """Return the state; with `keys`, a dict of these leaves by name."""
        flat = self._flat
        if keys is None:
            return unflatten(flat.tree, [_of_dtype(array, dtype) for array in flat.arrays], flat.scalars)
        arrays, values = select(flat.tree, flat.scalars, checked_names(keys))
        return {**{name: _of_dtype(flat.arrays[index], dtype) for name, index in arrays.items()}, **values}


def _of_dtype(array: Array, dtype: str | None) -> Array:
    kind, bits = components(array)
    return from_components(bits, kind, array.shape, dtype)


OpenState: TypeAlias = OpenCheckpoint | Together


def open_whole(
    path: str | os.PathLike[str] | Address,
    *,
    step: int | None = None,
    exact: bool = True,
    bounds: Bounds = UNBOUNDED,
) -> OpenState:
    """Open the whole state of a checkpoint file, a step of a chain or a bundle, or a directory.

    Parameters and errors are those of `open_path`; bounds are for single checkpoints.
    """
    place = checked_place(path)
    if isinstance(place, Path) and os.path.isdir(place) and not DirectoryStore(place).steps():  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        if (place / PACKED).is_file():
            place = place / PACKED
        elif (place / _ORBAX_PART).is_file():
            place = place / _ORBAX_PART
        elif text := _what_is(place):
            raise ArgumentError(f"{place} {text}")
    file = open_path(place, step=step, exact=exact, bounds=bounds)
    kind = kind_of(file.links[-1].manifest)
    if kind is None:
        if (rank := file.metadata().get("rank")) is not None and f"rank-{rank}" in _ends(place):
            warn(f"{place} has only the share of rank {rank}; the record of all ranks leads to the whole")
        return file
    info = file.info()
    file.close()
    if isinstance(place, Address):
        raise ArgumentError(f"{place} names files of another place: copy all of it to a directory")
    if kind == LINK_KEY:
        return kept(open_linked(place), bounds)
    if bounds != UNBOUNDED:
        raise ArgumentError(f"{place}: bounds are for a single checkpoint, and this one names others")
    what, made = _MAKERS[kind]
    try:
        return made(place, info)
    except DependencyError as error:
        raise DependencyError(f"{place} is {what}, which {error}") from error


def _ends(place: Place) -> tuple[str, ...]:
    """Return the names of a path and of the directory above."""
    return () if isinstance(place, Address) else place.absolute().parts[-2:]


def _recorded(place: Path, info: CheckpointInfo) -> Together:
    """Put a distributed checkpoint together."""
    from .. import torch
    from ..dcp import LCStorageReader

    state = LCStorageReader(place if place.is_dir() else place.parent, step=info.step).state()
    return Together(*torch.to_numpy(state), info, torch.roles(state))


def _of_processes(place: Path, info: CheckpointInfo) -> Together:
    """Put a checkpoint of Orbax together."""
    from .. import jax
    from ..orbax import read_tree

    tree = read_tree(place.parent)
    return Together(*jax.to_numpy(tree), info, jax.roles(tree))


_MAKERS: Final[dict[str, tuple[str, Callable[[Path, CheckpointInfo], Together]]]] = {
    RECORD_KIND: ("a distributed checkpoint", _recorded),
    PYTREE_KIND: ("of a checkpoint of Orbax", _of_processes),
}


def _what_is(directory: Path) -> str | None:
    """Return what a directory without checkpoints has that a state could be read from, in words."""
    if folders := rank_folders(DirectoryStore(directory)):
        return (
            f"holds the chains of {len(folders)} ranks, each with its share of the state: name the directory"
            " of the checkpoint, which has the record of them; or one chain, for its share"
        )
    names = sorted(path.name for path in directory.iterdir())
    if ".metadata" in names:
        return (
            "is a checkpoint of torch's own FileSystemWriter: write it to a file with"
            " torch.distributed.checkpoint.format_utils.dcp_to_torch_save"
        )
    steps = [name for name in names if _orbax_item(directory / name)]
    if steps:
        item = _orbax_item(directory / steps[-1])
        return f"holds {len(steps)} steps of Orbax: name one, such as {item}"
    if versions := [name for name in names if name.startswith(("weight_v", "delta-0"))]:
        return f"holds {len(versions)} weight versions: lccodec.adapters.weights.follow reads them"
    if states := [
        name for name in names if name.endswith((".safetensors.index.json", ".safetensors", ".ckpt"))
    ]:
        shown = ", ".join(states[:_MAX_NAMES_SHOWN])
        return f"is not a chain, and has files: name one of them, such as {shown}"
    return None


def _orbax_item(directory: Path) -> Path | None:
    """Return where the parts of a step of Orbax are: in its directory, or in that of an item."""
    with suppress(OSError):
        for place in (directory, *sorted(directory.iterdir())):
            if (place / _ORBAX_PART).is_file():
                return place
    return None


def load_file(path: StrPath, progress: Progress = False) -> tuple[Any, dict[str, str]]:
    """Return the state in a file and its metadata; bfloat16 may be `lccodec.BFLOAT16_BITS`.

    `progress` is told of checkpoints. An ``ArgumentError`` names what lccodec cannot hold or load.
    """
    state, metadata, _ = load_with_roles(path, progress)
    return state, metadata


def load_with_roles(
    path: StrPath, progress: Progress = False
) -> tuple[Any, dict[str, str], Mapping[str, Assignment]]:
    """Return the state in a file, its metadata, and the roles that files of ``torch.save`` say."""
    path = check_suffix(path)
    if is_checkpoint(path):
        with open_whole(path) as file:
            file.progress = progress
            return file.state(dtype="bits"), file.metadata(), getattr(file, "roles", {})
    kind = recognize(path)
    if kind is not None and kind.name == "netcdf3":
        raise ArgumentError(f"{path} is {kind.title}: {kind.advice}")
    if path.suffix in TORCH and kind is not KINDS["hdf5"]:
        from .. import torch
        from ..torch.archive import load_archive

        state = load_archive(path)
        return *torch.to_numpy(state), torch.roles(state)
    if path.absolute().parent.name.startswith("weight_v") and path.name.endswith((SAFETENSORS, INDEX)):
        from ..weights.versions import read_index_of

        if read_index_of(path.parent) is not None:  # a full version has none
            raise ArgumentError(
                f"{path} is of a delta between weight versions, and no model:"
                " lccodec.adapters.weights.follow reads versions"
            )
    adapter = _adapter(path, kind)
    if not hasattr(adapter, "load_state"):
        return adapter.load_file(path), {}, {}
    return *adapter.load_state(path), {}


def save_file(
    state: Any,
    path: StrPath,
    metadata: dict[str, str],
    max_shard_bytes: int = SHARD_BYTES,
    progress: Progress = False,
) -> dict[str, str]:
    """Write a state to a file, replacing it; return the metadata that the format could store.

    `max_shard_bytes` is of an index. An ``ArgumentError`` names what the format cannot hold.
    """
    path = check_suffix(path, write=True)
    metadata = metadata_strings(metadata)
    if path.name.endswith(CHECKPOINT_SUFFIX):
        save_checkpoint(state, path, metadata, progress=progress)
        return metadata
    if path.suffix not in HDF5 and isinstance(state, Mapping) and ENTRY in state:
        state = {key: value for key, value in state.items() if key != ENTRY}
        warn(f"{path}: left out what an HDF5 file has besides arrays; .h5 and .lcc.h5 files keep it")
    if path.suffix in WRITTEN_BY_TORCH:
        from ..torch.archive import save_archive

        save_archive(state, path, metadata)
        return {key: text for key, text in metadata.items() if key == TYPES}  # the state has these
    adapter = _adapter(path)
    kept = metadata if hasattr(adapter, "load_metadata") else {}
    adapter.save_file(state, path, kept, *([max_shard_bytes] if is_index(path) else []))
    return kept


def _adapter(path: Path, kind: Kind | None = None) -> ModuleType:
    if kind is KINDS["hdf5"] or path.suffix in HDF5:
        from .. import hdf5

        return hdf5
    if path.suffix == NPZ:
        from .. import npz

        return npz
    from .. import safetensors

    return safetensors


class FileOriginals:
    """Exact states in files of any format, by step; `label` says in words which they are.

    Names are those in the chain, as `lccodec save` of these files makes them.
    """

    def __init__(self, paths: Mapping[int, Path], label: str) -> None:
        self.label = label
        self._paths = paths

    @property
    def steps(self) -> Collection[int]:
        """The steps of the files."""
        return self._paths.keys()

    def state(self, step: int) -> Mapping[str, Any]:
        """Return the arrays of a file by name."""
        state, _ = load_file(self._paths[step])
        flat = flatten(state)
        tree = {"": flat.tree}  # below a key of its own: the state may be one array, or have the key ""
        arrays = {name[1:]: flat.arrays[index] for name, index in array_names(tree).items()}
        return {**plain_names(arrays), **arrays}


def open_originals(path: Place) -> Originals | Place:
    """Return originals as `examine` takes them: files of a directory, or the path of a chain."""
    if isinstance(path, Path) and path.is_dir() and not DirectoryStore(path).checkpoints():
        numbering = number_files(files_below(path))
        if numbering is None:
            raise ArgumentError(
                f"{path} is not a chain, and its files have no numbers in their names: name each by its"
                " step, as in step100.npz"
            )
        return FileOriginals(numbering.steps, f"the files in {path}")
    if not is_chain(path):
        raise ArgumentError(f"originals must be a directory of files, a chain or a bundle; got {path}")
    return path


#: The last parts of names in a module's state that are no parameters.
_BUFFERS: Final = ("running_mean", "running_var", "num_batches_tracked")
#: Entries that only the state of an optimizer has: torch's, and that of NNX.
_OPTIMIZER: Final = frozenset(["param_groups", "opt_state"])
#: Types that are stored as arrays with other elements: no layout applies to these.
_TYPES_AS_BITS: Final = BYTE_TYPES | {"complex32"}


@dataclass(frozen=True)
class Exchange:
    """How to convert a state from one framework to the other.

    `model` and `optimizer` are entries of the state, and of `like`; without `model` the whole state
    is the module's.
    """

    source: str  # the framework of the state: torch or flax
    rules: tuple[Rule, ...] = ()  # that come before the common rules
    like: Path | None = None  # a file of the other framework, whose structure the result gets
    model: str | None = None
    optimizer: str | None = None

    def __post_init__(self) -> None:
        if self.optimizer is not None and self.model is None:
            raise ArgumentError("an optimizer's entry needs the model's entry; got no model")


def convert(
    state: Any, metadata: Mapping[str, str], exchange: Exchange
) -> tuple[Any, dict[str, str], list[str]]:
    """Return the state of a file for the other framework, its metadata, and what was left out.

    Errors are those of `lccodec.exchange`; an ``ArgumentError`` also for missing entries and for
    types that are stored as bits.
    """
    state, kinds = _typed(state, metadata)
    if unfit := sorted(set(kinds.values()) & _TYPES_AS_BITS):
        raise ArgumentError(f"arrays of {', '.join(unfit)} are stored as bits, which no rule can lay out")
    like, kinds = (None, {}) if exchange.like is None else _typed(*load_file(exchange.like))
    to_other, adam_to_other = (
        (to_flax, adam_to_flax) if exchange.source == "torch" else (to_torch, adam_to_torch)
    )
    rules, model, optimizer = exchange.rules, exchange.model, exchange.optimizer
    left_out: list[str] = []
    if model is None:
        _check_module(state)
        made = to_other(state, rules, like)
    else:
        made = {model: to_other(_entry(state, model), rules, _entry(like, model))}
        if optimizer is not None:
            torch_state = state if exchange.source == "torch" else like
            names = _names(_entry(torch_state, model), _entry(torch_state, optimizer), model, optimizer)
            made[optimizer] = adam_to_other(_entry(state, optimizer), names, rules, _entry(like, optimizer))
        left_out = [key for key in state if key not in made]
    plain, kept = to_plain(made, metadata, lambda value: value, lambda leaf, _: (leaf, kinds.get(id(leaf))))
    return plain, kept, left_out


def _check_module(state: Any) -> None:
    """Raise ``ArgumentError`` if a state is a training state: no rule maps all of its entries."""
    entries = state if isinstance(state, Mapping) else {}
    for name, entry in entries.items():
        if isinstance(entry, Mapping) and not _OPTIMIZER.isdisjoint(entry):
            others = ", ".join(repr(other) for other in entries if other != name) or "none"
            raise ArgumentError(
                f"entry {name!r} is the state of an optimizer: name the module's entry with --model (the"
                f" others are {others}), and this one with --optimizer"
            )


def _typed(state: Any, metadata: Mapping[str, str]) -> tuple[Any, dict[int, str]]:
    """Return a state with its integer keys, and by identity the types of arrays in its note."""
    kinds: dict[int, str] = {}

    def leaf(array: Any, kind: str | None, _: str) -> Any:
        if kind is not None:
            kinds[id(array)] = kind
        return array

    return from_plain(state, metadata, "", leaf), kinds


def _entry(state: Any, name: str) -> Any:
    if state is None:
        return None
    if not isinstance(state, Mapping) or name not in state:
        raise ArgumentError(f"the state has no entry {name!r}")
    return state[name]


def _names(model: Any, optimizer: Any, model_name: str, optimizer_name: str) -> list[str] | None:
    """Return the names of the parameters of a torch optimizer; None if it has them itself.

    One of ``module.parameters()`` has numbers, in the order of the module; shapes are checked.
    """
    if not isinstance(optimizer, Mapping) or not isinstance(model, Mapping):
        return None
    groups, state = optimizer.get("param_groups"), optimizer.get("state")
    if not isinstance(groups, list) or not isinstance(state, Mapping):
        return None  # adam's error says what it is not
    if len(groups) != 1 or not isinstance(groups[0], Mapping) or "param_names" in groups[0]:
        return None
    numbers = groups[0].get("params")
    shapes = {name: np.shape(leaf) for name, leaf in leaves(model, SEPARATORS["torch"]).items()}
    names = [name for name in shapes if name.rpartition(".")[2] not in _BUFFERS]
    where = f"the parameters of {optimizer_name!r}, which have no names, are not those of {model_name!r}"
    advice = "make the optimizer with module.named_parameters()"
    if not isinstance(numbers, list) or len(numbers) != len(names):
        count = len(numbers) if isinstance(numbers, list) else 0
        raise ArgumentError(f"{where} in order: {count} and {len(names)}; {advice}")
    for number, name in zip(numbers, names, strict=True):
        entry = state.get(number, state.get(str(number)))
        moment = entry.get("exp_avg") if isinstance(entry, Mapping) else None
        if moment is not None and np.shape(moment) != shapes[name]:
            raise ArgumentError(f"{where}: {number} is {np.shape(moment)}, {name!r} {shapes[name]}; {advice}")
    warn(
        f"{optimizer_name!r} has no names of parameters: they are taken to be those of {model_name!r}, in"
        " its order; their shapes agree"
    )
    return names

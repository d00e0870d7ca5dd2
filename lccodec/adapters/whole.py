"""A whole state, of whatever a path is: of a checkpoint, or of what names other files.

A link is followed to its step. The chunks of a distributed checkpoint are put together from the
chains of all ranks, and the parts of a checkpoint of Orbax from all processes. A folder that was
packed is read from its checkpoint. What is no state, and a share of one, raises an error that names
the way to the whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

from ..chain.bounds import UNBOUNDED, Bounds
from ..chain.mend.ranks import rank_folders
from ..chain.read.checkpoint import OpenCheckpoint, checked_names, kept, open_path
from ..chain.read.info import CheckpointInfo
from ..chain.read.links import LINK_KEY, PYTREE_KIND, RECORD_KIND, kind_of
from ..chain.store.directory import DirectoryStore
from ..container.system import Address, Place, checked_place
from ..container.tree import flatten, select, unflatten
from ..element_types import Array, components, from_components
from ..errors import ArgumentError, DependencyError, warn
from ..policy.roles import Assignment
from .link import open_linked

#: The name of the checkpoint in a folder of Hugging Face's libraries that was packed.
PACKED: Final = "lccodec.lcc.h5"

_ORBAX_PART: Final = "process-0.lcc.h5"
_MAX_NAMES_SHOWN: Final = 3


class Together:
    """A state that was put together from many files, with the face of an open checkpoint."""

    def __init__(
        self, state: Any, metadata: dict[str, str], info: CheckpointInfo, roles: Mapping[str, Assignment]
    ) -> None:
        self._flat, self._metadata, self._info = flatten(state), metadata, info
        self.roles = roles

    def __enter__(self) -> Self:
        return self

    def _do_nothing(self, *_: object) -> None:
        """Do nothing: all is read, its checksums were compared, and all files are closed."""

    __exit__ = close = show = verify = _do_nothing

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
            return unflatten(flat.tree, [_typed(array, dtype) for array in flat.arrays], flat.scalars)
        arrays, values = select(flat.tree, flat.scalars, checked_names(keys))
        return {**{name: _typed(flat.arrays[index], dtype) for name, index in arrays.items()}, **values}


def _typed(array: Array, dtype: str | None) -> Array:
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

    Parameters and errors are those of `lccodec.chain.read.checkpoint.open_path`; bounds are for
    single checkpoints. A ``DependencyError`` says that PyTorch or Orbax is needed, and missing.
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
    from . import torch
    from .dcp import LCStorageReader

    state = LCStorageReader(place if place.is_dir() else place.parent, step=info.step).state()
    return Together(*torch.to_numpy(state), info, torch.roles(state))


def _of_processes(place: Path, info: CheckpointInfo) -> Together:
    """Put a checkpoint of Orbax together."""
    from . import jax
    from .orbax import read_tree

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

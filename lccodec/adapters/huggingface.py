"""Checkpoint folders of Hugging Face's libraries: large files packed into one checkpoint, and back.

transformers and accelerate keep a checkpoint in a folder: weights in ``.safetensors`` files, states
of optimizers in files of `torch.save`, and small files beside them. `pack` stores the tensors of
the large files in one checkpoint, ``lccodec.lcc.h5`` in the folder, and then removes these files.
`unpack` writes them again, so that the libraries can load them. At any time each tensor is in at
least one of the two. Files of weights are removed first and written last: a library that finds them
finds the optimizer's state, too. Files of `torch.save` are always read with ``weights_only=True``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from ..chain.chain import Chain
from ..container.folder import replacing
from ..container.system import checked_path, storage_errors
from ..container.tree import leaf_name
from ..errors import FormatError, warn
from ..policy.roles import Assignment
from . import torch as adapter
from .chains import PACKED, LinkSaver, open_linked, save_linked
from .matching import unwrapped
from .torch.archive import load_archive
from .torch.states import module_roles

_RULE: Final = "folder"
_WEIGHTS_SUFFIX: Final = ".safetensors"
_WEIGHTS: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
#: An index of shards in the place of the weights: transformers tells which file is not there.
_HINT: Final = {
    "metadata": {},
    "weight_map": {"*": f"{PACKED}, packed: lccodec.adapters.transformers.unpacked(folder) writes the files"},
}
_SHARD: Final = re.compile(r"_states\.pt$|\.distcp$")
_TORCH_FILE: Final = re.compile(r"(optimizer|pytorch_model)\w*\.(pt|bin)")


def pack(
    folder: str | os.PathLike[str], chain: Chain | None = None, *, models: Iterable[torch.nn.Module] = ()
) -> list[Path]:
    """Store the tensors of a folder's large files in one checkpoint; return the files it removes.

    The chain stores them as deltas; without it the checkpoint stands alone. `models` are the
    modules of the weights, if they are at hand: their types show what is trained. An
    ``ArgumentError`` names what cannot be stored; then nothing is removed.
    """
    contents = _read(checked_path(folder), models)
    if contents is None:
        return []
    save_linked(contents.plain, contents.path, contents.metadata, chain, contents.known)
    return contents.remove(hint=True)


def pack_with(
    saver: LinkSaver,
    folder: str | os.PathLike[str],
    *,
    models: Iterable[torch.nn.Module] = (),
    step: int | None = None,
    needed: list[Callable[[], object]] | None = None,
    hint: bool = False,
) -> None:
    """Do the same as `pack`, with the chain of a saver, which may do it in the background.

    The large files are removed when the checkpoint is on the disk. Until then they must stay as
    they are. If they are `needed`, they stay, and the list gets the function that removes them.
    `step` is the trainer's, for the chain. With `hint`, transformers tells that the folder is
    packed.
    """
    contents = _read(checked_path(folder), models)
    if contents is not None:
        remove = partial(replace(contents, plain=None, metadata={}, known={}).remove, hint=hint)
        if needed is not None:
            needed.append(remove)
        then = remove if needed is None else None
        saver.save(contents.plain, contents.path, contents.metadata, contents.known, then, step)


@dataclass(frozen=True)
class _Content:
    """The tensors of a folder's large files."""

    folder: Path
    names: list[str]
    plain: Any
    metadata: dict[str, str]
    known: dict[str, Assignment]

    @property
    def path(self) -> Path:
        return self.folder / PACKED

    def remove(self, *, hint: bool = False) -> list[Path]:
        """Remove the large files, if their checkpoint is there; return their paths."""
        names = sorted(self.names, key=_is_of_optimizer) if self.path.exists() else []
        removed = [self.folder / name for name in names]
        index = self.folder / _INDEX
        if hint and self.folder / _WEIGHTS in removed and not index.exists():
            with replacing(index) as temporary:
                temporary.write_text(json.dumps(_HINT))
        for path in removed:
            path.unlink(missing_ok=True)  # a library may delete a folder at any time
        return removed


def _read(folder: Path, models: Iterable[torch.nn.Module]) -> _Content | None:
    """Read the large files of a folder, if there are any."""
    files: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    with storage_errors("cannot read", folder):
        paths = sorted(folder.rglob("*"))
    if left := [path.relative_to(folder).as_posix() for path in paths if _SHARD.search(path.name)]:
        shown = ", ".join(left[:2]) + (f" and {len(left) - 2} more" if len(left) > 2 else "")
        warn(f"{folder}: shards of DeepSpeed and FSDP are not packed, and stay as they are: {shown}")
    for path in paths:
        name = path.relative_to(folder).as_posix()
        if path.suffix == _WEIGHTS_SUFFIX:
            try:
                with safe_open(path, "pt") as file:
                    files[name], notes[name] = load_file(path), file.metadata()
            except SafetensorError as error:
                raise FormatError(_RULE, str(path), str(error)) from error
        elif _TORCH_FILE.fullmatch(path.name):
            files[name] = load_archive(path)
    if not files:
        return None
    state = {"files": files, "metadata": notes}
    plain, metadata = adapter.to_numpy(state)
    known = adapter.roles(state) | dict(_model_roles(files, models))
    return _Content(folder, list(files), plain, metadata, known)


def _model_roles(
    files: Mapping[str, Any], models: Iterable[torch.nn.Module]
) -> Iterator[tuple[str, Assignment]]:
    """Yield the roles of tensors in files of weights on which all models agree."""
    by_name: dict[str, set[Assignment]] = {}
    for model in models:
        for name, assignment in module_roles(model).items():
            by_name.setdefault(unwrapped(name), set()).add(assignment)
    for file, tensors in files.items():
        for name in tensors if isinstance(tensors, dict) else ():
            candidates = by_name.get(unwrapped(str(name)), set())
            if len(candidates) == 1:
                yield leaf_name(("files", file, str(name))), next(iter(candidates))


def unpack(folder: str | os.PathLike[str]) -> list[Path]:
    """Write the files that `pack` removed, and return them. Existing files are left as they are.

    A ``ChainError`` says that the checkpoint is missing from its chain, a ``DataError`` that stored
    bytes break a rule, or name a file outside the folder.
    """
    folder = checked_path(folder)
    with open_linked(folder / PACKED) as file:
        state = file.restored(adapter.from_numpy)
    if not isinstance(state, dict) or list(state) != ["files", "metadata"]:
        raise FormatError(_RULE, str(folder / PACKED), "not the large files of a folder")
    written = []
    for name, content in sorted(state["files"].items(), key=lambda item: not _is_of_optimizer(item[0])):
        path = folder / name
        inside = path.parent.resolve().is_relative_to(folder.resolve())  # a link may lead elsewhere
        is_large = path.suffix == _WEIGHTS_SUFFIX or _TORCH_FILE.fullmatch(path.name)
        if ".." in path.parts or not inside or not is_large:
            raise FormatError(_RULE, str(folder / PACKED), f"{name!r} is not a large file of the folder")
        if path.exists():
            continue
        with replacing(path) as temporary:
            if path.suffix == _WEIGHTS_SUFFIX:
                save_file(content, temporary, state["metadata"].get(name))
            else:
                # Not to a path: torch would store its name, which begins with a dot.
                with temporary.open("wb") as stream:
                    torch.save(content, stream)
        written.append(path)
    index = folder / _INDEX
    if index.is_file() and index.read_text() == json.dumps(_HINT):
        index.unlink()
    return written


def _is_of_optimizer(name: str) -> bool:
    return name.rpartition("/")[2].startswith("optimizer")

"""Publishing the steps of a chain as weight versions, for engines that read these.

Each new step becomes the next version: a delta to the version before, or a full one. Its metadata
name the step and the root of the checkpoint. So publishing goes on after a crash where it was,
whatever was missed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...chain.read.follow.watch import Watch, Way
from ...chain.store.names import step_index
from ...chain.store.opening import open_store
from ...chain.store.store import Store
from ...container.disk.address import checked_place
from ...container.disk.folder import make_directory
from ...container.disk.system import SYSTEM, StrPath, System, checked_path, storage_errors
from ...errors import ArgumentError, ChainError, DataError, StorageError
from ..files.header import read_header
from ..tree.matching import first_of
from .layout import SINGLE_NAME, read_layout
from .lock import locked
from .names import Prefix
from .versions import CHECKSUMS, ENCODINGS, Checksum, Encoding, read_index_of, version_name, versions_in
from .writer import Part, Target, is_delta, remove_leftovers, write_delta, write_full

__all__ = ["Published", "publish"]

#: Members of the metadata of a version that name what it was made of.
_STEP_KEY: Final = "lccodec_step"
_ROOT_KEY: Final = "lccodec_root"
_STEP: Final = re.compile(r"[0-9]{1,16}")


@dataclass(frozen=True)
class Published:
    """A version that was published.

    Parameters
    ----------
    version
        Its number.
    step
        The step that it holds.
    base
        The version that it is a delta to; ``None`` for a full one.
    nbytes
        Bytes of its files.
    """

    version: int
    step: int
    base: int | None
    nbytes: int


def publish(  # what, and in which form, by keyword
    run: StrPath | Sequence[StrPath],
    output: StrPath,
    *,
    prefix: str = "",
    rename: Mapping[str, str] | None = None,
    start: int | None = None,
    encoding: Encoding = "xor",
    checksum: Checksum = "adler32",
    full: bool = False,
    like: StrPath | None = None,
    exact: bool = True,
    system: System = SYSTEM,
) -> Published | None:
    """Publish the newest step of a chain as the next weight version.

    Parameters
    ----------
    run
        The directory of a chain, or a bundle. Or several: the chains of ranks, each of which saves
        some of the tensors. Then the newest step that all of them have is published, the tensors of
        each rank in a file of its own, and one index names them all.
    output
        The directory of the versions. It is made if it does not exist.
    prefix
        The entry of the state that has the weights, as ``"model"``. Its keys are the names of the
        tensors.
    rename
        New names for tensors of the state, by name or pattern (as of :mod:`fnmatch`).
    start
        The step that the engines have already, as their version 0: the base model that the run
        began with. Then the first version is a delta to it; by default it is a full one.
    encoding
        ``"xor"``, or ``"overwrite"``, which is larger and may be applied twice.
    checksum
        Of each tensor: ``"adler32"``, ``"xxh3-128"`` or ``"blake3"``. The last two need packages.
    full
        Whether to publish a full version, so that engines that join later need no older one.
    like
        The model that the engines began with. Its other files, such as ``config.json``, go into
        full versions: engines that take one have no other files left. Its names are those of the
        tensors: without prefixes of wrappers (DDP, FSDP, ``torch.compile``), and of tied weights
        those that it has. With `start` and tied weights it is needed.
    exact
        As for :func:`lccodec.follow`.

    Returns
    -------
    Published or None
        ``None`` if the newest step is published already.

    Raises
    ------
    ArgumentError
        For an unknown encoding or checksum, a tensor that the format lacks, or one that two ranks
        have with other values; for names that fit several tensors, and for tied weights if nobody
        knows which of their names the engines have.
    ChainError, DataError, StorageError
        If the chain has no step, or a file is damaged, or the operating system refuses.
    """
    if encoding not in ENCODINGS or checksum not in CHECKSUMS:
        raise ArgumentError(f"no such encoding or checksum: {encoding!r}, {checksum!r}")
    place, prefixed = checked_path(output), Prefix(prefix, rename)
    model = None if like is None else checked_path(like)
    runs = [run] if isinstance(run, str | os.PathLike) else run
    with storage_errors("cannot make the directory", place):
        make_directory(place, system)
    with ExitStack() as opened:
        opened.enter_context(locked(place, system))
        remove_leftovers(place, system)
        stores = [opened.enter_context(open_store(checked_place(each))) for each in runs]
        last, newest = _last_version(place), _newest_step(stores)
        ranks = [Watch(store, None, prefixed.keys, exact) for store in stores]
        resumed = [_resume(watch, last, number, start) for number, watch in enumerate(ranks)]
        known = all(resumed)
        if not known:
            ranks = [Watch(store, None, prefixed.keys, exact) for store in stores]
        there, which = _names_of(model), newest if len(ranks) > 1 else None
        parts = [_next(watch, which, prefixed, there, place) for watch in ranks]
        if known and not full and all(part.update is None for part in parts):
            return None
        step, roots = parts[0].link.manifest.step or 0, [part.link.reader.root.hex() for part in parts]
        metadata = {_STEP_KEY: str(step), _ROOT_KEY: ",".join(roots)}
        target = Target(place, last.version + 1, metadata, system)
        if known and not full and is_delta(parts):
            if there is None and not _has_full(place, last.version):
                _check_untied(parts)
            return Published(
                target.version, step, last.version, write_delta(target, parts, encoding, checksum)
            )
        for part in parts:
            part.commit()
        return Published(target.version, step, None, write_full(target, parts, model))


@dataclass(frozen=True)
class _Last:
    """The newest version, the step and the roots that it holds; version 0 without one."""

    version: int = 0
    step: int | None = None
    roots: tuple[str, ...] = ()


def _last_version(directory: Path) -> _Last:
    with storage_errors("cannot list", directory):
        versions = versions_in(path.name for path in directory.iterdir())
    if not versions:
        return _Last()
    newest = directory / version_name(versions[-1])
    index = read_index_of(newest)
    metadata: Mapping[str, str] = {}
    if index is not None:
        metadata = index.metadata
    elif (newest / SINGLE_NAME).exists():
        metadata = read_header(newest / SINGLE_NAME)[1]
    step, roots = metadata.get(_STEP_KEY, ""), tuple(metadata.get(_ROOT_KEY, "").split(","))
    return _Last(versions[-1], int(step) if _STEP.fullmatch(step) else None, roots)


def _newest_step(stores: Sequence[Store]) -> int:
    """Return the newest step that all stores have."""
    common = set[int].intersection(*(set(store.steps()) for store in stores))
    if not common:
        places = ", ".join(str(store.path) for store in stores)
        raise ChainError(
            f"{places} has no step to publish" if len(stores) == 1 else f"{places} share no step"
        )
    return max(common)


def _resume(watch: Watch, last: _Last, rank: int, start: int | None) -> bool:
    """Let a watch hold what the engines have of a rank; return whether that is known."""
    step = last.step if last.version else None if start is None else step_index(start)
    if step is None:
        return False
    watch.pinned = step
    try:
        way = watch.next()
    except (ChainError, DataError):
        way = None
    watch.pinned = None
    if way is None:
        if last.version:
            return False  # it was pruned
        raise ChainError(f"{watch.place} has no step {step} to start from")
    watch.commit(way)
    # Another checkpoint of the step may have other values.
    return not last.version or way.prepared.link.reader.root.hex() in last.roots[rank : rank + 1]


def _next(
    watch: Watch, step: int | None, prefixed: Prefix, there: Collection[str] | None, where: Path
) -> Part:
    """Return what a rank brings to the next version: the newest step, or a given one."""
    watch.pinned = step
    way: Way | None = watch.next()
    link = watch.link if way is None else way.prepared.link
    if link is None:
        raise ChainError(f"{watch.place} has no step to publish")
    return Part(watch, way, link, prefixed.tensors(link.paths, there, where, strict=False))


def _names_of(model: Path | None) -> Collection[str] | None:
    """Return the names of the tensors of a model; ``None`` if it has no weights that are read."""
    with suppress(DataError, StorageError):
        return None if model is None else read_layout(model).tensors.keys()
    return None


def _has_full(directory: Path, version: int) -> bool:
    """Return whether engines have a full version: then they have all names of the state."""
    return any((directory / version_name(each) / SINGLE_NAME).exists() for each in range(1, version + 1))


def _check_untied(parts: Sequence[Part]) -> None:
    """Raise ``ArgumentError`` for tied weights: nobody knows which of their names engines have."""
    problems = []
    for part in parts:
        tied: dict[int, list[str]] = {}
        for path, name in part.names.items():
            tied.setdefault(part.link.paths[path], []).append(name)
        problems += [" and ".join(map(repr, names)) for names in tied.values() if len(names) > 1]
    if problems:
        told = "tied weights: name the model that the engines have by like=, for its names"
        raise ArgumentError("\n  ".join([told, *first_of(problems)]))

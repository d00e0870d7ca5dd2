"""Thinning out chains whose steps are named by other files: those of paths, and records of DCP.

Frameworks delete what names a checkpoint: Lightning, Orbax and transformers a whole file or a link
(:mod:`lccodec.adapters.link`), users of DCP a directory with a record. The chain keeps its steps.
`prune_named` removes the steps that nothing names any more, of all ranks and processes. PyTorch is
not needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ..chain.caller import OnProgress, no_progress
from ..chain.life.prune import LINKS_NAME, Keep, Pruning, prune
from ..chain.mend.protect import recorded
from ..chain.mend.ranks import renew_ranks
from ..chain.read.checkpoint import open_file
from ..chain.read.links import LINK_KEY, RECORD_KIND
from ..chain.store.directory import DirectoryStore, chains_in, inner_directories
from ..chain.store.opening import writable_store
from ..container.checkpoint import open_checkpoint
from ..container.system import Address, Place, checked_path, storage_errors
from ..errors import ArgumentError, FormatError
from .link import read_link

_DCP_RULE: Final = "dcp"


def prune_named(
    directory: Path,
    places: Iterable[Path],
    *,
    rewrite: bool = False,
    dry_run: bool = False,
    tell: OnProgress = no_progress,
) -> dict[Place, Pruning]:
    """Remove the steps of a chain that no path and no record names, and that no kept step needs.

    The newest step of each chain and pinned steps stay, so that a save that is just being made
    loses nothing.

    Parameters
    ----------
    directory
        The chain; or a directory of chains, one for each rank or process.
    places
        Files, and directories with all that is below them. Whatever may name a step must be there.
    rewrite, dry_run, tell
        As for `lccodec.chain.life.prune.prune`, for each chain in turn.

    Raises
    ------
    ArgumentError, DataError
        If there is no chain, nothing names a step of one of them, or a file is damaged, so that
        nobody knows what it names. Nothing is removed then.
    """
    places = list(places)
    named, roots = named_steps(places), _whole_roots(places)
    rules = {}
    for chain in chains_below(directory):
        store = DirectoryStore(chain)
        steps = named.get(chain.resolve(), set()) & store.steps().keys()
        for step, name in store.steps().items():
            with store.open(name) as reader:  # the exact file that it names, or is
                if (reader.root if reader.manifest.is_exact else reader.manifest.exact) in roots:
                    steps.add(step)
        if not steps:
            raise ArgumentError(f"no file at the given places names a step of {chain}")
        # A step that only the exact file has stays in any case, and a prune keeps the newest.
        rules[chain] = Keep(steps=steps) if steps & store.checkpoints().keys() else Keep(latest=1)
    options: dict[str, Any] = {"rewrite": rewrite, "dry_run": dry_run, "tell": tell}
    return {chain: prune(DirectoryStore(chain), rule, **options) for chain, rule in rules.items()}


def prune_together(
    directory: Place, keep: Keep, *, renew: bool = True, **options: Any
) -> dict[Place, Pruning]:
    """Prune a chain; if it holds records of DCP, also the chains of the ranks in its directory.

    The records that stay say which steps of the ranks stay. `prune_named` is for ranks elsewhere.
    With `renew`, parity is made again for files that stay and have lost it with others.
    """
    if not renew:
        options["again"] = lambda *_: None
    store = writable_store(directory)
    done: dict[Place, Pruning] = {directory: prune(store, keep, **options)}
    if isinstance(directory, Address):  # ranks of DCP have directories
        return done
    stays = {*done[directory].kept, *done[directory].needed}
    steps = {step: directory / name for step, name in store.checkpoints().items()}
    if not _named_by(steps[max(steps)]):
        return done
    named = named_steps(path for step, path in steps.items() if step in stays)
    ranks = DirectoryStore(directory)
    redundancy = recorded(ranks, of_ranks=True)
    for chain in sorted(path for path in inner_directories(directory) if path.resolve() in named):
        rule = Keep(steps=named[chain.resolve()])
        done[chain] = prune(DirectoryStore(chain), rule, **options)
    if redundancy is not None and renew and not options.get("dry_run"):
        renew_ranks(ranks, redundancy)
    return done


def chains_below(directory: Path) -> list[Path]:
    """Return a directory if it is a chain; otherwise its subdirectories that are chains."""
    if DirectoryStore(directory).checkpoints():
        return [directory]
    chains = chains_in(directory)
    if not chains:
        raise ArgumentError(f"{directory} must be a chain or a directory of chains; it holds no checkpoint")
    return chains


def named_steps(places: Iterable[Path]) -> dict[Path, set[int]]:
    """Return the steps that links and records name, by the resolved directory of their chain."""
    steps_of: dict[Path, set[int]] = {}
    for place in places:
        for path in _files(checked_path(place)):
            for checkpoint in _named_by(path):
                steps = steps_of.setdefault(checkpoint.parent.resolve(), set())
                steps.update(int(name) for name in [checkpoint.name.split(".")[0]] if name.isdecimal())
    return steps_of


def _whole_roots(places: Iterable[Path]) -> set[bytes]:
    """Return the roots of the exact files among files."""
    roots = set()
    for path in (path for place in places for path in _files(checked_path(place))):
        with suppress(FormatError), open_checkpoint(path) as reader:
            roots |= {reader.root} if reader.manifest.is_exact else set()
    return roots


def _files(place: Path) -> Iterator[Path]:
    with storage_errors("cannot look at", place):
        if not place.is_dir():
            place.stat()
            yield place
            return
        yield from (
            path for path in sorted(place.rglob("*")) if path.is_file() and path.parent.name != LINKS_NAME
        )


def _named_by(path: Path) -> list[Path]:
    """Return the checkpoints that a file names: one of a link, those of the ranks of a record."""
    try:
        with open_checkpoint(path) as reader:
            metadata = reader.manifest.metadata
    except FormatError:  # a file of another kind
        return []
    if LINK_KEY in metadata:
        return [read_link(path, metadata[LINK_KEY])[0]]
    base, parts = parts_of(path)
    return [base / part for part in parts]


def parts_of(path: Path) -> tuple[Path, dict[str, str]]:
    """Return the directory of the ranks' chains, and the files with roots, that a record names."""
    with open_checkpoint(path) as reader:
        metadata, step = reader.manifest.metadata, reader.manifest.step
    if metadata.get("kind") != RECORD_KIND or step is None:
        return path.parent, {}
    with open_file(path) as file:
        record = file.state()
    try:
        return path.parent / record["base"], {os.fspath(part): str(root) for part, root in record["parts"]}
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(_DCP_RULE, str(path), "not the record of a distributed checkpoint") from error

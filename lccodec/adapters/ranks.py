"""Chains whose steps other files name: thinned out, protected, checked and mended with these.

Frameworks delete what names a checkpoint: Lightning, Orbax and transformers a whole file or a link
(:mod:`lccodec.adapters.chains`), users of DCP a directory with a record. The chain keeps its steps.
`prune_named` removes the steps that nothing names any more, of all ranks and processes.

A directory has records of DCP, and the chains of the ranks lie in it, or in another that the
records name. Or it has only the folders ``rank-0``, ``rank-1``, ... of chains that were saved
without DCP. `prune_together`, `protect_together`, `repair_together` and `check_together` are for
all of them. PyTorch is not needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from ..chain.life.prune import LINKS_NAME, Keep, Pruning, prune
from ..chain.mend.protect import Protection, Redundancy, parse_redundancy, protect, recorded
from ..chain.mend.ranks import protect_ranks, rank_folders, renew_ranks
from ..chain.mend.repair import Repair, repair
from ..chain.overview import OnProgress, no_progress
from ..chain.read.checkpoint import open_file
from ..chain.read.links import LINK_KEY, RECORD_KIND, UNBOUNDED, Bounds
from ..chain.read.validate import Problem, validate
from ..chain.store.directory import DirectoryStore, as_directory, chains_in, inner_directories, writable_store
from ..chain.store.store import Store
from ..container.checkpoint import open_checkpoint
from ..container.system import Address, Place, checked_path, storage_errors
from ..errors import ArgumentError, ChainError, DataError, FormatError, LccodecError, StorageError, warn
from .chains import open_named, read_link

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


_Saves = list[Mapping[str, str]]  # of each save, the files of the ranks and their roots


def protect_together(directory: Place, redundancy: Redundancy | str | int) -> Protection:
    """Protect a chain; if it holds records of DCP, also the files of the ranks.

    The parity of the ranks' files is what `LCStorageWriter(parity=...)` makes behind the saves. A
    directory that only has chains of ranks is protected, too.

    Parameters
    ----------
    directory
        The chain, or the directory of the folders of the ranks.
    redundancy
        As for `Chain.protect`: how many files of a group may be lost, or a share such as ``"5%"``.

    Returns
    -------
    Protection
        What is protected, of the chain and of all ranks together. Names of the ranks' files are
        those seen from `directory`.

    Raises
    ------
    ChainError
        If there is no checkpoint.
    ArgumentError
        For another redundancy, or a store that is not a directory.
    StorageError
        If the operating system refuses. What was protected before still is.
    """
    store, redundancy = as_directory(writable_store(directory), "parity"), parse_redundancy(redundancy)
    bases = _saves_to_write(store)
    if not store.checkpoints() and rank_folders(store):
        return protect_ranks(store, redundancy)
    protection = protect(store, redundancy)
    for base, saves in bases.items():
        more, before = protect_ranks(DirectoryStore(base), redundancy, saves), _before(base, store)
        protection = Protection(
            protection.redundancy,
            protection.groups + more.groups,
            protection.made + more.made,
            (*protection.files, *(f"{before}{name}" for name in more.files)),
            protection.bytes + more.bytes,
            protection.parity_bytes + more.parity_bytes,
            {**protection.unprotected, **_named(more.unprotected, before)},
        )
    return protection


def repair_together(
    directory: Place,
    *,
    dry_run: bool = False,
    mirrors: Sequence[Store] = (),
    bounds: Bounds = UNBOUNDED,
) -> Repair:
    """Mend a chain; if it holds records of DCP, also the files of the ranks.

    Parameters
    ----------
    directory
        As for `protect_together`.
    dry_run
        Return what would be done, and do nothing.
    mirrors
        Those of the chain itself. The ranks' files are mended from parity and exact files.
    bounds
        What a checkpoint may ask for, as for `Chain.repair`.

    Returns
    -------
    Repair
        What was mended and what is lost, of the chain and of all ranks together. Names of the
        ranks' files are those seen from `directory`.

    Raises
    ------
    ChainError, StorageError
        As `Chain.repair`.
    """
    options: dict[str, Any] = {"dry_run": dry_run, "mirrors": mirrors, "bounds": bounds}
    outcome = repair(chain := writable_store(directory), **options)
    if not chain.has_folders:
        return outcome
    store = as_directory(chain, "repair of ranks")
    for base in _saves_below(store) if dry_run else _saves_to_write(store):
        if (before := _before(base, store)) == "":
            continue  # they are in the same directory, and mended
        more = repair(DirectoryStore(base), dry_run=dry_run, bounds=bounds)
        outcome = replace(
            outcome,
            mended=(*outcome.mended, *(f"{before}{name}" for name in more.mended)),
            lost={**outcome.lost, **_named(more.lost, before)},
            remade={**outcome.remade, **_named(more.remade, before)},
            stale=(*outcome.stale, *more.stale),
            parity=(*outcome.parity, *(f"{before}.parity/{name}" for name in more.parity)),
            protected=outcome.protected + more.protected,
        )
    return outcome


def check_together(path: Place, deep: bool = False, bounds: Bounds = UNBOUNDED) -> list[Problem]:
    """Check a place as `validate`; if it holds records of DCP, also the files of the ranks.

    `where` of a problem of a rank begins with its folder. Parameters, result and errors are those
    of `lccodec.validate`.
    """
    limits = asdict(bounds)
    problems = validate(path, deep, **limits)
    if isinstance(path, Address) or not path.is_dir():
        return problems
    store = DirectoryStore(path)
    for base, saves in _saves_below(store).items():
        before = _before(base, store)
        unreadable = [
            replace(problem, where=f"{before}{folder}: {problem.where}")
            for folder in rank_folders(DirectoryStore(base))
            for problem in validate(base / folder, deep, **limits)
        ]
        for name, root in {pair: None for save in saves for pair in save.items()}:
            try:
                open_named(base / name, root, path).close()
            except ChainError as error:
                unreadable.append(Problem("chain", f"{before}{name}", str(error).removeprefix(f"{path}: ")))
            except (DataError, StorageError):  # told already
                pass
        problems += unreadable
    return problems


def repairable(path: Place, bounds: Bounds = UNBOUNDED) -> str | None:
    """Return whether a chain can be mended: ``"yes"``, ``"no"`` or ``"in part"``.

    ``None`` if it has nothing for that: no parity, and no other copy. Nothing is changed. What asks
    for more than `bounds` is not decoded.
    """
    if isinstance(path, Address) or not path.is_dir():
        return None
    store = DirectoryStore(path)
    outcome = repair_together(path, dry_run=True, bounds=bounds)
    places = [store, *map(DirectoryStore, _saves_below(store))]
    if not outcome.mended and all(
        recorded(place, of_ranks=flag) is None for place in places for flag in (False, True)
    ):
        return None
    return "yes" if not outcome.lost else "in part" if outcome.mended else "no"


def _saves_below(store: DirectoryStore) -> dict[Path, _Saves]:
    """Return the saves that records name, by the directory of the ranks' chains."""
    by_base: dict[Path, _Saves] = {}
    for name in reversed(store.checkpoints().values()):
        with suppress(LccodecError):  # a damaged one; its files are those of no save
            base, parts = parts_of(store.path / name)
            if not parts:
                break
            by_base.setdefault(base.resolve(), []).insert(0, parts)
    return {base: saves for base, saves in by_base.items() if base.is_dir()}


def _saves_to_write(store: DirectoryStore) -> dict[Path, _Saves]:
    """Return the same without directories that are not those of the records, of which it warns."""
    by_base = _saves_below(store)
    for base in [base for base, saves in by_base.items() if not _is_theirs(store, base, saves)]:
        del by_base[base]
        warn(f"{base} is left alone: records of {store.path} name it, and it has none of their files")
    return by_base


def _is_theirs(store: DirectoryStore, base: Path, saves: _Saves) -> bool:
    """Return whether a directory lies in that of the records, or has a file that they name by root.

    The records may be those of a stranger, and name any directory.
    """
    if base.is_relative_to(store.path.resolve()):
        return True
    for name, root in {pair: None for save in saves for pair in save.items()}:
        with suppress(LccodecError), DirectoryStore(base).open(name) as reader:
            if root in {known.hex() for known in reader.roots}:
                return True
        with suppress(LccodecError):  # only the exact file may have the step
            open_named(base / name, root, store.path).close()
            return True
    return False


def _before(base: Path, store: DirectoryStore) -> str:
    """Return what is before the names of the ranks' files, seen from the records."""
    path = Path(os.path.relpath(base, store.path.resolve())).as_posix()
    return "" if path == "." else f"{path}/"


def _named(texts: Mapping[str, str], before: str) -> dict[str, str]:
    return {f"{before}{name}": text for name, text in texts.items()}

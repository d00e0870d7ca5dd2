"""The verbs against damage: protect, repair, mirror, seal."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from ..adapters import seals
from ..adapters.ranks import protect_together, repair_together
from ..chain.chain import Chain
from ..chain.life.rollback import rollback
from ..chain.mend.mirror import Mirror, MirrorUpkeep
from ..chain.mend.protect import parse_redundancy, unprotect
from ..chain.mend.repair import Repair, Salvage
from ..chain.read.links import UNBOUNDED, Bounds
from ..chain.store.directory import as_directory, writable_store
from ..container.system import Place
from ..errors import ChainError
from ..table import printable
from . import render
from .program import (
    FILE_OR_FOLDER,
    NEW,
    PLACE,
    bounds_options,
    chain_argument,
    say_result,
    tell,
    threads_option,
    verb,
)


@verb
@chain_argument
@click.option("--redundancy", metavar="PERCENT", help="Protect against damage to a share, as in: 5%")
@click.option("--files", type=int, help="Protect against the loss of this many files of each 64.")
@click.option("--remove", is_flag=True, help="Remove all parity.")
def protect(directory: Place, redundancy: str | None, files: int | None, remove: bool, as_json: bool) -> None:
    """Write parity files beside the checkpoints of DIR, from which repair mends them.

    They lie in DIR/.parity, are never needed to read, and may be removed at any time.
    """
    if (redundancy is not None) + (files is not None) + remove != 1:
        raise click.UsageError("give one of --redundancy, --files and --remove")
    store = as_directory(writable_store(directory), "parity")
    if remove:
        freed = unprotect(store)
        document = {"directory": str(directory), "removed": True, "bytes": freed}
        say_result(as_json, document, f"parity removed: {freed:,} bytes")
        return
    protection = protect_together(directory, parse_redundancy(redundancy if files is None else files))
    lines = [
        f"{len(protection.files)} files of {protection.bytes:,} bytes are protected"
        f" ({protection.redundancy}), in {protection.groups} groups,"
        f" by {protection.parity_bytes:,} bytes of parity",
        *(f"{name}: not protected: {printable(text)}" for name, text in protection.unprotected.items()),
    ]
    say_result(as_json, {"directory": str(directory), **asdict(protection)}, "\n".join(lines))


@verb
@chain_argument
@click.option("--dry-run", is_flag=True, help="Only show what can be mended.")
@click.option("--mirror", "mirrors", multiple=True, type=PLACE, help="Take what is lost from this mirror.")
@click.option(
    "--salvage", "target", metavar="NEW", type=NEW, help="Save what can still be read to a new chain instead."
)
@bounds_options
def repair(
    directory: Place,
    dry_run: bool,
    mirrors: tuple[Place, ...],
    target: Path | None,
    bounds: Bounds,
    as_json: bool,
) -> int:
    """Mend the damaged and missing files of DIR, bit for bit, from its parity or a mirror.

    From a mirror also come the steps that follow the newest one of DIR. What is left of the newest
    step is mended from its exact file: a lost checkpoint is written anew, as a keyframe of the
    exact state. A lost exact file is written anew from a checkpoint that has lost nothing.

    What cannot be mended stays as it is, and is named; the exit code is 1 then. With --max-bytes
    or --max-deltas, nothing is written anew from a checkpoint that asks for more.
    """
    if target is not None:
        if dry_run or mirrors or bounds != UNBOUNDED:
            raise click.UsageError("--salvage can be combined with --json only")
        saved = Chain(directory).salvage(target)
        say_result(as_json, {"directory": str(directory), "new": str(target), **asdict(saved)}, _text(saved))
        return 1 if saved.partial or saved.gone else 0
    others = [writable_store(mirror) for mirror in mirrors]
    outcome = repair_together(directory, dry_run=dry_run, mirrors=others, bounds=bounds)
    document = {"directory": str(directory), "dry_run": dry_run, **asdict(outcome)}
    say_result(as_json, document, _repair_text(outcome, dry_run))
    if outcome.lost:
        tell("note", "repair DIR --salvage NEW saves what can still be read to a new chain")
    return 1 if outcome.lost else 0


def _repair_text(outcome: Repair, dry_run: bool) -> str:
    done = "can be mended" if dry_run else "mended"
    places = {name: f" from {place}" for name, place in outcome.mirrored.items()}
    places |= {name: f" {how}" for name, how in outcome.remade.items()}
    lines = [f"{name}: {done}{places.get(name, '')}" for name in outcome.mended]
    lines += [f"{name}: cannot be mended: {printable(text)}" for name, text in outcome.lost.items()]
    lines += [f"{name}: this parity file is damaged" for name in outcome.parity]
    lines += [f"parity group {group} is older than its files, and was not used" for group in outcome.stale]
    return "\n".join(lines or ["nothing is damaged"])


def _text(saved: Salvage) -> str:
    lines = [f"{len(saved.whole)} steps are whole"]
    for step, lost in saved.partial.items():
        lines += [f"step {step}: {printable(name)} is lost: {printable(why)}" for name, why in lost.items()]
    lines += [f"step {step}: lost: {printable(why)}" for step, why in saved.gone.items()]
    return "\n".join(lines)


@verb
@chain_argument
@click.argument("target", metavar="MIRROR", type=PLACE)
@click.option("--dry-run", is_flag=True, help="Only show what the mirror lacks.")
def mirror(directory: Place, target: Place, dry_run: bool, as_json: bool) -> int:
    """Copy to MIRROR, a directory or an address, what it lacks of DIR, and verify it there.

    If the chain was rolled back, the mirror is, too. Nothing else in it is changed. A mirror of
    another chain, or of a newer one, is refused.
    """
    store = writable_store(directory)
    if not store.steps():
        raise ChainError(store.nothing())
    mirrored = Mirror(store, writable_store(target), MirrorUpkeep(rollback))
    mirrored.look()
    before = mirrored.state()
    state = before if dry_run else mirrored.bring()
    mirrored.release()
    copied = before.files - state.files
    document = {"directory": str(directory), "dry_run": dry_run, "copied": copied, **asdict(state)}
    lines = [f"{state}" if dry_run else f"{state}, after {copied:,} files were copied"]
    lines += [f"{name}: not copied: {printable(text)}" for name, text in state.skipped.items()]
    say_result(as_json, document, "\n".join(lines))
    return 1 if state.skipped else 0


@verb
@click.argument("paths", metavar="PATH...", type=FILE_OR_FOLDER, nargs=-1, required=True)
@click.option("--replace", is_flag=True, help="Replace seals of files that were meant to change.")
@threads_option
def seal(paths: tuple[Path, ...], replace: bool, threads: int, as_json: bool) -> None:
    """Write the hashes of files of other formats, such as .safetensors and .pt, beside them.

    A directory gets one file for all that is in it, which sha256sum can check too. The verbs
    check, convert, save and plan verify it.
    """
    documents, lines = [], []
    for path in paths:
        with render.progress("sealing") as update:
            made = seals.seal(path, replace=replace, threads=threads, progress=update)
        documents.append({**asdict(made), "path": str(made.path)})
        files = f"{made.files:,} file{'s' if made.files > 1 else ''} of {made.nbytes:,} bytes"
        tensors = f", with {made.tensors:,} tensors" if made.tensors else ""
        lines.append(printable(f"{made.path}: {files}{tensors}"))
    say_result(as_json, {"seals": documents}, "\n".join(lines))

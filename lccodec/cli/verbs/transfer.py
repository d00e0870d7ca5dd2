"""The verbs that move states between files and chains: save, restore, average."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import click

from ...adapters.files.formats import HDF5, check_suffix
from ...adapters.files.structure import choose
from ...adapters.whole import OpenState, open_whole
from ...chain.bounds import Bounds
from ...chain.chain import Chain
from ...chain.fallback import advice, newest_whole, steps_until
from ...chain.overview import roles_text
from ...chain.read.average import average as average_steps
from ...chain.read.average import select_shares
from ...chain.read.info import CheckpointInfo
from ...chain.read.newest import open_path
from ...chain.store.directory import DirectoryStore
from ...chain.store.opening import writable_store
from ...container.disk.address import Place
from ...policy.declared import DECLARED, ENTRY, parse
from ...policy.hindsight import GROUP
from ...policy.policy import Policy
from ...policy.presets import POLICIES
from ...policy.record import Kept
from ...policy.roles import ROLES, Role
from ...printable import printable
from ...table import size_text
from .. import render
from ..bounding import bounds_options
from ..importing import Loader, forecasts_text, loss_text, map_files, mapping_text, measured_loss, offered
from ..program import say, say_result, verb
from ..saving import only_option, policy_option
from .output import save_output, shard_option
from .parameters import (
    FILE_OR_FOLDER,
    NEW,
    STEP,
    chain_argument,
    history_option,
    place_argument,
    step_option,
    steps_of,
    workers_option,
)

_output_option = click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=NEW,
    required=True,
    help="A .npz, .safetensors, .pt, .h5 or .lcc.h5 file.",
)
_key_option = click.option(
    "--key",
    "keys",
    metavar="NAME",
    multiple=True,
    help="Only this array, or all arrays below this entry; repeatable.",
)
_strip_option = click.option(
    "--strip", is_flag=True, help="Remove the --key from the front of names: 'model/' or 'model.'."
)
_dtype_option = click.option(
    "--dtype", type=click.Choice(["float32"]), help="Write bfloat16 arrays as float32."
)


def _step_list(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    """Return steps that are given as ``100,200``."""
    if text is None:
        return None
    parts: list[Any] = text.split(",")
    return tuple(STEP.convert(part.strip(), parameter, context) for part in parts)


@verb
@click.argument("directory", metavar="DIR", type=NEW)
@click.argument("files", metavar="FILE|FOLDER...", type=FILE_OR_FOLDER, nargs=-1, required=True)
@click.option("--step", type=STEP, help="Step of the first file; each further file is one step later.")
@click.option(
    "--steps", metavar="STEP,...", callback=_step_list, help="A step for each file, as in: 100,200,500"
)
@click.option("--skip-existing", is_flag=True, help="Skip steps that the chain already has.")
@click.option(
    "--dry-run", is_flag=True, help="Only show which file becomes which step, and the estimated size."
)
@policy_option
@click.option(
    "--newest",
    type=click.Choice(["exact", "history"]),
    help="Whether to keep the newest state bit for bit in an extra file, if anything may be lost."
    "  [default: as the chain was saved before; exact for a new one]",
)
@click.option(
    "--hindsight",
    type=click.IntRange(2),
    is_flag=False,
    flag_value=GROUP,
    metavar="[N]",
    help=f"Save in groups of N: once a group is complete, what lies within it is encoded again.  [{GROUP}]",
)
@only_option
@workers_option
def save(  # one parameter for each option: click passes them by name
    directory: Path,
    files: tuple[Path, ...],
    step: int | None,
    steps: tuple[int, ...] | None,
    skip_existing: bool,
    dry_run: bool,
    policy: Policy | None,
    newest: Kept | None,
    hindsight: int | None,
    only: tuple[str, ...],
    workers: int | None,
    as_json: bool,
) -> None:
    """Save files (.npz, .safetensors, .pt, .h5, .lcc.h5, ...) into a chain, each as one step.

    Other formats are .safetensors.index.json (shards), .pth, .ckpt and .hdf5. Files of torch.save
    are read by torch's weights-only loader. A FOLDER stands for the files in it, or for the only
    file of each of its folders.

    The step of a file is the number in its name, or in that of its folder, as in
    checkpoint-500/model.safetensors: the number after a word such as step or epoch, or the only
    one. If it is not clear, nothing is saved. Which file becomes which step is printed first. Files
    whose names have no numbers follow the latest step of the chain, in the order given.

    With --only, a file may lack arrays of the chain, as one of LoRA weights does.
    """
    if step is not None and steps is not None:
        raise click.UsageError("give --step or --steps, not both")
    mapped = map_files(directory, files, step, steps, skip_existing)
    if not as_json:
        say(mapping_text(mapped))
    is_new = not (directory.is_dir() and DirectoryStore(directory).steps())
    document: dict[str, Any] = {
        "directory": str(directory),
        "steps": {number: str(file) for number, file in mapped.steps.items()},
        "steps_from": mapped.source,
        "skipped": mapped.skipped,
    }
    if not mapped.steps:
        if as_json:
            say(render.dump_json({**document, "saved": []}))
        return
    loader, count, exact = Loader(mapped), len(mapped.steps), newest != "history"
    if dry_run:
        asked = () if policy is None else (policy,)
        offered_ones = POLICIES["lossless"], POLICIES["balanced"]
        forecasts = loader.forecasts((*offered_ones, *asked)) if is_new else []
        told = [{**asdict(each), "chain_bytes": each.chain_bytes(count, exact)} for each in forecasts]
        if forecasts or as_json:
            say_result(as_json, {**document, "forecasts": told}, forecasts_text(forecasts, count, exact))
        return
    if is_new and policy is None:
        policy = POLICIES["lossless"]  # nobody has allowed these files to lose anything
        if count > 1 and not as_json and (found := offered(loader, count, exact)):
            say(forecasts_text(found, count, exact))
    saved = []
    chain = Chain(directory, policy=policy, workers=workers, newest=newest, hindsight=hindsight or 0)
    with chain, render.progress("saving") as update:
        following = loader.following
        for before, ((number, file), loaded) in enumerate(zip(mapped.steps.items(), loader, strict=True)):
            state, metadata, known = loaded

            def tell(done: int, total: int, before: int = before) -> None:
                update(before + done / total, count)

            chain.save(
                *(number, state, metadata),
                roles=known,
                progress=tell,
                following=following,
                only=only or None,
            )
            following = None
            saved.append((file, info := chain.info(number)))
            if not as_json:
                kind = "keyframe" if info.parent is None else f"delta to {info.parent}"
                size = size_text(info.nbytes, info.file_bytes)
                say(f"step {info.step}, {kind}: {size}  {printable(file)}")
    last = saved[-1][1]
    loss = measured_loss(directory, mapped) if any(info.lossy for _, info in saved) else None
    results = [{"file": str(file), **render.checkpoint_document(info)} for file, info in saved]
    lines = [
        *([] if loss is None else [loss_text(loss)]),
        f"policy {printable(chain.policy.name)}: {roles_text(last.arrays)}",
        *([f"the newest state, step {last.step}, is also kept bit for bit"] if last.exact else []),
    ]
    lost = None if loss is None else asdict(loss)
    say_result(as_json, {**document, "saved": results, "loss": lost}, "\n".join(lines))


@verb
@place_argument
@step_option
@_output_option
@_key_option
@_strip_option
@_dtype_option
@history_option
@click.option(
    "--fallback", is_flag=True, help="If the step is damaged, restore the newest intact step before it."
)
@shard_option
@bounds_options
def restore(  # one parameter for each option: click passes them by name
    place: Place,
    step: int | None,
    output: Path,
    keys: tuple[str, ...],
    strip: bool,
    dtype: Literal["float32"] | None,
    history: bool,
    fallback: bool,
    shard_bytes: int,
    bounds: Bounds,
    as_json: bool,
) -> None:
    """Restore a step of a chain or a bundle into a file, replacing it.

    The suffix gives the format: .npz, .safetensors, .safetensors.index.json, .pt, .h5, .lcc.h5.

    A --key is an array, an entry with everything below it, or the part of names before a dot:
    'model' also means 'model.weight'. For only the weights of a training state: --key model
    --strip. Into an HDF5 or netCDF file, what the state's own file has besides arrays comes along,
    with its coordinates. The newest step comes from the exact file, if the chain has one.
    """
    _check_output(output, keys, strip)

    def before() -> list[int]:
        return steps_until(steps_of(place), step)

    steps = before() if fallback else []
    note = "--fallback restores the newest step before it that is whole"
    with advice(before, note), render.progress("restoring") as update:

        def read(each: int | None) -> tuple[CheckpointInfo, dict[str, str], Any]:
            with open_whole(place, step=each, exact=not history, bounds=bounds) as file:
                file.show(update)
                if fallback and keys:
                    file.verify()
                # bfloat16 as bits can be written without ml_dtypes.
                state = file.state(_names(file, keys, None if strip else output) or None, dtype or "bits")
                return file.info(), file.metadata(), state

        info, metadata, state = newest_whole(place, steps, read) if steps else read(step)
    if keys:
        state, metadata = choose(state, metadata, keys if strip else ())
    written = save_output(state, output, metadata, shard_bytes)
    document = {"directory": str(place), "step": info.step, "exact": info.exact, **written}
    kind = ", exact" if info.exact else ""
    say_result(as_json, document, f"step {info.step}{kind}: {written['bytes']:,} bytes  {printable(output)}")


@verb
@chain_argument
@click.option("--last", type=click.IntRange(1), help="How many of the newest steps to average.")
@click.option("--step", "steps", type=STEP, multiple=True, help="A step to average; repeatable.")
@click.option(
    "--decay",
    type=float,
    help="For an exponential average: how much each step counts relative to the next.  [default: 1]",
)
@click.option(
    "--role",
    "roles",
    type=click.Choice(ROLES),
    multiple=True,
    default=["weight"],
    show_default=True,
    help="Average arrays of this role; repeatable.",
)
@_output_option
@_key_option
@_strip_option
@_dtype_option
@bounds_options
def average(  # one parameter for each option: click passes them by name
    directory: Place,
    last: int | None,
    steps: tuple[int, ...],
    decay: float | None,
    roles: tuple[Role, ...],
    output: Path,
    keys: tuple[str, ...],
    strip: bool,
    dtype: Literal["float32"] | None,
    bounds: Bounds,
    as_json: bool,
) -> None:
    """Write the mean of several steps of a chain to a file (.npz, .safetensors, .h5, .lcc.h5).

    Give --last or --step. Weights are averaged. All other arrays are those of the newest of the
    steps; so the statistics of BatchNorm must be estimated again with data. --key and --strip are
    as in restore.
    """
    _check_output(output, keys, strip)
    store = writable_store(directory)
    shares = select_shares(store, steps or None, last, decay=decay)
    newest = max(shares)
    with open_path(directory, step=newest, exact=False) as file:
        names = _names(file, keys, None if strip else output) or None
    with render.progress("averaging") as update:
        found = average_steps(store, shares, roles, names, dtype or "bits", update, bounds)
    state, metadata = found.state, found.metadata
    if keys:
        state, metadata = choose(state, metadata, keys if strip else ())
    written = save_output(state, output, metadata)
    document = {"directory": str(directory), "steps": list(shares), "shares": list(shares.values())}
    what = f"mean of {len(shares)} steps, {min(shares)} to {newest}" if len(shares) > 1 else f"step {newest}"
    count = f"arrays averaged: {len(found.arrays)}, others of step {newest}"
    text = f"{what}: {written['bytes']:,} bytes, {count}  {printable(output)}"
    say_result(as_json, {**document, "averaged": found.arrays, **written}, text)


def _check_output(output: Path, keys: tuple[str, ...], strip: bool) -> None:
    check_suffix(output, write=True)
    if strip and not keys:
        raise click.UsageError("--strip needs --key: it removes the key from the front of names")


def _names(file: OpenState, keys: tuple[str, ...], output: Path | None) -> list[str]:
    """Return names for keys. A key without an entry means arrays that start with it and a dot.

    If the output is an HDF5 file, and the state is from one, what belongs to every array of that
    file is among them: its coordinates, and what it has besides arrays.
    """
    arrays = file.keys()
    names = []
    for key in keys:
        entry = any(name == key or name.startswith(f"{key}/") for name in arrays)
        dotted = [name for name in arrays if name.startswith(f"{key.removesuffix('.')}.")]
        names += [key] if entry or not dotted else dotted
    if names and output is not None and output.suffix in HDF5 and f"{ENTRY}/runs" in arrays:
        declared = parse(file.state([ENTRY]).get("/".join(DECLARED)))
        names += [ENTRY, *(name for name, told in declared.items() if told.exact and name in arrays)]
    return names

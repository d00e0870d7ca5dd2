"""The verbs that move states between files and chains: save, restore, average."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from ...adapters.files.formats import check_suffix, load_with_roles
from ...adapters.files.named_arrays import steps_in_names
from ...adapters.files.structure import choose
from ...chain.average import average as average_steps
from ...chain.chain import Chain
from ...chain.checkpoint import CheckpointFile
from ...chain.directory import directory_steps
from ...chain.newest import Kept
from ...chain.selection import select_shares
from ...policy.presets import POLICIES
from ...policy.roles import ROLES, Role
from ...printable import printable
from .. import render
from ..program import say, verb
from .output import save_output, shard_option
from .parameters import (
    FILE,
    NEW,
    STEP,
    chain_argument,
    history_option,
    open_checkpoint,
    open_state,
    place_argument,
    step_option,
    workers_option,
)

_output_option = click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=NEW,
    required=True,
    help="A .npz, .safetensors, .h5 or .lcc.h5 file.",
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


@verb
@click.argument("directory", metavar="DIR", type=NEW)
@click.argument("files", metavar="FILE...", type=FILE, nargs=-1, required=True)
@click.option("--step", type=STEP, help="Step of the first file; each further file is one step later.")
@click.option(
    "--policy",
    type=click.Choice(list(POLICIES)),
    help="How lossy checkpoints may be.  [default: the policy of the chain, or lossless for a new one]",
)
@click.option(
    "--newest",
    type=click.Choice(["exact", "history"]),
    help="Whether to keep the newest state bit for bit in one more file.  [default: as the chain does]",
)
@workers_option
def save(  # one parameter for each option: click passes them by name
    directory: Path,
    files: tuple[Path, ...],
    step: int | None,
    policy: str | None,
    newest: Kept | None,
    workers: int | None,
    as_json: bool,
) -> None:
    """Save files (.npz, .safetensors, .pt, .h5, .lcc.h5, ...) into a chain, each as one step.

    Also an index of shards (.safetensors.index.json), .pth, .ckpt and .hdf5. Files of torch.save
    are read by torch's weights-only loader.

    Without --step, the step of a file is the last number in its name, if every name has a number;
    files are saved in the order of these steps. If not, the steps follow the latest step of the
    chain.
    """
    for file in files:  # a wrong suffix is reported before anything is written
        check_suffix(file)
    latest = max(directory_steps(directory), default=None) if directory.is_dir() else None
    first = step if step is not None else 0 if latest is None else latest + 1
    steps = steps_in_names(files) if step is None else None
    steps = steps or {first + i: file for i, file in enumerate(files)}
    saved = []
    if policy is None and latest is None:
        policy = "lossless"  # nobody has allowed these files to lose anything
    chain = Chain(directory, policy=policy, workers=workers, newest=newest)
    with chain, render.progress("saving") as update:
        for before, (number, file) in enumerate(steps.items()):
            state, metadata, known = load_with_roles(file)

            def tell(done: int, total: int, before: int = before) -> None:
                update(before + done / total, len(steps))

            chain.save(number, state, metadata, known=known, progress=tell)
            saved.append((file, chain.info(number)))
    if as_json:
        results = [{"file": str(file), **render.checkpoint_document(info)} for file, info in saved]
        say(render.dump_json({"directory": str(directory), "saved": results}))
        return
    for file, info in saved:
        kind = "keyframe" if info.parent is None else f"delta to {info.parent}"
        size = render.size_text(info.nbytes, info.file_bytes)
        say(f"step {info.step}, {kind}: {size}  {printable(file)}")
    say(f"policy {printable(chain.policy.name)}: {render.roles_text(saved[-1][1])}")
    if saved[-1][1].exact:
        say(f"the newest state, step {saved[-1][1].step}, is also there bit for bit")


@verb
@place_argument
@step_option
@_output_option
@_key_option
@_strip_option
@_dtype_option
@history_option
@shard_option
def restore(  # one parameter for each option: click passes them by name
    place: Path,
    step: int | None,
    output: Path,
    keys: tuple[str, ...],
    strip: bool,
    dtype: Literal["float32"] | None,
    history: bool,
    shard_bytes: int,
    as_json: bool,
) -> None:
    """Restore a step of a chain or a bundle into a file, replacing it.

    The suffix gives the format: .npz, .safetensors, .safetensors.index.json, .h5, .lcc.h5.

    A --key is an array, an entry with everything below it, or the part of names before a dot:
    'model' also means 'model.weight'. For only the weights of a training state: --key model
    --strip. The newest step comes from the exact file, if the chain has one.
    """
    _check_output(output, keys, strip)
    with open_state(place, step, history) as file, render.progress("restoring") as update:
        info, metadata = file.info(), file.metadata()
        file.show(update)
        # bfloat16 as bits can be written without ml_dtypes.
        state = file.state(_names(file, keys) or None, dtype or "bits")
    if keys:
        state, metadata = choose(state, metadata, keys if strip else ())
    written = save_output(state, output, metadata, shard_bytes)
    document = {"directory": str(place), "step": info.step, "exact": info.exact, **written}
    kind = ", exact" if info.exact else ""
    text = f"step {info.step}{kind}: {written['bytes']:,} bytes  {printable(output)}"
    say(render.dump_json(document) if as_json else text)


@verb
@chain_argument
@click.option("--last", type=click.IntRange(1), help="How many of the newest steps to average.")
@click.option("--step", "steps", type=STEP, multiple=True, help="A step to average; repeatable.")
@click.option(
    "--decay",
    type=float,
    help="For an exponential average: each step counts this much of the next. [default: all the same]",
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
def average(  # one parameter for each option: click passes them by name
    directory: Path,
    last: int | None,
    steps: tuple[int, ...],
    decay: float | None,
    roles: tuple[Role, ...],
    output: Path,
    keys: tuple[str, ...],
    strip: bool,
    dtype: Literal["float32"] | None,
    as_json: bool,
) -> None:
    """Write the mean of several steps of a chain to a file (.npz, .safetensors, .h5, .lcc.h5).

    Give --last or --step. Weights are averaged. All other arrays are those of the newest of the
    steps; so the statistics of BatchNorm must be estimated again with data. --key and --strip are
    as in restore.
    """
    _check_output(output, keys, strip)
    shares = select_shares(directory, steps or None, last, decay=decay)
    newest = max(shares)
    with open_checkpoint(directory, newest) as file:
        names = _names(file, keys) or None
    found = average_steps(directory, shares, roles, names, dtype or "bits")
    state, metadata = found.state, found.metadata
    if keys:
        state, metadata = choose(state, metadata, keys if strip else ())
    written = save_output(state, output, metadata)
    if as_json:
        document = {"directory": str(directory), "steps": list(shares), "shares": list(shares.values())}
        say(render.dump_json({**document, "averaged": found.arrays, **written}))
        return
    what = f"mean of {len(shares)} steps, {min(shares)} to {newest}" if len(shares) > 1 else f"step {newest}"
    count = f"arrays averaged: {len(found.arrays)}, others of step {newest}"
    say(f"{what}: {written['bytes']:,} bytes, {count}  {printable(output)}")


def _check_output(output: Path, keys: tuple[str, ...], strip: bool) -> None:
    check_suffix(output, write=True)
    if strip and not keys:
        raise click.UsageError("--strip needs --key: it removes the key from the front of names")


def _names(file: CheckpointFile, keys: tuple[str, ...]) -> list[str]:
    """Return names for keys. A key without an entry means arrays that start with it and a dot."""
    arrays = file.keys()
    names = []
    for key in keys:
        entry = any(name == key or name.startswith(f"{key}/") for name in arrays)
        dotted = [name for name in arrays if name.startswith(f"{key.removesuffix('.')}.")]
        names += [key] if entry or not dotted else dotted
    return names

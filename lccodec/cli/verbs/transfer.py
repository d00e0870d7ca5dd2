"""The verbs of the command ``lccodec``; what they do is done elsewhere.

Exit codes: 0 fine, 1 problems found (in data, a chain or storage), 2 usage.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

import click
import numpy as np

from ..adapters.files.conversion import Exchange
from ..adapters.files.conversion import convert as convert_state
from ..adapters.files.formats import check_suffix, load_file, save_file
from ..adapters.files.named_arrays import steps_in_names
from ..adapters.files.structure import choose
from ..chain.chain import Chain
from ..chain.checkpoint import CheckpointFile, CheckpointInfo, directory_steps, open_file, open_step
from ..chain.survey import survey
from ..chain.validate import validate
from ..container.system import checked_path
from ..errors import ArgumentError, LccodecError
from ..exchange import load_rules
from ..inspect.difference import Leaves, compare_states
from ..inspect.summary import summarize
from ..policy.presets import POLICIES
from . import render as tables
from .program import error_document, error_text, program, verb

__all__ = ["program"]


class _Path(click.Path):
    """A path; the address of a remote store is refused as what it is, not as a file that is missing."""

    def __init__(self, *, exists: bool = False, file_okay: bool = True, dir_okay: bool = True) -> None:
        super().__init__(exists, file_okay, dir_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        return super().convert(checked_path(value), param, ctx)


_CHAIN: Final = _Path(exists=True, file_okay=False)
_FILE: Final = _Path(exists=True, dir_okay=False)
_CHAIN_OR_FILE: Final = _Path(exists=True)
_NEW: Final = _Path()
_STEP: Final = click.IntRange(min=0)
_FRAMEWORK: Final = click.Choice(["torch", "flax"])


@verb
@click.option(
    "--directory", type=_NEW, help="Where to leave the chain  [default: ./lccodec-demo, or -2, -3 ...]"
)
def demo(directory: Path | None, as_json: bool) -> None:
    """Train a small network, lose its state, restore it from a chain and go on (under 30 s)."""
    from .demo import run

    with tables.progress("training") as update:
        report = run(directory or _unused("lccodec-demo"), progress=update)
    if as_json:
        click.echo(tables.dump_json(report))
        return
    chain = Chain(report.directory)
    first, *_, before, last = chain.steps
    name = chain.info(last).arrays[0].name
    commands = [
        ("ls", report.directory),
        ("info", report.directory, "--step", last),
        ("show", report.directory, name),
        ("diff", report.directory, before, last),
        ("check", report.directory, "--deep"),
        ("restore", report.directory, "--step", first, "-o", "first.npz"),
    ]
    click.echo(tables.demo_text(report, commands))


def _unused(name: str) -> Path:
    numbered = (Path(f"{name}-{number}") for number in itertools.count(2))
    return next(path for path in itertools.chain([Path(name)], numbered) if not path.exists())


_threads = click.option("-j", "--threads", type=click.IntRange(0), default=1, help="0: one for each core.")


@verb
@click.argument("directory", metavar="DIR", type=_NEW)
@click.argument("files", metavar="FILE...", type=_FILE, nargs=-1, required=True)
@click.option("--step", type=_STEP, help="Step of the first file; the others follow by one.")
@click.option(
    "--policy",
    type=click.Choice(list(POLICIES)),
    help="How lossy deltas may be.  [default: as the chain was saved with, else lossless]",
)
@_threads
def save(
    directory: Path,
    files: tuple[Path, ...],
    step: int | None,
    policy: str | None,
    threads: int,
    as_json: bool,
) -> None:
    """Save files (.npz, .safetensors, its index of shards, .lcc.h5) into a chain, each as one step.

    Without --step, the step of a file is the last number in its name if every file has one, and the files are
    taken in its order; otherwise they follow the latest step.
    """
    for file in files:  # another suffix is told before anything is written
        check_suffix(file)
    latest = max(directory_steps(directory), default=None) if directory.is_dir() else None
    first = step if step is not None else 0 if latest is None else latest + 1
    steps = steps_in_names(files) if step is None else None
    steps = steps or {first + i: file for i, file in enumerate(files)}
    saved = []
    if policy is None and latest is None:
        policy = "lossless"  # nobody has said that these files may lose anything
    chain = Chain(directory, policy=policy, threads=threads)
    with chain, tables.progress("saving") as update:
        for done, (number, file) in enumerate(steps.items(), 1):
            chain.save(number, *load_file(file))
            saved.append((file, chain.info(number)))
            update(done, len(steps))
    if as_json:
        results = [{"file": str(file), **_checkpoint(info)} for file, info in saved]
        click.echo(tables.dump_json({"directory": str(directory), "saved": results}))
        return
    for file, info in saved:
        kind = "keyframe" if info.parent is None else f"delta to {info.parent}"
        size = tables.size_text(info.nbytes, info.file_bytes)
        click.echo(f"step {info.step}, {kind}: {size}  {tables.printable(file)}")
    click.echo(f"policy {chain.policy.name}: {tables.roles_text(saved[-1][1])}")


def _checkpoint(info: CheckpointInfo) -> dict[str, Any]:
    """Return what is known of a checkpoint, but its arrays, for JSON."""
    document = {**vars(info), "lossy": info.lossy, "ratio": tables.ratio(info.nbytes, info.file_bytes)}
    del document["arrays"]
    return document


@verb
@click.argument("directory", metavar="DIR", type=_CHAIN)
@click.option("--step", type=_STEP, help="[default: the latest]")
@click.option(
    "-o", "--output", metavar="FILE", type=_NEW, required=True, help="A .npz, .safetensors or .lcc.h5 file."
)
@click.option(
    "--key", "keys", metavar="NAME", multiple=True, help="Only this array, or all below; repeatable."
)
@click.option(
    "--strip", is_flag=True, help="Write names without the --key in front, as 'model/' or 'model.'."
)
@click.option("--dtype", type=click.Choice(["float32"]), help="Write bfloat16 arrays as float32.")
@_threads
def restore(
    directory: Path,
    step: int | None,
    output: Path,
    keys: tuple[str, ...],
    strip: bool,
    dtype: Literal["float32"] | None,
    threads: int,
    as_json: bool,
) -> None:
    """Restore a step of a chain into a file (.npz, .safetensors, .lcc.h5), which is replaced if it exists.

    A --key is an array, or an entry with all below it, or what names begin with before a dot: 'model' is also
    'model.weight'. For the weights alone, out of a training state: --key model --strip.
    """
    check_suffix(output, write=True)
    if strip and not keys:
        raise click.UsageError("--strip needs --key: it takes it away in front of names")
    with _open(directory, step, threads) as file:
        info, metadata = file.info(), file.metadata()
        # Bits can be written without ml_dtypes.
        state = file.state(_names(file, keys) or None, dtype or "bits")
    if keys:
        state, metadata = choose(state, metadata, keys if strip else ())
    kept = _save_file(state, output, metadata)
    size = output.stat().st_size
    document = {"directory": str(directory), "step": info.step, "file": str(output), "bytes": size}
    text = f"step {info.step}: {size:,} bytes  {tables.printable(output)}"
    click.echo(tables.dump_json({**document, "metadata": kept}) if as_json else text)


def _names(file: CheckpointFile, keys: tuple[str, ...]) -> list[str]:
    """Return names for keys; one that no entry has stands for all arrays that begin with it and a dot."""
    arrays = file.keys()
    names = []
    for key in keys:
        entry = any(name == key or name.startswith(f"{key}/") for name in arrays)
        dotted = [name for name in arrays if name.startswith(f"{key.removesuffix('.')}.")]
        names += [key] if entry or not dotted else dotted
    return names


def _save_file(state: Any, output: Path, metadata: dict[str, str]) -> dict[str, str]:
    """Write a file and tell of metadata that have no place in it; return those that have."""
    kept = save_file(state, output, metadata)
    if left := [tables.printable(key) for key in metadata if key not in kept]:
        click.echo(
            f"lccodec: note: {output.suffix} has no place for metadata, left out: {', '.join(left)}", err=True
        )
    return kept


@verb
@click.argument("source", metavar="FILE", type=_FILE)
@click.argument("output", metavar="OUTPUT", type=_NEW)
@click.option("--from", "source_framework", type=_FRAMEWORK, help="Whose module's state it is ...")
@click.option("--to", "output_framework", type=_FRAMEWORK, help="... and whose it is to be.")
@click.option("--rules", type=_FILE, help="Your rules for names and layouts, in TOML or JSON.")
@click.option("--like", type=_FILE, help="A state of the other framework to be like: it decides and checks.")
@click.option("--model", metavar="NAME", help="The entry with the module's state.  [default: all is]")
@click.option("--optimizer", metavar="NAME", help="The entry with that of Adam, whose moments come along.")
def convert(
    source: Path,
    output: Path,
    source_framework: str | None,
    output_framework: str | None,
    rules: Path | None,
    like: Path | None,
    model: str | None,
    optimizer: str | None,
    as_json: bool,
) -> None:
    """Convert a file of one format into another, lossless and with its metadata.

    Formats go by suffixes: .npz, .safetensors, .lcc.h5, and .safetensors.index.json, whose shards are one
    state. OUTPUT is replaced if it exists. With --from and --to the state becomes that of the same module in
    the other framework, by rules for names and layouts.
    """
    check_suffix(output, write=True)
    exchange, left_out = None, list[str]()
    if source_framework and output_framework and source_framework != output_framework:
        own = () if rules is None else load_rules(rules)
        exchange = Exchange(source_framework, own, like, model, optimizer)
    elif any((source_framework, output_framework, rules, like, model, optimizer)):
        raise click.UsageError("an exchange needs --from one framework and --to the other")
    state, metadata = load_file(source)
    if exchange is not None:
        state, metadata, left_out = convert_state(state, metadata, exchange)
        if left_out:
            names = ", ".join(map(tables.printable, left_out))
            click.echo(f"lccodec: note: only the model and its optimizer, left out: {names}", err=True)
    kept = _save_file(state, output, metadata)
    size = output.stat().st_size
    document = {
        "source": str(source),
        "file": str(output),
        "bytes": size,
        "metadata": kept,
        "left_out": left_out,
    }
    text = f"{tables.printable(source)}: {size:,} bytes  {tables.printable(output)}"
    click.echo(tables.dump_json(document) if as_json else text)


def _open(path: Path, step: int | None, threads: int = 1) -> CheckpointFile:
    """Open a step of a chain (its latest by default), or a checkpoint file."""
    if not path.is_dir():
        if step is not None:
            raise ArgumentError(f"{path} is a file: --step is for a chain")
        return open_file(path, threads=threads)
    return open_step(path, step, threads=threads)


@verb
@click.argument("directory", metavar="DIR", type=_CHAIN)
def ls(directory: Path, as_json: bool) -> int:
    """List the checkpoints of a chain."""
    steps = directory_steps(directory)
    found: dict[Path, CheckpointInfo | LccodecError] = {}
    with tables.progress("reading") as update:
        for done, visit in enumerate(survey(directory, steps), 1):
            try:
                visit.check()
                found[visit.path] = visit.info()
            except LccodecError as problem:  # the others are still there
                found[visit.path] = problem
            update(done, len(steps))
    listed = [(step, found[path]) for step, path in steps.items() if path in found]
    infos = [info for _, info in listed if isinstance(info, CheckpointInfo)]
    errors = [(step, error) for step, error in listed if isinstance(error, LccodecError)]
    document = {
        "directory": str(directory),
        "checkpoints": [_checkpoint(info) for info in infos],
        "totals": tables.totals(infos),
        "errors": [{"step": step, **error_document(error, error_text(error))} for step, error in errors],
    }
    click.echo(tables.dump_json(document) if as_json else tables.checkpoints_text(infos))
    for _, error in errors:
        click.echo(f"lccodec: error: {tables.printable(error_text(error))}", err=True)
    return 1 if errors else 0


@verb
@click.argument("path", type=_CHAIN_OR_FILE)
@click.option("--step", type=_STEP, help="[default: the latest]")
def info(path: Path, step: int | None, as_json: bool) -> None:
    """Tell what is known of a checkpoint and its arrays, without decoding them."""
    with _open(path, step) as file:
        found = file.info()
    document = {"path": str(path), **_checkpoint(found), "arrays": found.arrays}
    click.echo(tables.dump_json(document) if as_json else tables.arrays_text(found))


@verb
@click.argument("path", type=_CHAIN_OR_FILE)
@click.argument("name")
@click.option("--step", type=_STEP, help="[default: the latest]")
def show(path: Path, name: str, step: int | None, as_json: bool) -> None:
    """Show one array: dtype, shape, range, and a histogram; or the value of a scalar."""
    with _open(path, step) as file:
        leaves, found = Leaves(file), file.info().step
        leaf = leaves[name] if name in leaves else file.get(name)  # whose error suggests the nearest name
    place = {"path": str(path), "step": found, "name": name}
    if not isinstance(leaf, np.ndarray):
        click.echo(tables.dump_json({**place, "value": leaf}) if as_json else tables.printable(repr(leaf)))
        return
    figures = summarize(leaf)
    document = {**place, **asdict(figures)}
    click.echo(tables.dump_json(document) if as_json else tables.summary_text(name, found, figures))


@verb
@click.argument("directory", metavar="DIR", type=_CHAIN)
@click.argument("old", metavar="STEP", type=_STEP)
@click.argument("new", metavar="STEP", type=_STEP)
def diff(directory: Path, old: int, new: int, as_json: bool) -> None:
    """Tell what changed from one step of a chain to another, and by how much."""
    with (
        _open(directory, old) as before,
        _open(directory, new) as after,
        tables.progress("comparing") as update,
    ):
        difference = compare_states(Leaves(before), Leaves(after), update)
    document = {"directory": str(directory), "old": old, "new": new, **asdict(difference)}
    click.echo(tables.dump_json(document) if as_json else tables.difference_text(difference))


@verb
@click.argument("paths", metavar="PATH...", type=_CHAIN_OR_FILE, nargs=-1, required=True)
@click.option("--deep", is_flag=True, help="Also decode every array.")
def check(paths: tuple[Path, ...], deep: bool, as_json: bool) -> int:
    """Check chains or checkpoint files: every problem, not only the first."""
    found = []
    with tables.progress("checking") as update:
        for done, path in enumerate(paths, 1):
            found.append((path, validate(path, deep=deep)))
            update(done, len(paths))
    count = sum(len(problems) for _, problems in found)
    if as_json:
        results = [{"path": str(path), "problems": problems} for path, problems in found]
        click.echo(tables.dump_json({"sound": not count, "deep": deep, "paths": results}))
    else:
        for path, problems in found:
            for p in problems:
                click.echo(tables.printable(f"{path}: {p.where}: {p.message} [{p.rule}]"))
            if not problems:
                click.echo(tables.printable(f"{path}: sound"))
    return 1 if count else 0

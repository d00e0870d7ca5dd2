"""The verbs that move states between files and chains: save, plan, restore, average."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import click

from ..adapters.files.formats import HDF5, check_suffix, files_below, number_files
from ..adapters.files.shards import SHARD_BYTES
from ..adapters.files.states import FileOriginals, OpenState, load_with_roles, open_whole
from ..adapters.files.structure import choose
from ..chain.chain import Chain, advice, newest_whole, steps_until
from ..chain.overview import figures_words, plan_table, role_words, roles_text
from ..chain.read.average import average as average_steps
from ..chain.read.average import select_shares
from ..chain.read.checkpoint import open_path
from ..chain.read.info import CheckpointInfo
from ..chain.read.links import Bounds
from ..chain.save.plan import Estimate, Forecast, Plan, forecast
from ..chain.store.directory import DirectoryStore, open_store, writable_store
from ..chain.store.store import check_next
from ..container.system import Place
from ..errors import ArgumentError, LccodecError
from ..inspect.loss import ImportLoss, import_loss
from ..policy.declared import DECLARED, ENTRY, parse
from ..policy.hindsight import GROUP
from ..policy.policy import Policy
from ..policy.presets import FIELDS, POLICIES, fields
from ..policy.record import NewestMode
from ..policy.roles import ROLES, Assignment, Role
from ..table import printable, ratio, size_text
from . import render
from .convert import save_output, shard_option
from .program import (
    FILE,
    FILE_OR_FOLDER,
    NEW,
    STEP,
    bounds_options,
    chain_argument,
    grouped,
    hindsight_option,
    history_option,
    place_argument,
    say,
    say_result,
    step_option,
    verb,
    workers_option,
)
from .render import fitted, quality_document

_BOUND: Final = click.FloatRange(0, min_open=True)
only_option = click.option(
    "--only",
    metavar="NAME",
    multiple=True,
    help="Save only arrays of this name or pattern; all others stay as in the latest step; repeatable.",
)


def _chosen(policy: str | None, max_error: float | None, relative_error: float | None) -> Policy | None:
    """Return the policy of a name; a bound alone means fields."""
    is_bounded = (max_error, relative_error) != (None, None)
    if policy not in (None, FIELDS) and is_bounded:
        raise click.UsageError(f"--max-error and --relative-error are for --policy {FIELDS}")
    if policy == FIELDS and not is_bounded:
        raise click.UsageError(f"--policy {FIELDS} needs --relative-error, as in 1e-5, or --max-error")
    if is_bounded:
        return fields(max_error, relative_error)
    return None if policy is None else POLICIES[policy]


policy_option = grouped(
    "policy",
    _chosen,
    click.option(
        "--policy",
        type=click.Choice([*POLICIES, FIELDS]),
        help="How lossy checkpoints may be.  [default: the policy of the chain, or lossless for a new one]",
    ),
    click.option(
        "--max-error", type=_BOUND, help="With fields: no element of a smooth array is off by more."
    ),
    click.option(
        "--relative-error", type=_BOUND, help="The same as a share of the range of each array: 1e-5."
    ),
)


#: State, metadata and known roles of a file.
Loaded: TypeAlias = tuple[Any, dict[str, str], Mapping[str, Assignment]]

_STATES_OF_A_FORECAST: Final = 2
_WORTHWHILE: Final = 0.9  # of the exact bytes: a policy that takes more is not offered

_SOURCES: Final = {
    "names": "from the numbers in the file names",
    "folders": "from the numbers in the folder names",
    "given": "as given",
    "order": "in the order given, because no name has a number",
}


@dataclass(frozen=True)
class Mapped:
    """Files by rising step, where the steps are from, and the steps that are there already."""

    steps: dict[int, Path]
    source: str
    skipped: tuple[int, ...] = ()


def map_files(
    directory: Path,
    places: Iterable[Path],
    first: int | None,
    steps: Sequence[int] | None,
    skip_existing: bool,
) -> Mapped:
    """Return which file becomes which step of a chain. Nothing is loaded.

    Steps are `steps`, or count from `first`, or are found in names of files and directories. An
    ``ArgumentError`` says that a step is not clear, exists, or is too low.
    """
    paths: list[Path] = []
    for place in places:
        if place.is_dir() and DirectoryStore(place).steps():
            raise ArgumentError(
                f"{place} is already a chain: use fork, compact or bundle; or convert, for one step of it"
            )
        paths += files_below(place) if place.is_dir() else [check_suffix(place)]
    present = list(DirectoryStore(directory).steps()) if directory.is_dir() else []
    numbered, source = _numbered(paths, first, steps, present)
    skipped = tuple(step for step in numbered if step in present) if skip_existing else ()
    wanted = {step: path for step, path in numbered.items() if step not in skipped}
    for step, path in wanted.items():
        try:
            check_next(step, present, directory)
        except ArgumentError as error:
            there = "; --skip-existing skips it" if step in present else ""
            raise ArgumentError(f"{path}: {error}{there}") from None
    return Mapped(wanted, source, skipped)


def _numbered(
    paths: Sequence[Path], first: int | None, steps: Sequence[int] | None, present: Sequence[int]
) -> tuple[dict[int, Path], str]:
    if steps is not None:
        if len(steps) != len(paths) or len(set(steps)) != len(steps):
            raise ArgumentError(
                f"--steps must have a different step for each of {len(paths)} files; got {len(set(steps))}"
            )
        return dict(sorted(zip(steps, paths, strict=True))), "given"
    if first is not None:
        return dict(enumerate(paths, first)), "given"
    try:
        numbering = number_files(paths)
    except ArgumentError as error:
        raise ArgumentError(
            f"{error}; give the steps: --steps 100,200 with one for each file, or --step for the first"
        ) from None
    if numbering is not None:
        return numbering.steps, numbering.source
    return dict(enumerate(paths, present[-1] + 1 if present else 0)), "order"


def mapping_text(mapped: Mapped) -> str:
    """Return which file becomes which step."""
    width = max((len(str(step)) for step in mapped.steps), default=0)
    lines = [f"  {step:{width}}  {printable(path)}" for step, path in mapped.steps.items()]
    head = [f"steps, {_SOURCES[mapped.source]}:"] if lines else ["nothing to save"]
    there = [f"skipped {len(mapped.skipped)} steps that exist already"] if mapped.skipped else []
    return "\n".join([*head, *lines, *there])


class Loader:
    """Loads files one after the other, by rising step; the first two at once."""

    def __init__(self, mapped: Mapped) -> None:
        self._paths = list(mapped.steps.values())
        self._ahead = [load_with_roles(path) for path in self._paths[:_STATES_OF_A_FORECAST]]

    @property
    def following(self) -> Any:
        """The state of the second file; None without one."""
        return self._ahead[1][0] if len(self._ahead) > 1 else None

    def forecasts(self, policies: Iterable[Policy]) -> list[Forecast]:
        """Return about how many bytes a chain of all files takes with each policy."""
        states = [state for state, *_ in self._ahead]
        return [
            forecast(states, policy, self._ahead[0][2])
            for policy in {option.name: option for option in policies}.values()
        ]

    def __iter__(self) -> Iterator[Loaded]:
        for place, path in enumerate(self._paths):
            yield self._ahead.pop(0) if place < _STATES_OF_A_FORECAST else load_with_roles(path)


def forecasts_text(forecasts: Sequence[Forecast], states: int, exact: bool) -> str:
    """Return about how many bytes each policy takes; `exact` is as for `Forecast.chain_bytes`."""
    lines = [f"about {forecasts[0].nbytes * states:,} bytes in {states} states; as a chain, about:"]
    for option in forecasts:
        size = option.chain_bytes(states, exact)
        note = ", with the newest state exact" if exact and option.policy != "lossless" else ""
        times = ratio(option.nbytes * states, size) or 0.0
        lines.append(f"  {size:,} bytes ({times:.1f}x) with --policy {option.policy}{note}")
    return "\n".join(lines)


def offered(loader: Loader, states: int, exact: bool) -> list[Forecast]:
    """Return what the lossless policy and the offered one take, if that one takes less."""
    lossless, lossy = loader.forecasts((POLICIES["lossless"], POLICIES["balanced"]))
    small = lossy.chain_bytes(states, exact) <= _WORTHWHILE * lossless.chain_bytes(states)
    return [lossless, lossy] if small else []


def loss_text(loss: ImportLoss) -> str:
    """Return what was lost, in units of the movement."""
    parts = []
    if loss.worst is not None:
        where = f"{printable(loss.name)} at step {loss.step}"
        parts.append(
            f"errors (rms) in units of the movement between two steps: typically {loss.typical:.2g},"
            f" at worst {loss.worst:.2g} ({where})"
        )
    if loss.unmoved:
        parts.append(f"{loss.unmoved} times an array that did not move lost something")
    if loss.unmeasured:
        parts.append(f"{loss.unmeasured} times an array with unknown movement lost something")
    return "; ".join(parts) or "nothing was lost"


@verb
@click.argument("directory", metavar="DIR", type=NEW)
@click.argument("file", metavar="STATE", type=FILE)
@policy_option
@only_option
def plan(directory: Path, file: Path, policy: Policy | None, only: tuple[str, ...], as_json: bool) -> None:
    """Show what a save of STATE into the chain DIR would do with each array. Nothing is written.

    STATE is a file as for save. For each array: its role and why, the quantizer in deltas, about
    how many bytes it would take, and with which error. Large arrays are estimated by a sample.
    Then what the last save lost, by role.
    """
    state, _, known = load_with_roles(file)
    is_chain = directory.is_dir() and DirectoryStore(directory).checkpoints()
    with Chain(directory, policy or (None if is_chain else POLICIES["lossless"])) as chain:
        planned = chain.plan(state, roles=known, only=only or None)
        estimates = planned.estimates()
        last = None
        with suppress(LccodecError):  # of one that cannot be read, nothing is known
            last = None if chain.latest is None else chain.info()
    document = {"directory": str(directory), "file": str(file), **plan_document(planned, estimates, last)}
    say_result(as_json, document, plan_text(planned, estimates, last))


def plan_document(
    plan: Plan, estimates: Sequence[Estimate], last: CheckpointInfo | None = None
) -> dict[str, Any]:
    """Return a plan with its estimates, and what the last save lost, for JSON."""
    arrays = [
        {
            **asdict(array),
            "estimated_bytes": estimate.stored_bytes,
            "estimated_error": estimate.error,
            "sampled": estimate.sampled,
        }
        for array, estimate in zip(plan, estimates, strict=True)
    ]
    stored, nbytes = sum(estimate.stored_bytes for estimate in estimates), sum(array.nbytes for array in plan)
    totals = {
        "arrays": len(plan),
        "estimated_bytes": stored,
        "nbytes": nbytes,
        "ratio": ratio(nbytes, stored),
    }
    before = None if last is None else {"step": last.step, **quality_document(last)}
    return {
        "parent": plan.parent,
        "arrays": arrays,
        "totals": totals,
        "shortfall": plan.shortfall,
        "last": before,
    }


def plan_text(plan: Plan, estimates: Sequence[Estimate], last: CheckpointInfo | None = None) -> str:
    """Return a table of a plan, with estimated bytes and errors, and what the last save lost."""
    stored, nbytes = sum(estimate.stored_bytes for estimate in estimates), sum(array.nbytes for array in plan)
    kind = "a keyframe" if plan.parent is None else f"a delta to step {plan.parent}"
    sampled = sum(estimate.sampled for estimate in estimates)
    how = f"; {sampled} large arrays estimated from a sample" if sampled else ""
    lines = [
        f"This would be {kind}: about {size_text(nbytes, stored)} in frames{how}.",
        "Errors are multiples of the movement since the last checkpoint; without one, of the values.",
        *([plan.shortfall] if plan.shortfall else []),
        *plan.advice,
    ]
    if last is not None and last.figures:
        lines.append(f"The last save, of step {last.step}, lost:")
        lines += [
            f"  {role_words(role)}: {figures_words(estimate)}" for role, estimate in last.figures.items()
        ]
    shown = [fitted(plan_table(plan, estimates))] if len(plan) else []
    return "\n\n".join([*shown, "\n".join(map(printable, lines))])


@dataclass(frozen=True)
class Output:
    """The file that a state is written to, and which of its arrays."""

    path: Path
    keys: tuple[str, ...]  # by default all
    strip: bool  # whether they are removed from the front of names
    dtype: Literal["float32"] | None  # of bfloat16; by default bits, which need no ml_dtypes

    def __post_init__(self) -> None:
        check_suffix(self.path, write=True)
        if self.strip and not self.keys:
            raise click.UsageError("--strip needs --key: it removes the key from the front of names")

    def names(self, file: OpenState) -> list[str] | None:
        """Return names for the keys; of a dotted prefix those that start so; None for all.

        From HDF5 to HDF5, what belongs to every array comes too: coordinates, and what is no array.
        """
        arrays = file.keys()
        names = []
        for key in self.keys:
            entry = any(name == key or name.startswith(f"{key}/") for name in arrays)
            dotted = [name for name in arrays if name.startswith(f"{key.removesuffix('.')}.")]
            names += [key] if entry or not dotted else dotted
        if names and not self.strip and self.path.suffix in HDF5 and f"{ENTRY}/runs" in arrays:
            declared = parse(file.state([ENTRY]).get("/".join(DECLARED)))
            names += [ENTRY, *(name for name, told in declared.items() if told.exact and name in arrays)]
        return names or None

    def write(self, state: Any, metadata: dict[str, str], shard_bytes: int = SHARD_BYTES) -> dict[str, Any]:
        """Write a state, or its arrays of these names; return as `save_output`."""
        if self.keys:
            state, metadata = choose(state, metadata, self.keys if self.strip else ())
        return save_output(state, self.path, metadata, shard_bytes)


output_options = grouped(
    "output",
    Output,
    click.option(
        "-o",
        "--output",
        "path",
        metavar="FILE",
        type=NEW,
        required=True,
        help="A .npz, .safetensors, .pt, .h5 or .lcc.h5 file.",
    ),
    click.option(
        "--key",
        "keys",
        metavar="NAME",
        multiple=True,
        help="Only this array, or all arrays below this entry; repeatable.",
    ),
    click.option(
        "--strip", is_flag=True, help="Remove the --key from the front of names: 'model/' or 'model.'."
    ),
    click.option("--dtype", type=click.Choice(["float32"]), help="Write bfloat16 arrays as float32."),
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
@hindsight_option(
    "Save in groups of N: once a group is complete, what lies within it is encoded again.", GROUP
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
    newest: NewestMode | None,
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
        told = [
            {**asdict(forecast), "chain_bytes": forecast.chain_bytes(count, exact)} for forecast in forecasts
        ]
        if forecasts or as_json:
            say_result(as_json, {**document, "forecasts": told}, forecasts_text(forecasts, count, exact))
        return
    if is_new and policy is None:
        policy = POLICIES["lossless"]  # nobody has allowed these files to lose anything
        if count > 1 and not as_json and (offer := offered(loader, count, exact)):
            say(forecasts_text(offer, count, exact))
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
    loss = None
    if any(info.lossy for _, info in saved):
        with render.progress("comparing") as update:  # the files are read again
            loss = import_loss(directory, FileOriginals(mapped.steps, "the files"), update)
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
@output_options
@history_option
@click.option(
    "--fallback", is_flag=True, help="If the step is damaged, restore the newest intact step before it."
)
@shard_option
@bounds_options
def restore(  # one parameter for each option: click passes them by name
    place: Place,
    step: int | None,
    output: Output,
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

    def before() -> list[int]:
        with open_store(place) as store:
            return steps_until(list(store.steps()), step)

    steps = before() if fallback else []
    note = "--fallback restores the newest step before it that is whole"
    with advice(before, note), render.progress("restoring") as update:

        def read(step_read: int | None) -> tuple[CheckpointInfo, dict[str, str], Any]:
            with open_whole(place, step=step_read, exact=not history, bounds=bounds) as file:
                file.progress = update
                if fallback and output.keys:
                    file.verify()
                state = file.state(output.names(file), output.dtype or "bits")
                return file.info(), file.metadata(), state

        info, metadata, state = newest_whole(place, steps, read) if steps else read(step)
    written = output.write(state, metadata, shard_bytes)
    document = {"directory": str(place), "step": info.step, "exact": info.exact, **written}
    kind = ", exact" if info.exact else ""
    file = printable(output.path)
    say_result(as_json, document, f"step {info.step}{kind}: {written['bytes']:,} bytes  {file}")


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
@output_options
@bounds_options
def average(  # one parameter for each option: click passes them by name
    directory: Place,
    last: int | None,
    steps: tuple[int, ...],
    decay: float | None,
    roles: tuple[Role, ...],
    output: Output,
    bounds: Bounds,
    as_json: bool,
) -> None:
    """Write the mean of several steps of a chain to a file (.npz, .safetensors, .h5, .lcc.h5).

    Give --last or --step. Weights are averaged. All other arrays are those of the newest of the
    steps; so the statistics of BatchNorm must be estimated again with data. --key and --strip are
    as in restore.
    """
    store = writable_store(directory)
    shares = select_shares(store, steps or None, last, decay=decay)
    newest = max(shares)
    with open_path(directory, step=newest, exact=False) as file:
        names = output.names(file)
    with render.progress("averaging") as update:
        averaged = average_steps(store, shares, roles, names, output.dtype or "bits", update, bounds)
    written = output.write(averaged.state, averaged.metadata)
    document = {"directory": str(directory), "steps": list(shares), "shares": list(shares.values())}
    what = f"mean of {len(shares)} steps, {min(shares)} to {newest}" if len(shares) > 1 else f"step {newest}"
    count = f"arrays averaged: {len(averaged.arrays)}, others of step {newest}"
    text = f"{what}: {written['bytes']:,} bytes, {count}  {printable(output.path)}"
    say_result(as_json, {**document, "averaged": averaged.arrays, **written}, text)

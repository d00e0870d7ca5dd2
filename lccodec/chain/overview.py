"""What is printed of a chain, of a checkpoint and of a plan, by their ``repr`` and by the shell.

Of a chain, names are read, and the manifests of the few checkpoints that are shown. What cannot be
read is said in its row. Of the other two nothing is read: they are passed in, by the modules whose
classes they are, which import this one.

How far a call is, is told to a function, or shown as a bar on a terminal.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from ..constants import EXACT_NAME
from ..container.manifest import Figures
from ..container.system import Place
from ..errors import ArgumentError, LccodecError, warn
from ..parallel import aside
from ..policy.roles import EXACT_BY_DEFAULT, Role
from ..table import Overview, Table, cut, ends, printable, ranges_text, shape_text, size_text, times_text
from .store.store import Store, checkpoints_among, pins_among

#: What a table calls the kinds of checkpoints.
KINDS: Final = {"keyframe": "key", "delta": "delta", "interpolated": "interp"}

_OWN_METADATA: Final = "lccodec."  # the keys of what adapters note
_MAX_SHOWN_NAMES: Final = 3  # in a line
MAX_TEXT_CHARACTERS: Final = 500  # of one string of a file
_MAX_METRICS: Final = 3  # columns of a table
_METRIC_CHARACTERS: Final = 20
_MAX_SIZED_FILES: Final = 1 << 12  # the size of more of them takes longer than a glance


class _Row(NamedTuple):
    """A checkpoint of a chain, as its manifest has it."""

    kind: str
    parents: str
    stored: str
    policy: str | None
    metrics: Mapping[str, float]


def chain_overview(store: Store, policy: str | None, failure: BaseException | None = None) -> Overview:
    """Return what is printed of a chain; with the `policy` of its saves if it is not recorded."""
    facts: dict[str, object] = {} if failure is None else {"failed": failure}
    title = f"Chain {_place(store.path)}"
    try:
        store = store.snapshot()
        names = store.names()
    except LccodecError as error:
        return Overview(title, {**facts, "unreadable": error})
    found, exact = checkpoints_among(names), store.exact_step() if EXACT_NAME in names else None
    if exact is not None and exact not in found:  # the save of that step was cut short
        found = dict(sorted({**found, exact: EXACT_NAME}.items()))
    steps, table = list(found), None
    first, _, last = ends(steps)
    store.ahead(found[step] for step in (*first, *last))
    rows = {step: _row(store, found[step]) for step in (*first, *last)}
    recorded = [row.policy for row in rows.values() if row.policy is not None]
    if name := policy or next(reversed(recorded), None):
        facts["policy"] = name
    if exact is not None:
        facts["exact"] = f"step {exact}, bit for bit"
    if pins := [step for step in pins_among(names) if step in found]:
        facts["pinned"] = ranges_text(pins, steps)
    if stored := _stored_bytes(store, {*found.values(), *([EXACT_NAME] if exact is not None else [])}):
        facts["files"] = f"{stored:,} bytes"
    if steps:
        table = _checkpoints(steps, rows)
    return Overview(f"{title}: {_counted(steps)}", facts, table)


def _counted(steps: Sequence[int]) -> str:
    if len(steps) < 2:
        return f"1 checkpoint, step {steps[0]}" if steps else "no checkpoints"
    return f"{len(steps):,} checkpoints, steps {steps[0]} to {steps[-1]}"


def _checkpoints(steps: Sequence[int], rows: Mapping[int, _Row]) -> Table:
    """Return the table of the first and last checkpoints, with their first metrics."""
    metrics = list(dict.fromkeys(name for row in rows.values() for name in row.metrics))[:_MAX_METRICS]
    table = Table("step", "kind", "parent", "bytes", *(cut(name, _METRIC_CHARACTERS) for name in metrics))

    def cells(step: int) -> list[object]:
        row = rows[step]
        numbers = [f"{row.metrics[name]:.4g}" if name in row.metrics else "-" for name in metrics]
        return [step, row.kind, row.parents, row.stored, *numbers]

    table.fill(steps, cells, short=True)
    return table


def _place(path: Place) -> str:
    """Return a path, relative to the working directory if it is in there; or an address."""
    try:
        return str(path.relative_to(Path.cwd()) if isinstance(path, Path) else path)
    except (ValueError, OSError):  # elsewhere; or there is no working directory any more
        return str(path)


def _row(store: Store, name: str) -> _Row:
    try:
        with store.open(name) as reader:
            manifest, size = reader.manifest, reader.file_size
    except LccodecError:
        return _Row("unreadable", "-", "-", None, {})
    kind = "keyframe" if not manifest.parents else "delta" if manifest.later is None else "interpolated"
    metrics = {}
    for key, text in manifest.metadata.items():
        with suppress(ValueError):  # words
            metrics[key] = float(text)
    return _Row(
        kind="exact" if manifest.is_exact else KINDS[kind],
        parents=", ".join(str(parent.step) for parent in manifest.parents) or "-",
        stored=f"{size:,}",
        policy=policy_name(manifest.policy),
        metrics=metrics,
    )


def _stored_bytes(store: Store, names: set[str]) -> int | None:
    """Return what files take together, if they are not too many and all are there."""
    if len(names) > _MAX_SIZED_FILES:
        return None
    try:
        return store.size(names)
    except LccodecError:
        return None


def checkpoint_overview(info: Any, *, short: bool = True) -> Overview:
    """Return what is printed of a `CheckpointInfo`: its facts, and a table of its arrays.

    If it is `short`, how and why arrays are stored is left out.
    """
    facts: dict[str, object] = {
        "step": "-" if info.step is None else info.step,
        "parent": " and ".join(map(str, info.parents)) or "none, a keyframe",
        "deltas": f"{info.deltas} to replay",
        "root": info.root,
        "policy": policy_name(info.policy),
        "file": size_text(info.nbytes, info.file_bytes),
        "exact": "the exact file holds this state bit for bit; losses are those of the history",
        "arrays": roles_text(info.arrays),
        **{f"lost, {role_words(role)}": figures_words(found) for role, found in info.figures.items()},
    }
    if not info.exact:
        del facts["exact"]
    metadata = [key for key in info.metadata if not (short and key.startswith(_OWN_METADATA))]
    first, more, last = ends(metadata) if short else (metadata, 0, ())
    facts |= {f"metadata {key}": info.metadata[key] for key in first}
    facts |= {"more metadata": f"{more:,}"} if more else {}
    facts |= {f"metadata {key}": info.metadata[key] for key in last}
    why = () if short else ("because", "in deltas", "method")
    table = Table("name", "dtype", "shape", "role", *why, "values", "bytes", "ratio")

    def cells(array: Any) -> list[object]:
        method = f"{array.method}, delta" if array.relative else array.method
        how = () if short else (array.why, quantizer_words(array.quantizer), method)
        size = f"{array.stored_bytes:,}", times_text(array.nbytes, array.stored_bytes)
        words = array.name, array.dtype, shape_text(array), array.role
        return [*words, *how, loss_word(array.lossy), *size]

    table.fill(info.arrays, cells, short=short)
    return Overview("", facts, table if info.arrays else None)


def plan_overview(plan: Any) -> Overview:
    """Return what is printed of a `Plan`: the arrays of each role, and a table of arrays."""
    kind = "a keyframe" if plan.parent is None else f"a delta to step {plan.parent}"
    facts: dict[str, object] = {}
    for role in dict.fromkeys(array.role for array in plan):
        arrays = [array for array in plan if array.role == role]
        lossy = sum(array.lossy for array in arrays)
        loss = {0: "exact", len(arrays): "lossy"}.get(lossy, f"{lossy:,} of them lossy")
        nbytes = sum(array.nbytes for array in arrays)
        facts[role_words(role)] = f"{_arrays(len(arrays))}, {nbytes:,} bytes, {loss}"
    facts |= {} if plan.shortfall is None else {"shortfall": plan.shortfall}
    facts |= {} if plan.group is None else {"group": plan.group}
    facts |= {f"advice {number}": line for number, line in enumerate(plan.advice, 1)}
    total = f"{_arrays(len(plan))}, {sum(array.nbytes for array in plan):,} bytes"
    return Overview(f"Plan of {kind}: {total}", facts, plan_table(plan) if len(plan) else None)


def _arrays(count: int) -> str:
    return f"{count:,} array{'' if count == 1 else 's'}"


def plan_table(plan: Sequence[Any], estimates: Sequence[Any] | None = None) -> Table:
    """Return the table of a plan: the first and last arrays; with `estimates`, all of them."""
    headers = "shape", "role", "because", "in deltas", "stored"
    table = Table("name", *headers, *(() if estimates is None else ("about bytes", "ratio", "error")))

    def cells(place: int) -> list[object]:
        array = plan[place]
        words = array.name, shape_text(array), array.role, array.why, quantizer_words(array.quantizer)
        if estimates is None:
            return [*words, array.stored]
        found = estimates[place]
        error = "-" if found.error is None else "exact" if found.error == 0 else f"{found.error:.2g}"
        if array.guarantee not in ("", "exact"):
            error = f"{error}, {array.guarantee}"
        size = f"{found.stored_bytes:,}", times_text(array.nbytes, found.stored_bytes)
        return [*words, array.stored, *size, error]

    table.fill(range(len(plan)), cells, short=estimates is None)
    return table


def roles_text(arrays: Sequence[Any]) -> str:
    """Return one line with the numbers of lossy and exact arrays (`ArrayInfo`) of each role."""
    counts = Counter((array.role, array.lossy) for array in arrays)
    ordered = sorted(counts.items())
    parts = [f"{count} {role.replace('_', ' ')} {loss_word(lossy)}" for (role, lossy), count in ordered]
    unnamed = [array.name for array in arrays if array.why in EXACT_BY_DEFAULT and not array.lossy]
    if unnamed and any(array.lossy for array in arrays):
        names = ", ".join(map(printable, unnamed[:_MAX_SHOWN_NAMES]))
        more = ", ..." if len(unnamed) > _MAX_SHOWN_NAMES else ""
        parts.append(f"exact, not known to be weights or safe moments: {names}{more}")
    return "; ".join(parts) or "none"


def quantizer_words(text: str) -> str:
    """Return a quantizer as text with its numbers rounded.

    Examples
    --------
    >>> quantizer_words("UniformDeadzone(share=0.058887381808117416)")
    'UniformDeadzone(share=0.05889)'
    """
    return re.sub(r"\d+\.\d{5,}(?:e[-+]?\d+)?", lambda match: f"{float(match[0]):.4g}", text)


def figures_words(figures: Figures) -> str:
    """Return what is known of error and lag, in words.

    Examples
    --------
    >>> figures_words(Figures(spread=0.5, movement=0.01, error=0.0075, lag=0.021))
    'error 0.75 movements, 1.5 % of the spread; lag 0.02 intervals'
    >>> figures_words(Figures(spread=0.5, error=0.0075))
    'error 1.5 % of the spread'
    """
    moved, spread = figures.error_in_movements, figures.error_in_spreads
    errors = [
        *([] if moved is None else [f"{error_text(moved)} movements"]),
        *([] if spread is None else [f"{percent_text(spread)} of the spread"]),
    ]
    parts = [f"error {', '.join(errors)}"] if errors else []
    if figures.lag is not None:
        parts.append(f"lag {lag_text(figures.lag)} intervals")
    return "; ".join(parts) or "-"


def role_words(role: Role) -> str:
    """Return a role, of several arrays."""
    return "other arrays" if role == "other" else f"{role.replace('_', ' ')}s"


def loss_word(lossy: bool) -> str:
    """Return whether values may have lost something, in a word."""
    return "lossy" if lossy else "exact"


def error_text(value: float | None) -> str:
    """Return an error in three digits."""
    return "-" if value is None else f"{value:.3g}"


def percent_text(value: float | None) -> str:
    """Return a share in percent, in three digits."""
    return "-" if value is None else f"{100 * value:.3g} %"


def lag_text(value: float | None) -> str:
    """Return a lag in hundredths of an interval."""
    return "-" if value is None else f"{round(value, 2) + 0.0:.2f}"  # no -0.00


def policy_name(recorded: Any) -> str:
    """Return the name of a recorded policy; without one, the record as text."""
    if isinstance(recorded, dict) and "policy" in recorded:  # with roles
        recorded = recorded["policy"]
    if isinstance(recorded, dict) and "name" in recorded:
        recorded = recorded["name"]
    return shortened(recorded if isinstance(recorded, str) else json.dumps(recorded))


def shortened(text: str) -> str:
    """Return a text, cut off if it is very long."""
    return text if len(text) <= MAX_TEXT_CHARACTERS else text[: MAX_TEXT_CHARACTERS - 3] + "..."


# --- how far a call is ----------------------------------------------------------------------------

Item = TypeVar("Item")

#: Is called with how many arrays, checkpoints or files are done, and of how many.
OnProgress: TypeAlias = Callable[[int, int], object]

#: ``True`` for a bar, or a function that is told.
Progress: TypeAlias = bool | OnProgress


def check_progress(progress: Progress) -> Progress:
    """Return progress unchanged; raise ``ArgumentError`` for what is neither bool nor function.

    Where a bar is asked for and cannot be drawn, an `LccodecWarning` says what to install.
    """
    if not (isinstance(progress, bool) or callable(progress)):
        raise ArgumentError(f"progress must be True, False or a function of two numbers; got {progress!r}")
    if progress is True and _tqdm() is None:
        warn("progress=True shows no bar, because tqdm is not installed: pip install 'lccodec[progress]'")
    return progress


def no_progress(done: int, total: int) -> None:
    """Tell nobody."""


@contextmanager
def telling(progress: Progress, doing: str, unit: str = "arrays") -> Iterator[OnProgress]:
    """Yield what is to be told how many of a unit are done, and of how many.

    A bar needs the package `tqdm`, and a terminal as standard error. Without them nothing is shown.
    """
    tqdm = _tqdm() if progress is True else None
    if tqdm is None or not sys.stderr.isatty():
        yield progress if callable(progress) else no_progress
        return
    bar = tqdm(desc=doing, total=0, unit=f" {unit}", delay=1)  # what is done soon shows nothing

    def show(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    try:
        yield show
    finally:
        bar.close()


@contextmanager
def telling_of_save(progress: Progress, warned: Callable[[str], object]) -> Iterator[OnProgress]:
    """Yield as `telling`. An error of who is told is a warning, once: it stops no save."""
    if progress is False:
        yield no_progress
        return
    failed = False
    with telling(progress, "save") as tell:

        def told(done: int, total: int) -> None:
            nonlocal failed
            if failed:
                return
            try:
                tell(done, total)
            except Exception as error:
                failed = True
                warned(f"the save goes on, but not its progress: {type(error).__name__}: {error}")

        yield told


@contextmanager
def telling_aside(progress: Progress, warned: Callable[[str], object]) -> Iterator[OnProgress]:
    """Yield as `telling_of_save`, for a thread that others wait for: a bar waits for none."""
    if progress is not True:
        with telling_of_save(progress, warned) as tell:
            yield tell
        return
    bar = ExitStack()
    tells: list[OnProgress] = []  # one, from the first call on

    def told(done: int, total: int) -> None:
        def call() -> None:
            if not tells:
                tells.append(bar.enter_context(telling_of_save(progress, warned)))
            tells[0](done, total)

        aside(call)

    try:
        yield told
    finally:
        aside(bar.close)


def watched(items: Iterator[Item], total: int, progress: Progress) -> Generator[Item, None, None]:
    """Yield items, and tell after each how many there were."""
    try:
        with telling(progress if total else False, "restore") as tell:  # no bar for nothing
            for done, item in enumerate(items, 1):
                tell(done, total)
                yield item
    finally:
        if isinstance(items, Generator):  # it may hold workers
            items.close()


def counted(items: Collection[Item], tell: OnProgress, total: int | None = None) -> Iterator[Item]:
    """Yield items, and tell after each is done how many were; `total` may count more than them."""
    total = len(items) if total is None else total
    for done, item in enumerate(items, 1):
        yield item
        tell(done, total)


def _tqdm() -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm

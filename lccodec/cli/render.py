"""The output of the command line: figures as text, tables, sparklines, JSON, a progress bar.

Names come from files that may be hostile: control sequences are escaped. Tables fit the width of a
terminal; elsewhere, and where they fit anyway, they are plain text. An unknown number is a dash: of
a first save no movement is known, so neither are error in movements and lag.
"""

from __future__ import annotations

import base64
import json
import math
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any, Final

from .. import table as plain
from ..chain.overview import (
    KINDS,
    checkpoint_overview,
    error_text,
    lag_text,
    loss_word,
    percent_text,
    quantizer_words,
)
from ..chain.read.info import ArrayInfo, CheckpointInfo, CheckpointSummary
from ..chain.read.links import pointer_text
from ..container.manifest import UNKNOWN
from ..table import evenly_spaced, facts_text, printable, ratio, shape_text, size_text, times_text

if TYPE_CHECKING:
    from ..inspect.difference import ArraySummary, Bin, Difference


class Table(plain.Table):
    """A table whose text fits the terminal."""

    def text(self, columns: int | None = None) -> str:
        """Return the lines of the table."""
        return fitted(self) if columns is None else super().text(columns)


def fitted(table: plain.Table) -> str:
    """Return the lines of a table for standard output; on a terminal the headers are bold."""
    if not sys.stdout.isatty():
        return plain.Table.text(table)
    headers, *lines = plain.Table.text(table, shutil.get_terminal_size().columns).split("\n")
    return "\n".join([f"\x1b[1m{headers}\x1b[0m", *lines])


_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_PLAIN: Final = "_.-=+*%#"  # where the output has no other characters

#: Most characters of a line.
WIDTH: Final = 60


def sparkline(values: Sequence[float | None], *, logarithmic: bool = False) -> str:
    """Return one character for each number, from the lowest to the highest.

    Blanks stand for ``None`` and what is not finite. Of a longer series, evenly spaced numbers are
    shown. On a `logarithmic` scale, what is not above 0 has the lowest character.

    >>> len(sparkline([1, 2, None, 8])), sparkline([1, None])[1]
    (4, ' ')
    """
    numbers = [
        None if value is None or not math.isfinite(value) else value for value in evenly_spaced(values, WIDTH)
    ]
    if logarithmic:
        numbers = [n if n is None else math.log(n) if n > 0 else -math.inf for n in numbers]
    finite = [number for number in numbers if number is not None and number > -math.inf]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    try:
        levels = _BLOCKS
        levels.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        levels = _PLAIN

    def character(number: float | None) -> str:
        if number is None:
            return " "
        if number == -math.inf or not high > low:
            return levels[0]
        return levels[round((len(levels) - 1) * ((number / 2 - low / 2) / (high / 2 - low / 2)))]

    return "".join(map(character, numbers))


_UNITS: Final = (
    "Error (rms) in movements since the save before; lag in intervals between saves, 1 for the state "
    "of the\nsave before; of spread: error over the spread of the weights. -: not known."
)


def quality_document(info: CheckpointInfo) -> dict[str, Any]:
    """Return the figures of the roles of a checkpoint for JSON."""
    return {"figures": {role: figures.numbers() for role, figures in info.figures.items()}}


def quality_text(infos: Sequence[CheckpointInfo]) -> str:
    """Return a table of what each save of a chain lost."""
    if not infos:
        return "no checkpoints"
    headers = "weights: error", "lag", "of spread", "first moments: error", "lag"
    table = Table("step", "kind", "bytes", *headers)
    for info in infos:
        figures = info.figures
        weights, moments = figures.get("weight", UNKNOWN), figures.get("first_moment", UNKNOWN)
        table.row(
            info.step,
            KINDS[info.kind],
            f"{info.file_bytes:,}",
            error_text(weights.error_in_movements),
            lag_text(weights.lag),
            percent_text(weights.error_in_spreads),
            error_text(moments.error_in_movements),
            lag_text(moments.lag),
        )
    return f"{table.text()}\n\n{_UNITS}"


_MAX_BAR_CHARACTERS: Final = 40  # of a histogram


def dump_json(document: Any) -> str:
    """Return a document as JSON; NaN and infinities become strings, bytes ``{"base64": ...}``.

    >>> print(dump_json({"loss": float("inf"), "key": b"ab"}))
    {
      "loss": "Infinity",
      "key": {
        "base64": "YWI="
      }
    }
    """
    return json.dumps(_json(document), indent=2, allow_nan=False)


def _json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: _json(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_json(child) for child in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value


@contextmanager
def progress(label: str) -> Iterator[Callable[[float, int], None]]:
    """Yield ``update(done, total)`` for a bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    # Not redirected: otherwise rich sends standard output to the console of the bar.
    console = Console(stderr=True)
    with Progress(console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def checkpoint_document(info: CheckpointInfo | CheckpointSummary) -> dict[str, Any]:
    """Return what is known about a checkpoint for JSON, without its arrays."""
    document = {**vars(info), "lossy": info.lossy, "ratio": ratio(info.nbytes, info.file_bytes)}
    document.pop("arrays", None)
    return document


def checkpoints_text(infos: Sequence[CheckpointInfo | CheckpointSummary]) -> str:
    """Return a table of the checkpoints of a chain, and their totals."""
    table = Table("step", "kind", "values", "parent", "bytes", "ratio", "deltas")
    for info in infos:
        parents = ", ".join(map(str, info.parents)) or "-"
        times = times_text(info.nbytes, info.file_bytes)
        words = info.step, KINDS[info.kind], loss_word(info.lossy), parents
        table.row(*words, f"{info.file_bytes:,}", times, info.deltas)
    sums = totals(infos)
    size = size_text(sums["nbytes"], sums["file_bytes"])
    count = f"{len(infos)} checkpoints" if len(infos) > 1 else "1 checkpoint"
    line = f"{count}, {sums['keyframes']} of them keyframes: {size}"
    if len(infos) > 1:
        line = f"bytes, logarithmic  {sparkline([i.file_bytes for i in infos], logarithmic=True)}\n{line}"
    return f"{table.text()}\n\n{line}" if infos else "no checkpoints"


def steps_text(steps: Sequence[int]) -> str:
    """Return how many checkpoints there are, and their range.

    >>> steps_text([10, 20, 30])
    '3 checkpoints, steps 10 to 30'
    >>> steps_text([5])
    '1 checkpoint, step 5'
    """
    if len(steps) == 1:
        return f"1 checkpoint, step {steps[0]}"
    return f"{len(steps)} checkpoints, steps {steps[0]} to {steps[-1]}"


def totals(infos: Sequence[CheckpointInfo | CheckpointSummary]) -> dict[str, Any]:
    """Return the numbers of checkpoints and keyframes, and the sums of their bytes."""
    stored, nbytes = sum(info.file_bytes for info in infos), sum(info.nbytes for info in infos)
    return {
        "checkpoints": len(infos),
        "keyframes": sum(info.parent is None for info in infos),
        "file_bytes": stored,
        "nbytes": nbytes,
        "ratio": ratio(nbytes, stored),
    }


def arrays_text(info: CheckpointInfo) -> str:
    """Return what is known about a checkpoint, and a table of its arrays."""
    overview = checkpoint_overview(info, short=False)
    table = "" if overview.table is None else fitted(overview.table)
    text = pointer_text(info.metadata)
    facts = overview.facts if text is None else {"this is": text, **overview.facts}
    return "\n\n".join(filter(None, [facts_text(facts), table]))


def summary_text(array: ArrayInfo, step: int | None, figures: ArraySummary, exact: bool = False) -> str:
    """Return the figures of an array, with its histogram as bars."""
    shown = "-" if step is None else f"{step}, of the exact file" if exact else step
    facts: dict[str, object] = {"name": array.name, "step": shown, "role": f"{array.role}, {array.why}"}
    if not exact:
        facts["deltas"] = quantizer_words(array.quantizer)
    facts |= {"dtype": figures.dtype, "shape": shape_text(figures), "elements": f"{figures.size:,}"}
    spread = figures.distribution
    if spread is not None:
        facts["range"] = f"{_number(spread.minimum)} to {_number(spread.maximum)}"
        facts |= {"mean": _number(spread.mean), "std": _number(spread.std)}
    share = f" ({100 * figures.zeros / figures.size:.3g} %)" if figures.size else ""
    facts |= {"zeros": f"{figures.zeros:,}{share}", "NaN": f"{figures.nans:,}"}
    facts["Inf"] = f"{figures.infinities:,}"
    return facts_text(facts) + ("\n\n" + _histogram(spread.histogram) if spread is not None else "")


def course_text(steps: Sequence[int], figures: Mapping[str, Sequence[float | None]]) -> str:
    """Return figures of an array over the steps, each as a sparkline with its range."""
    lines = [f"over {len(steps)} steps, {steps[0]} to {steps[-1]}" if steps else "at no step"]
    for name, series in figures.items():
        values = [value for value in series if value is not None]
        if values:
            ends = f"{_number(min(values))} to {_number(max(values))}"
            lines.append(f"{name.replace('_', ' '):10}  {sparkline(series)}  {ends}")
    return "\n".join(lines)


def difference_text(difference: Difference, roles: Mapping[str, str], lossy: Set[str] = frozenset()) -> str:
    """Return what changed between two states, with roles by name, and names of `lossy` arrays."""
    parts = []
    if difference.changed:
        headers = "role", "dtype", "shape", "elements", "max |d|", "rms d", "rms d / rms", "cosine"
        table = Table("changed", *headers)
        for c in difference.changed:
            words = c.name, roles.get(c.name, "-"), c.dtype, shape_text(c), f"{100 * c.share:.3g} %"
            table.row(*words, *map(_number, (c.max_abs, c.rms, c.relative_rms, c.cosine)))
        parts.append(table.text())
        if count := sum(c.name in lossy for c in difference.changed):
            parts.append(
                f"{count} of {len(difference.changed)} changed arrays lost something when they were saved:"
                " the figures are of decoded states, not the run's"
            )
    if difference.scalars or difference.replaced:
        table = Table("changed", "old", "new", numbers=False)
        for scalar in difference.scalars:
            table.row(scalar.name, repr(scalar.old), repr(scalar.new))
        for leaf in difference.replaced:
            table.row(leaf.name, leaf.old, leaf.new)
        parts.append(table.text())
    for label, names in (("appeared", difference.appeared), ("disappeared", difference.disappeared)):
        if names:
            parts.append("\n".join([f"{label}:", *(f"  {printable(name)}" for name in names)]))
    parts.append(f"unchanged: {difference.unchanged} arrays, {difference.unchanged_scalars} scalars")
    return "\n\n".join(parts)


def _histogram(bins: Sequence[Bin]) -> str:
    most = max(bar.count for bar in bins)
    table = Table("from", "to", "count", "")
    table.right = [True, True, True, False]
    for bar in bins:
        length = math.ceil(_MAX_BAR_CHARACTERS * bar.count / most)  # a count above 0 shows
        table.row(_number(bar.low), _number(bar.high), f"{bar.count:,}", "#" * length)
    return table.text()


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)

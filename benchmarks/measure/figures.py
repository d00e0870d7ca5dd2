"""What benchmarks report: figures, their tables, their JSON, the check against stored ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

__all__ = [
    "COPY",
    "NANOSECONDS",
    "Figure",
    "better",
    "dump",
    "find",
    "load",
    "losses",
    "markdown",
]

COPY = "np.copyto"
NANOSECONDS = "nanoseconds a value"  # a base that a heading names
UNITS = ("ms", "%", "MiB")  # bases of figures that are no ratios
TOLERANCE = 1.15  # a ratio that grew by more than this factor is a loss


@dataclass(frozen=True)
class Figure:
    """One measured ratio; less is better.

    Parameters
    ----------
    section, case, subject, action
        Table, its heading, row and column.
    ratio
        Multiple of what `base` says.
    base
        ``"np.copyto"``: seconds over those of a copy of the same raw bytes in the same rounds.
    typical
        The same ratio of the medians over the rounds; far from `ratio` on a noisy machine.
    seconds
        Of the best round.
    values
        Numbers in the arrays.
    bits
        Stored bits a value.
    amount
        Bytes, where the figure is about bytes.
    peer
        Whether it is not about lccodec: such figures are not checked.
    note
        What a reader has to know.
    """

    section: str
    case: str
    subject: str
    action: str
    ratio: float
    base: str = COPY
    typical: float | None = None
    seconds: float | None = None
    values: int | None = None
    bits: float | None = None
    amount: int | None = None
    peer: bool = False
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What tells figures apart."""
        return self.section, self.case, self.subject, self.action

    @property
    def cell(self) -> str:
        """The ratio as the table shows it."""
        if self.base == COPY:
            return f"1/{self.ratio:.3g}" if self.ratio < 100 else f"1/{self.ratio:,.0f}"
        if self.base == NANOSECONDS:
            return f"{self.ratio:.2f}"
        if self.base in UNITS:
            return (
                f"{self.ratio:.3g} {self.base}"
                if abs(self.ratio) < 1000
                else f"{self.ratio:,.0f} {self.base}"
            )
        amount = f" ({self.amount / 2**20:,.2f} MiB)" if self.amount is not None else ""
        return f"{self.ratio:.3g} x {self.base}{amount}"


def find(
    figures: Iterable[Figure], section: str, subject: str, action: str, *, case: str = ""
) -> Figure | None:
    """Return the last figure of that place whose case starts with `case`, or ``None``."""
    wanted = (section, subject, action)
    found = [f for f in figures if (f.section, f.subject, f.action) == wanted and f.case.startswith(case)]
    return found[-1] if found else None


def markdown(figures: Sequence[Figure]) -> str:
    """Return a table for each section and case, rows and columns in the order of measuring."""
    tables = []
    for section, case in dict.fromkeys((f.section, f.case) for f in figures):
        here = [f for f in figures if (f.section, f.case) == (section, case)]
        columns = list(dict.fromkeys(f.action for f in here))
        coded = any(f.bits is not None for f in here)
        head = [section, *(["bits a value"] if coded else []), *columns]
        lines = [f"**{section}: {case}**", "", _row(head), "|---|" + "---:|" * (len(head) - 1)]
        for subject in dict.fromkeys(f.subject for f in here):
            mine = {f.action: f for f in here if f.subject == subject}
            bits = next((f"{f.bits:.3f}" for f in mine.values() if f.bits is not None), "")
            cells = [mine[c].cell if c in mine else "" for c in columns]
            note = next((f" ({f.note})" for f in mine.values() if f.note), "")
            lines.append(_row([subject + note, *([bits] if coded else []), *cells]))
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def dump(figures: Sequence[Figure], about: dict[str, object], path: Path) -> None:
    """Write the figures, and what is to be known about the run, as JSON."""
    figure_fields = [{k: v for k, v in asdict(f).items() if v or k == "ratio"} for f in figures]
    path.write_text(json.dumps({**about, "figures": figure_fields}, indent=1) + "\n")


def load(path: Path) -> list[Figure]:
    """Read the figures of :func:`dump`."""
    known = {field.name for field in fields(Figure)}
    stored = json.loads(path.read_text())["figures"]
    return [Figure(**{k: v for k, v in figure.items() if k in known}) for figure in stored]


def better(first: Iterable[Figure], second: Iterable[Figure]) -> list[Figure]:
    """Return the better one of the figures that were measured twice."""
    again = {f.key: f for f in second}
    return [min(f, again.get(f.key, f), key=lambda one: one.ratio) for f in first]


def losses(figures: Iterable[Figure], stored: Iterable[Figure]) -> list[tuple[Figure, float]]:
    """Return the figures of lccodec that are worse than the stored ones, with the stored ratio."""
    before = {f.key: f.ratio for f in stored if not f.peer}
    return [
        (f, before[f.key])
        for f in figures
        if not f.peer and f.key in before and f.ratio > TOLERANCE * before[f.key]
    ]

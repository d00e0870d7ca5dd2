"""What prints as a table: text in a terminal, HTML in a notebook. Names in it may be hostile.

A name in a file can hold the sequences that clear a screen, set the title of a window or answer for
the user. Whatever prints text of files and users (names, metadata, paths), or puts it into an error
or a warning, escapes it with `printable`. In HTML, markup is escaped too.

A table that a ``repr`` shows stays short: its first rows, how many more there are, and its last
ones.
"""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, TypeVar

#: Rows of a short table: as many at its beginning and at its end.
_END_ROWS: Final = 5
#: Of a cell or a fact of a short table. What is left out is in the middle.
_CELL_CHARACTERS: Final = 40
_FACT_CHARACTERS: Final = 120
#: What is left of a cell in a narrow terminal.
_LEAST_CHARACTERS: Final = 12
#: The share of a narrow terminal that names keep: all other columns give way first.
_NAME_SHARE: Final = 0.6
#: The columns that a narrow terminal loses first; all others go from the right.
_SPARE: Final = ("because", "dtype", "shape", "parent", "values", "deltas")

_GAP: Final = "  "  # between two columns
_WORDS: Final = ("kind", "dtype", "shape", "role", "because", "in deltas", "method", "values", "stored")

_Item = TypeVar("_Item")


class Table:
    """A table with a line of headers; numbers are flush right.

    `numbers`: whether the columns of headers that are not known to be words have numbers.
    """

    def __init__(self, first: str, *others: str, numbers: bool = True) -> None:
        self.headers = tuple(printable(header) for header in (first, *others))
        self.right = [first == "step", *(numbers and header not in _WORDS for header in others)]
        self.rows: list[tuple[str, ...] | str] = []

    def row(self, *cells: object) -> None:
        """Append a row."""
        self.rows.append(tuple(printable(cell) for cell in cells))

    def fill(
        self, items: Sequence[_Item], cells: Callable[[_Item], Sequence[object]], *, short: bool
    ) -> None:
        """Append a row for each item; if the table is `short`, only for the first and last ones.

        Then long cells are cut, too.
        """
        first, more, last = ends(items) if short else (items, 0, ())
        limit = _CELL_CHARACTERS if short else None
        for item in first:
            self.row(*(cut(cell, limit) for cell in cells(item)))
        if more:
            self.rows.append(f"... {more:,} more")
        for item in last:
            self.row(*(cut(cell, limit) for cell in cells(item)))

    def text(self, columns: int | None = None) -> str:
        """Return the lines of the table; with `columns`, so that they fit.

        Then cells are cut, in their middle, and columns are left out if that is not enough. The
        last line says which. The first column is never left out.
        """
        rows = [self.headers, *self.rows]
        cells = [row for row in rows if not isinstance(row, str)]
        natural = [max(map(width, column)) for column in zip(*cells, strict=True)]
        places = list(range(len(natural)))
        widths = natural if columns is None else self._narrowed(natural, places, columns)
        while columns is not None and len(places) > 1 and _line_width(widths) > columns:
            places.remove(self._spare(places))
            widths = self._narrowed(natural, places, columns)
        lines = []
        for row in rows:
            if isinstance(row, str):
                lines.append(row)
                continue
            padded = []
            for place, room in zip(places, widths, strict=True):
                cell = cut(row[place], room) if columns is not None else row[place]
                space = " " * (room - width(cell))
                padded.append(space + cell if self.right[place] else cell + space)
            lines.append(_GAP.join(padded).rstrip())
        left_out = [header for place, header in enumerate(self.headers) if place not in places]
        if left_out:
            lines.append(f"(too narrow for: {', '.join(left_out)})")
        return "\n".join(lines)

    def _narrowed(self, natural: Sequence[int], places: Sequence[int], columns: int) -> list[int]:
        """Return the widths of columns; words give way until a line fits, the first column last."""
        widths = [natural[place] for place in places]
        words = [number for number, place in enumerate(places) if not self.right[place]]
        excess = _line_width(widths) - columns
        least = [int(columns * _NAME_SHARE), *[_LEAST_CHARACTERS] * (len(places) - 1)]
        for giving in ([number for number in words if number], words):
            while excess > 0 and giving:
                widest = max(giving, key=lambda number: widths[number] - least[number])
                if widths[widest] <= least[widest]:
                    break
                widths[widest] -= 1
                excess -= 1
        if len(places) == 1 and not self.right[0]:  # there is nothing else to give way
            widths = [min(widths[0], max(columns, 1))]
        return widths

    def _spare(self, places: Sequence[int]) -> int:
        """Return the column that is left out next."""
        for header in _SPARE:
            if header in self.headers[1:] and (place := self.headers.index(header, 1)) in places:
                return place
        return places[-1]

    def html(self) -> str:
        """Return the table as HTML, without colours and scripts."""
        sides = ["right" if right else "left" for right in self.right]

        def line(row: tuple[str, ...] | str, tag: str) -> str:
            if isinstance(row, str):
                return f'<tr><td colspan="{len(sides)}" style="text-align:left">{escape(row)}</td></tr>'
            cells = zip(row, sides, strict=True)
            inner = (f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>' for cell, side in cells)
            return f"<tr>{''.join(inner)}</tr>"

        body = "".join(line(row, "td") for row in self.rows)
        return f"<table><thead>{line(self.headers, 'th')}</thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True)
class Overview:
    """What is printed of an object: a title, facts by label, and a table."""

    title: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    table: Table | None = None

    def text(self, columns: int | None = None) -> str:
        """Return it as text; with `columns`, the table is made to fit."""
        head = "\n".join(filter(None, [printable(self.title), facts_text(self.facts, _FACT_CHARACTERS)]))
        shown = [head, "" if self.table is None else self.table.text(columns)]
        return "\n\n".join(filter(None, shown))

    def html(self) -> str:
        """Return it as HTML for a notebook."""
        parts = [f"<p><strong>{escape(printable(self.title))}</strong></p>"] if self.title else []
        if self.facts:
            lines = (f"{printable(k)}: {cut(v, _FACT_CHARACTERS)}" for k, v in self.facts.items())
            parts.append(f"<p>{'<br>'.join(map(escape, lines))}</p>")
        return f"<div>{''.join(parts)}{'' if self.table is None else self.table.html()}</div>"


class Shown:
    """A class whose objects print as an `Overview`, in notebooks too.

    A ``repr`` is asked for by debuggers, and while errors are reported. So it never raises.
    """

    def _overview(self) -> Overview:
        raise NotImplementedError

    def __repr__(self) -> str:
        columns = shutil.get_terminal_size().columns if _is_terminal() else None
        try:
            return self._overview().text(columns)
        except Exception:  # of an object that is only half made, for example
            return object.__repr__(self)

    def _repr_html_(self) -> str | None:
        try:
            return self._overview().html()
        except Exception:  # a notebook then shows the text
            return None


def _line_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _is_terminal() -> bool:
    """Return whether standard output is a terminal. It may be closed, or there may be none."""
    try:
        return sys.stdout.isatty()
    except (AttributeError, ValueError):
        return False


def ends(items: Sequence[_Item]) -> tuple[Sequence[_Item], int, Sequence[_Item]]:
    """Return the first items, how many are left out, and the last items."""
    if len(items) <= 2 * _END_ROWS + 1:
        return items, 0, items[:0]
    return items[:_END_ROWS], len(items) - 2 * _END_ROWS, items[-_END_ROWS:]


def cut(text: object, limit: int | None) -> str:
    """Return a text of at most `limit` characters, without its middle, and printable."""
    shown = printable(text)
    if limit is None or len(shown) <= limit:
        return shown
    kept = max(limit - 3, 0)
    return shown[: kept - kept // 2] + "..."[:limit] + shown[len(shown) - kept // 2 :]


def facts_text(facts: Mapping[str, object], limit: int | None = None) -> str:
    """Return a line for each fact, with its label; with `limit`, long lines are cut.

    Examples
    --------
    >>> print(facts_text({"step": 40, "policy": "balanced"}))
    step    40
    policy  balanced
    """
    labels = {printable(label): value for label, value in facts.items()}
    room = max(map(len, labels), default=0)
    lines = [f"{label:{room}}{_GAP}{printable(value)}".rstrip() for label, value in labels.items()]
    return "\n".join(cut(line, limit) for line in lines)


def width(text: str) -> int:
    """Return how many columns of a terminal a printable text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def ratio(nbytes: int, stored: int) -> float | None:
    """Return how many times smaller the stored bytes are; None if nothing is stored."""
    return nbytes / stored if stored else None


def times_text(nbytes: int, stored: int) -> str:
    """Return how many times smaller the stored bytes are, as in ``12.0x``."""
    times = ratio(nbytes, stored)
    return "-" if times is None else f"{times:.1f}x"


def size_text(nbytes: int, stored: int) -> str:
    """Return the stored bytes, the bytes they stand for, and the ratio.

    Examples
    --------
    >>> size_text(12_000, 1_000)
    '1,000 bytes for 12,000 (12.0x)'
    """
    return f"{stored:,} bytes for {nbytes:,} ({times_text(nbytes, stored)})"


def shape_text(array: Any) -> str:
    """Return the shape of an array, as in ``3 x 4``."""
    return " x ".join(map(str, array.shape)) or "-"


def ranges_text(chosen: Sequence[int], steps: Sequence[int]) -> str:
    """Return some of the steps of a chain as ranges.

    Examples
    --------
    >>> ranges_text([10, 20, 30, 50], [10, 20, 30, 40, 50])
    '10 to 30, 50'
    """
    places = {step: place for place, step in enumerate(steps)}
    runs: list[list[int]] = []
    for step in chosen:
        if runs and places[step] == places[runs[-1][-1]] + 1:
            runs[-1] = [runs[-1][0], step]
        else:
            runs.append([step])
    return ", ".join(" to ".join(map(str, run)) for run in runs)


def evenly_spaced(items: Sequence[_Item], count: int) -> list[_Item]:
    """Return at most `count` items with the first and the last.

    Examples
    --------
    >>> evenly_spaced(range(11), 3)
    [0, 5, 10]
    """
    if len(items) <= count:
        return list(items)
    distance = (len(items) - 1) / max(count - 1, 1)
    return [items[round(place * distance)] for place in range(count)]


def printable(text: object, *, lines: bool = False, indented: bool = False) -> str:
    """Return the text of an object with escapes for what is not printable.

    `lines` keeps the ends of lines, and `indented` those before a line that two spaces begin, as
    messages go on: other ends are part of a name, which could look like a message of its own.
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    if lines or indented:
        end = "\n" if lines else "\n  "
        return end.join(map(printable, shown.split(end)))
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)

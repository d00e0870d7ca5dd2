"""Tables as text. Names in them may be hostile: control sequences are escaped.

On a terminal a table fits its width, and long names take several lines. Elsewhere, and where it
fits anyway, it is plain text: a long table is made some thirty times as fast.
"""

from __future__ import annotations

import shutil
import sys
from typing import Final

from ..printable import printable

_LONG_ROWS: Final = 100  # of a table that is plain text on a terminal, if it fits
_WORDS: Final = ("kind", "dtype", "shape", "role", "because", "in deltas", "method", "values", "stored")


class Table:
    """A table with a line of headers; numbers are flush right.

    Parameters
    ----------
    first, others
        The headers. The column of `first` may be folded.
    numbers
        Whether the columns of unknown headers have numbers.

    Examples
    --------
    >>> table = Table("step", "kind", "bytes")
    >>> table.row(9, "key", "1,024")
    >>> table.row(10, "delta", "80")
    >>> print(table.text())
    step  kind   bytes
       9  key    1,024
      10  delta     80
    """

    def __init__(self, first: str, *others: str, numbers: bool = True) -> None:
        self.right = [first == "step", *(numbers and header not in _WORDS for header in others)]
        self._rows = [(first, *others)]

    def row(self, *cells: object) -> None:
        """Append a row."""
        self._rows.append(tuple(printable(cell) for cell in cells))

    def text(self) -> str:
        """Return the lines of the table."""
        if not sys.stdout.isatty():
            return self._plain()
        if len(self._rows) > _LONG_ROWS:
            plain = self._plain()
            if max(map(_width, plain.split("\n"))) <= shutil.get_terminal_size().columns:
                return plain
        return self._fitted()

    def _plain(self) -> str:
        widths = [max(map(_width, column)) for column in zip(*self._rows, strict=True)]
        lines = []
        for row in self._rows:
            padded = []
            for cell, width, right in zip(row, widths, self.right, strict=True):
                space = " " * (width - _width(cell))
                padded.append(space + cell if right else cell + space)
            lines.append("  ".join(padded).rstrip())
        return "\n".join(lines)

    def _fitted(self) -> str:
        """Return the table with bold headers, in the width of the terminal."""
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=None, pad_edge=False)
        for place, (header, right) in enumerate(zip(self._rows[0], self.right, strict=True)):
            table.add_column(header, justify="right" if right else "left", overflow="fold", no_wrap=place > 0)
        for row in self._rows[1:]:
            table.add_row(*map(Text, row))  # in a str rich looks for markup
        console = Console(force_terminal=True)
        with console.capture() as captured:
            console.print(table)
        return "\n".join(line.rstrip() for line in captured.get().strip("\n").split("\n"))


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)

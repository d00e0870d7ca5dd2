"""Tables in the width of a terminal. Elsewhere, and where they fit anyway, they are plain text.

On a terminal long names take several lines. A long table that fits is made some thirty times as
fast as plain text.
"""

from __future__ import annotations

import shutil
import sys
from typing import Final

from .. import table as plain
from ..table import width

_LONG_ROWS: Final = 100  # of a table that is plain text on a terminal, if it fits


class Table(plain.Table):
    """A table whose text fits the terminal. The column of the first header may be folded."""

    def text(self, columns: int | None = None) -> str:
        """Return the lines of the table."""
        return fitted(self) if columns is None else super().text(columns)


def fitted(table: plain.Table) -> str:
    """Return the lines of a table for standard output."""
    if not sys.stdout.isatty():
        return plain.Table.text(table)
    if len(table.rows) >= _LONG_ROWS:
        text = plain.Table.text(table)
        if max(map(width, text.split("\n"))) <= shutil.get_terminal_size().columns:
            return text
    return _folded(table)


def _folded(table: plain.Table) -> str:
    """Return a table with bold headers, in the width of the terminal."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(box=None, pad_edge=False)
    for place, (header, right) in enumerate(zip(table.headers, table.right, strict=True)):
        made.add_column(header, justify="right" if right else "left", overflow="fold", no_wrap=place > 0)
    for row in table.rows:
        made.add_row(*map(Text, [row] if isinstance(row, str) else row))  # in a str rich looks for markup
    console = Console(force_terminal=True)
    with console.capture() as captured:
        console.print(made)
    return "\n".join(line.rstrip() for line in captured.get().strip("\n").split("\n"))

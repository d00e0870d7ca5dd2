"""Tables in the width of a terminal. Elsewhere, and where they fit anyway, they are plain text."""

from __future__ import annotations

import shutil
import sys

from .. import table as plain


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

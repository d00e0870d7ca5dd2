"""Text from files and users (names, metadata, paths), made safe for a terminal.

A name in a file can hold the sequences that clear a screen, set the title of a window or answer for
the user. Whatever prints such text, or puts it into an error or a warning, escapes it with
`printable`.
"""

from __future__ import annotations


def printable(text: object, *, lines: bool = False) -> str:
    """Return the text of an object with escapes for what is not printable; `lines` keeps their
    ends.
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    if lines:
        return "\n".join(map(printable, shown.split("\n")))
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)

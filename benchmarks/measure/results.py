"""What scripts say at their end: printed, and put into a file of results if there is one.

Each script writes its part of that file between two marks of its own.
"""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path

__all__ = ["add_results", "machine", "put_into", "tell"]

END = "<!-- to here -->"


def put_into(path: Path, script: str, text: str) -> None:
    """Write `text` between the marks of a script; a file without them gets them at its end."""
    begin = f"<!-- {script} writes from here -->"
    before = path.read_text() if path.exists() else ""
    if begin not in before:
        before += f"\n{begin}\n{END}\n"
    head, rest = before.split(begin)
    path.write_text(f"{head}{begin}\n\n{text}\n\n{END}{rest.split(END, 1)[1]}")


def add_results(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--results FILE``, the file that `tell` writes."""
    parser.add_argument("--results", type=Path, metavar="FILE", help="put the tables into this markdown file")


def tell(text: str, script: str, results: Path | None) -> None:
    """Print what a script found, and put it into the file of results, if there is one."""
    print(text)
    if results:
        put_into(results, script, text)


def machine() -> str:
    """Return what a measurement was made on, in words."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"

"""What scripts say at their end: printed, and kept as data in a folder if there is one.

Each script has a file of its own in that folder: every table with the lines above it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

__all__ = ["add_results", "machine", "parse", "put_into", "tell"]


def parse(text: str) -> list[dict[str, Any]]:
    """Return the tables of a text: the lines above each of them, its columns, its rows of cells.

    Blank lines stand around a table. Lines behind the last one are a table without columns.
    """
    tables: list[dict[str, Any]] = []
    about: list[str] = []
    for block in re.split(r"\n{2,}", text.strip("\n")):
        lines = block.splitlines()
        if block.startswith("|"):
            columns, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
            tables.append({"about": about, "columns": columns, "rows": rows})
            about = []
        else:
            about += [re.sub(r"^#+ |\*\*", "", line) for line in lines]
    if about:
        tables.append({"about": about, "columns": [], "rows": []})
    return tables


def put_into(folder: Path, script: str, text: str) -> None:
    """Write the tables of `text` to the file of a script in `folder`, a row a line."""
    blocks = []
    for table in parse(text):
        fields = [f'"{key}": {json.dumps(table[key], ensure_ascii=False)}' for key in ("about", "columns")]
        rows = ",\n   ".join(json.dumps(row, ensure_ascii=False) for row in table["rows"])
        blocks.append("{" + ",\n  ".join([*fields, f'"rows": [\n   {rows}]' if rows else '"rows": []']) + "}")
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "-", script.replace(".py", ""))
    (folder / f"{name}.json").write_text("[\n" + ",\n".join(blocks) + "\n]\n")


def add_results(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--results FOLDER``, where `tell` keeps the tables."""
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="keep the tables in this folder")


def tell(text: str, script: str, results: Path | None) -> None:
    """Print what a script found, and keep its tables in the folder of results, if there is one."""
    print(text)
    if results:
        put_into(results, script, text)


def machine() -> str:
    """Return what a measurement was made on, in words."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"

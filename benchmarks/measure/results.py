"""The file of results: each script writes its part between two marks of its own."""

from __future__ import annotations

from pathlib import Path

__all__ = ["put_into"]

END = "<!-- to here -->"


def put_into(path: Path, script: str, text: str) -> None:
    """Write `text` between the marks of a script; a file without them gets them at its end."""
    begin = f"<!-- {script} writes from here -->"
    before = path.read_text() if path.exists() else ""
    if begin not in before:
        before += f"\n{begin}\n{END}\n"
    head, rest = before.split(begin)
    path.write_text(f"{head}{begin}\n\n{text}\n\n{END}{rest.split(END, 1)[1]}")

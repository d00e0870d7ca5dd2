"""The programs of a page of the documentation."""

import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def programs(page: Path) -> list[str]:
    """Return the blocks of a page that are whole programs: Python without prompts."""
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [block for block in blocks if not block.startswith(">>>")]


def run(program: str, report: Callable[..., None] = print) -> None:
    """Run a program in this process. What it would print goes to `report`."""
    exec(program, {"__name__": "__main__", "print": report})  # noqa: S102 - the text of our own page

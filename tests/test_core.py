"""``core.txt``: the test modules that need no framework, which `.ci/run` runs without any."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

TESTS = Path(__file__).parent
WITHOUT = {"numpy", "h5py", "pytest", "hypothesis", "lccodec", "tests", "make", *sys.stdlib_module_names}
NEEDING = ("lccodec.adapters", "lccodec.cli", "lccodec.__main__")  # which import a framework in turn
#: What needs none, and takes so long that it is run once, with all others.
SLOW = {
    "tests/chain/test_faults.py",
    "tests/chain/test_readers.py",
    "tests/chain/test_tuning.py",
    "tests/spec/test_decoder.py",
    "tests/test_fuzz.py",
}


def needs(path: Path, seen: set[Path]) -> set[str]:
    """The other projects' modules that a test module imports, directly or through other tests."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            folder = path.parents[node.level - 1].joinpath(*filter(None, (node.module or "").split(".")))
            for other in (folder.with_suffix(".py"), *(folder / f"{alias.name}.py" for alias in node.names)):
                if other not in seen and other.exists():
                    found |= needs(other, seen | {other})
    return found


def is_core(path: Path) -> bool:
    found = needs(path, {path, TESTS / "support" / "strategies.py"})
    return all(name.split(".")[0] in WITHOUT and not name.startswith(NEEDING) for name in found)


def test_the_list_has_every_module_that_needs_no_framework() -> None:
    listed = (TESTS / "core.txt").read_text().split()
    core = {f"tests/{path.relative_to(TESTS)}" for path in TESTS.rglob("test_*.py") if is_core(path)}
    assert len(listed) == len(set(listed))
    assert set(listed) <= core
    assert core - set(listed) == SLOW

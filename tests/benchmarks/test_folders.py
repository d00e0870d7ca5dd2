"""The folders of the benchmarks import downwards, and each program starts from anywhere."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
#: What each folder may import of the others.
FOLDERS = {
    "measure": set(),
    "compressors": set(),
    "networks": set(),
    "schemes": {"compressors"},
    "trials": {"measure", "networks", "schemes"},
    "promise": {"measure", "networks"},
    "speed": {"measure", "compressors", "networks"},
    "background": {"measure", "networks", "speed"},
    "pages": {"measure", "networks"},
    "sync": {"measure", "networks", "speed"},
    "mending": {"measure"},
    "simulations": {"measure", "compressors"},
}
PROGRAMS = {
    *(
        "averages",
        "buckets",
        "copies",
        "devices",
        "fields",
        "follow",
        "frameworks",
        "hindsight",
        "lenet",
        "overlap",
    ),
    *("measuring", "parity", "promise"),
    *("report", "scale", "tables", "throughput", "training", "verdicts"),
}


def test_every_module_has_a_place() -> None:
    assert {path.parent.name for path in BENCHMARKS.glob("*/*.py")} == set(FOLDERS)
    assert {path.stem for path in BENCHMARKS.glob("*.py")} == PROGRAMS | {"__init__", "test_speed"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_point_down(folder: str) -> None:
    found = set()
    for path in (BENCHMARKS / folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 2:
                found |= {(node.module or alias.name).split(".")[0] for alias in node.names}
            assert not isinstance(node, ast.ImportFrom) or node.level <= 2
            assert not isinstance(node, ast.ImportFrom) or (node.module or "") != "benchmarks"
    assert found == FOLDERS[folder]


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_a_program_runs_the_main_of_a_module(program: str) -> None:
    tree = ast.parse((BENCHMARKS / f"{program}.py").read_text())
    (found,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.level == 0
        and (node.module or "").startswith("benchmarks")
    )
    module = ast.parse((BENCHMARKS.parent / f"{found.module.replace('.', '/')}.py").read_text())
    assert [alias.name for alias in found.names] == ["main"]
    assert "main" in {node.name for node in module.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.slow
def test_a_program_starts_from_anywhere(tmp_path: Path) -> None:
    command = [sys.executable, BENCHMARKS / "throughput.py", "--help"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "usage: throughput.py" in run.stdout

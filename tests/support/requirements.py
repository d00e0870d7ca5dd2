"""What test files need of the extras that `EXTRAS` names: found by reading what they import.

A file is left out where a package is not installed that the file imports, itself or through modules
of this repository. A test is left out where its own function imports such a package. No list is
kept. Only packages of these extras may be missing: any other import that fails is an error.
"""

from __future__ import annotations

import ast
import doctest
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from .heart import is_apart

ROOT = Path(__file__).parents[2]
EXTRAS = ("test", "adapters", "simulations", "fast")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Imports:
    """The modules that a file imports: when it is imported itself, and in each of its tests."""

    file: set[str] = field(default_factory=set)
    tests: dict[str, set[str]] = field(default_factory=dict)


def packages(extra: str) -> Iterator[str]:
    """The packages of an extra, and of the extras that it names."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for requirement in document["project"]["optional-dependencies"][extra]:
        name, _, rest = requirement.partition("[")
        if name == "lccodec":
            for other in rest.partition("]")[0].split(","):
                yield from packages(other)
        else:
            yield name.partition(">")[0].partition("=")[0]


@cache
def extras() -> dict[str, set[str]]:
    """The packages of each extra that tests need."""
    return {extra: set(packages(extra)) for extra in EXTRAS}


@cache
def missing() -> set[str]:
    """The packages of the extras that are not installed."""
    wanted = set().union(*extras().values())
    return {package for package in wanted if not any(map(find_spec, _names_in(package)))}


def _names_in(package: str) -> list[str]:
    """The names that a package's module may have: orbax-checkpoint has orbax."""
    words = package.replace("-", "_").split("_")
    return ["_".join(words[:count]) for count in range(1, len(words) + 1)]


@cache
def package_of(module: str) -> str | None:
    """The package of the extras that has a module."""
    top = module.partition(".")[0]
    found = [package for package in set().union(*extras().values()) if top in _names_in(package)]
    return min(found, key=len, default=None)  # pytest rather than pytest-cov


@cache
def needed(path: Path) -> set[str]:
    """The packages of the extras that a file needs to be collected."""
    found, files = _named(_examples(path))
    waiting = files.union(_above(path), [str(path)] if path.suffix == ".py" else [])
    seen = set(waiting)
    while waiting:
        others, files = _imported(waiting.pop())
        found |= others
        waiting |= files - seen
        seen |= files
    return found


@cache
def _imported(file: str) -> tuple[set[str], set[str]]:
    return _named(imports(file).file)


def _named(modules: set[str]) -> tuple[set[str], set[str]]:
    """The packages of the extras that have some modules, and the files that are others."""
    files = {module: _files(module) for module in modules}
    others = {package for module in modules if not files[module] and (package := package_of(module))}
    return others, set().union(*files.values())


def _above(path: Path) -> Iterator[str]:
    """The files that are run before a file is collected."""
    for folder in path.relative_to(ROOT).parents:
        for name in ("__init__.py", "conftest.py"):
            if (ROOT / folder / name).is_file():
                yield str(ROOT / folder / name)


@cache
def _files(module: str) -> frozenset[str]:
    """The files of this repository that are run to import a module; none if it is not from here."""
    parts = module.split(".")
    places = [ROOT.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
    files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    return frozenset(str(file) for file in files if file.is_file())


@cache
def imports(file: str) -> Imports:
    """Read what a Python file imports.

    An import in a function counts only beside tests: there the function is called. The package
    imports in functions what is optional. A fixture of a ``conftest.py`` is for some tests only.
    """
    path = Path(file)
    found = Imports()
    waiting: list[ast.AST] = [ast.parse(path.read_bytes())]
    called = path.is_relative_to(ROOT / "tests") and path.name != "conftest.py"
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.file |= _modules(node, path)
        elif isinstance(node, Function) and node.name.startswith("test_"):
            inner = [node]
            for each in inner:  # which grows
                inner += _statements_in(each)
            nodes = [each for each in inner if isinstance(each, ast.Import | ast.ImportFrom)]
            found.tests.setdefault(node.name, set()).update(*(_modules(each, path) for each in nodes))
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif isinstance(node, ast.Try) and _is_optional(node):
            waiting += [*node.orelse, *node.finalbody]
        elif called or not isinstance(node, Function):
            waiting += _statements_in(node)
    return found


def _statements_in(node: ast.AST) -> list[ast.AST]:
    """The statements of a statement, and its handlers and cases: no expression has an import."""
    parts = ("body", "orelse", "handlers", "finalbody", "cases")
    return [each for part in parts for each in getattr(node, part, ())]


def _modules(node: ast.Import | ast.ImportFrom, path: Path) -> set[str]:
    """The modules that a statement imports; what it takes from a module may be one too."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    folder = path.parents[node.level - 1].relative_to(ROOT).parts if node.level else ()
    module = ".".join((*folder, *filter(None, [node.module])))
    return {f"{module}.{alias.name}" for alias in node.names}


def _is_optional(node: ast.Try) -> bool:
    """Whether a failed import is caught, and the file goes on without."""
    return any(
        handler.type is not None
        and "ImportError" in ast.unparse(handler.type)
        and not any(isinstance(each, ast.Raise) for each in ast.walk(handler))
        for handler in node.handlers
    )


def _examples(path: Path) -> set[str]:
    """The modules that the doctests of a file import."""
    text = path.read_text()
    if ">>>" not in text:
        return set()
    if path.suffix == ".py":
        documented = ast.Module | ast.ClassDef | Function
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
        text = "\n\n".join(ast.get_docstring(node) or "" for node in nodes)
    examples = doctest.DocTestParser().get_examples(text, str(path))
    statements = [node for example in examples for node in ast.walk(ast.parse(example.source))]
    return set().union(
        *(_modules(node, path) for node in statements if isinstance(node, ast.Import | ast.ImportFrom))
    )


def files_with_tests() -> list[Path]:
    """The files that have tests or doctests."""
    documented = [*(ROOT / "lccodec").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    with_examples = [path for path in documented if ">>>" in path.read_text()]
    tests = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "benchmarks").glob("test_*.py")]
    return sorted([*tests, *with_examples])


def pytest_report_header() -> list[str]:
    """Say in one line how many files are left out, for want of what, and what brings all."""
    left_out = [lacking for file in files_with_tests() if missing() and (lacking := needed(file) & missing())]
    if not left_out:
        return []
    wanted = ", ".join(sorted(set().union(*left_out)))
    brings = f"pip install -e '.[{','.join(EXTRAS)}]'"
    return [f"left out: {len(left_out)} files with tests, for want of {wanted}; {brings} brings all"]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file that needs what is missing, and a folder whose ``conftest.py`` does.

    With ``--left-out``, also a file that has none of the tests.
    """
    left_out = config.getoption("left_out") and collection_path.is_file()
    if not (missing() or left_out) or not collection_path.is_relative_to(ROOT):
        return None
    file = collection_path / "conftest.py" if collection_path.is_dir() else collection_path
    if file.suffix not in {".py", ".md"} or not file.is_file():
        return None
    return True if needed(file) & missing() or (left_out and not has_left_out(file)) else None


@cache
def has_left_out(path: Path) -> bool:
    """Whether a file may have tests that README's second command leaves out; it is not run."""
    files = [path, *path.parent.glob("conftest.py")] if path.parent != ROOT / "tests" else [path]
    if any(word in file.read_text() for file in files for word in ("slow", "browser", "parametrize")):
        return True
    inner = imports(str(path)).tests.values() if path.suffix == ".py" else ()
    packages = {package for module in set().union(*inner) if (package := package_of(module))}
    return not needed(path) | packages <= extras()["test"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out a test whose function imports what is missing; with ``--left-out``, all others."""
    if config.getoption("left_out"):
        unwanted = {item for item in items if not _is_left_out(item)}
    else:
        unwanted = {item for item in items if _needed_in(item) & missing()}
    config.hook.pytest_deselected(items=list(unwanted))
    items[:] = [item for item in items if item not in unwanted]


def _is_left_out(item: pytest.Item) -> bool:
    """Whether README's second command leaves a test out: it has the extra ``test`` alone."""
    return is_apart(item) or not needed(item.path) | _needed_in(item) <= extras()["test"]


def _needed_in(item: pytest.Item) -> set[str]:
    """The packages that a test's own function imports."""
    if not isinstance(item, pytest.Function):
        return set()
    modules = imports(str(item.path)).tests.get(item.originalname, set())
    return {package for module in modules if (package := package_of(module))}

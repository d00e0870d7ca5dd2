"""CI runs README's commands; what a test file needs is found by what it imports."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from .support import requirements
from .support.programs import run_program
from .support.requirements import ROOT, extras, imports, needed

#: Frameworks that are large, or need more than Python: README's second command works without.
LARGE = {"torch", "jax", "flax", "optax", "orbax-checkpoint", "lightning", "transformers", "accelerate"}


def commands() -> list[str]:
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()]


def test_readme_has_two_commands_and_ci_takes_them_from_there() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    (taken,) = re.findall(r"^    grep -F '(.*)' README\.md$", script, re.MULTILINE)
    assert [line for line in (ROOT / "README.md").read_text().splitlines() if taken in line] == commands()
    first, second = commands()
    assert first.endswith(".venv/bin/lccodec demo")
    assert second.endswith("pip install -e '.[test]' && .venv/bin/pytest")
    assert not [command for command in commands() if command in script]


def test_the_second_command_installs_no_framework_and_no_browser() -> None:
    assert not extras()["test"] & {*LARGE, *requirements.packages("browser"), *requirements.packages("lint")}
    assert extras()["adapters"] >= LARGE


@pytest.mark.parametrize(
    ("file", "packages"),
    [
        *((f"tests/{name}.py", set()) for name in ("chain/test_chain", "exchange/test_rules")),
        *((name, set()) for name in ("tests/cli/test_save.py", "lccodec/exchange/rules.py")),
        ("tests/adapters/torch/test_states.py", {"torch"}),
        ("tests/adapters/test_orbax.py", {"flax", "jax", "optax", "orbax-checkpoint"}),
        ("lccodec/adapters/dcp.py", {"torch"}),
        ("lccodec/exchange/__init__.py", {"torch", "jax", "flax"}),
        ("docs/saving.md", set()),
    ],
)
def test_what_of_the_frameworks_a_file_needs(file: str, packages: set[str]) -> None:
    """As a module, by a shared module, by the folder above, by a doctest."""
    assert needed(ROOT / file) & extras()["adapters"] - extras()["test"] == packages


@pytest.mark.parametrize(
    ("text", "file", "test"),
    [
        ("import torch.nn as nn", {"torch.nn"}, set()),
        ("from torch import nn", {"torch.nn"}, set()),
        ("if TYPE_CHECKING:\n    import torch", set(), set()),
        ("try:\n    import jax\nexcept ImportError:\n    jax = None", set(), set()),
        ("try:\n    import jax\nexcept ImportError as error:\n    raise Missing from error", {"jax"}, set()),
        ("def test_one():\n    import torch", set(), {"torch"}),
        ("class TestAll:\n    def test_one(self):\n        from torch import nn", set(), {"torch.nn"}),
        ("from . import jax\nfrom .torch import states", {"lccodec.jax", "lccodec.torch.states"}, set()),
        ("def lazy():\n    import torch", set(), set()),
    ],
)
def test_what_a_statement_imports(
    text: str, file: set[str], test: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "ROOT", tmp_path)
    place = tmp_path / "lccodec" / "module.py"
    place.parent.mkdir()
    place.write_text(text)
    found = imports(str(place))
    assert (found.file, set().union(*found.tests.values())) == (file, test)


def test_what_is_missing_is_left_out_and_told(
    monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.setattr(requirements, "missing", lambda: {"torch"})
    (line,) = requirements.pytest_report_header()
    count = sum("torch" in needed(file) for file in requirements.files_with_tests())
    assert line.startswith(f"left out: {count} files with tests, for want of torch; pip install -e")
    assert count > 30
    for path, left_out in (
        ("tests/adapters/torch/test_states.py", True),
        ("tests/chain/test_chain.py", None),
        ("lccodec/adapters/torch/states.py", True),
        ("docs/frameworks.md", True),
        ("docs/saving.md", None),
        ("tests/chain", None),
    ):
        assert requirements.pytest_ignore_collect(ROOT / path, pytestconfig) is left_out
    monkeypatch.setattr(requirements, "missing", set)
    assert requirements.pytest_report_header() == []
    path = ROOT / "tests/adapters/torch/test_states.py"
    assert requirements.pytest_ignore_collect(path, pytestconfig) is None


@pytest.mark.slow
def test_what_is_missing_is_left_out_of_every_call(tmp_path: Path) -> None:
    """Also of one that names no test: ``pytest docs``."""
    hidden = "from tests.support import requirements\nrequirements.missing = lambda: {'torch'}\n"
    (tmp_path / "hidden.py").write_text(hidden)
    program = "import pytest; pytest.console_main()"
    words = ["-p", "hidden", "-p", "no:cacheprovider", "--numprocesses=0", "--collect-only", "-q"]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = run_program(program, *words, "docs", cwd=ROOT, env=environment)
    collected = {line.partition("::")[0] for line in done.stdout.splitlines()}
    assert "docs/saving.md" in collected
    assert "docs/frameworks.md" not in collected


@pytest.mark.parametrize(
    ("file", "some"),
    [
        ("tests/chain/save/test_killed.py", True),  # slow
        ("tests/report/test_names.py", True),  # in a browser
        ("tests/adapters/torch/test_states.py", True),  # of a framework
        ("tests/cli/test_program.py", True),  # in one test
        ("lccodec/adapters/dcp.py", True),  # in a doctest
        ("tests/cli/test_listing.py", False),
        ("lccodec/entropy/runs.py", False),
    ],
)
def test_files_without_a_test_that_is_left_out_are_not_collected_for_them(file: str, some: bool) -> None:
    assert requirements.has_left_out(ROOT / file) == some


def test_a_file_that_misses_anything_else_is_an_error() -> None:
    assert requirements.package_of("torch.nn") == "torch"
    assert requirements.package_of("torhc") is None
    assert requirements.package_of("pytest") == "pytest"

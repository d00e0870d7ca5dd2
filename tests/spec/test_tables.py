"""The tables of the specification say what the code does."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from lccodec import constants, errors
from lccodec.constants import ELEMENT_TYPES
from lccodec.errors import DataError
from lccodec.frame.header import FrameHeader

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "lccodec").rglob("*.py"))
RULE = re.compile(r"LCC-[A-Z0-9]+-\d\d")
CONSTANTS = {
    name: value
    for name, value in vars(constants).items()
    if name.isupper() and name not in ("ELEMENT_TYPES", "TYPE_CHECKING")
}


def table(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "spec" / "tables" / f"{name}.json").read_bytes())
    return found


def specification() -> str:
    return (ROOT / "spec" / "SPEC.md").read_text()


#: Names of the classes of errors that have a rule.
DATA_ERRORS = {
    name for name, found in vars(errors).items() if isinstance(found, type) and issubclass(found, DataError)
}


def raised(source: Path) -> set[tuple[str, str]]:
    """The rules of a module with the error classes they are given to."""
    found = set()
    for node in ast.walk(ast.parse(source.read_text())):
        match node:
            case ast.Call(func=ast.Name(id=kind), args=[ast.Constant(value=rule), *_]) if kind in DATA_ERRORS:
                found.add((rule, kind))
    return found


def test_constants() -> None:
    values = {name: value.hex() if isinstance(value, bytes) else value for name, value in CONSTANTS.items()}
    assert table("constants") == values


def test_every_limit_says_what_it_prevents() -> None:
    limits = table("limits")
    assert set(limits) == {name for name in CONSTANTS if name.startswith(("MAX_", "MIN_"))}
    for name, limit in limits.items():
        assert limit["value"] == CONSTANTS[name], name
        assert limit["rule"] in table("rules"), name
        assert limit["prevents"], name


def test_enums() -> None:
    enums = table("enums")
    for prefix, names in (("METHOD_", enums["methods"]), ("STREAM_", enums["stream_forms"])):
        values = {name: value for name, value in CONSTANTS.items() if name.startswith(prefix)}
        assert {prefix + name.upper(): value for name, value in names.items()} == values
    flags = {name: value for name, value in CONSTANTS.items() if name.startswith("FLAG_")}
    assert {f"FLAG_{name.upper()}": value for name, value in enums["frame_flags"].items()} == flags
    for name, method in enums["methods"].items():
        header = FrameHeader(method, ELEMENT_TYPES[-1], False, (), 3)
        assert header.method_name == name


def test_element_types() -> None:
    fields = ("name", "code", "kind", "size", "components", "mantissa")
    types = [{field: getattr(kind, field) for field in fields} for kind in ELEMENT_TYPES]
    assert table("enums")["element_types"] == types
    assert [kind["code"] for kind in types] == list(range(len(types)))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_rule_of_the_code_is_listed(source: Path) -> None:
    rules = table("rules")
    assert set(RULE.findall(source.read_text())) <= set(rules)
    for rule, error in sorted(raised(source)):
        assert error in rules[rule]["errors"], rule


@pytest.mark.slow
def test_every_error_that_is_listed_is_raised() -> None:
    found = set[tuple[str, str]]().union(*map(raised, SOURCES))
    assert len(found) > 50
    listed = {(name, error) for name, rule in table("rules").items() for error in rule["errors"]}
    assert listed == found


def test_every_rule_is_in_the_specification() -> None:
    """And the other way round; each in the section that the table says."""
    rules, text = table("rules"), specification()
    assert set(RULE.findall(text)) == set(rules)
    numbers = re.findall(r"^##+ (\d+(?:\.\d+)?) ", text, re.MULTILINE)
    assert {rule["section"] for rule in rules.values()} <= set(numbers)
    headings = re.split(r"^##+ (\d+(?:\.\d+)?) .*$", text, flags=re.MULTILINE)
    sections = dict(zip(headings[1::2], headings[2::2], strict=True))
    for name, rule in rules.items():
        assert name in sections[rule["section"]], name
        assert 10 < len(rule["rule"]) < 130, name

"""The mutants of a module: its source with one small fault each.

There are four kinds: a ``raise`` is dropped, a clause of a condition is dropped, a bound is off by
one (``<`` for ``<=``), an integer is one more. Messages of errors and annotations have none.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SHOWN = 60  # characters of source in a name
_BOUNDS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}


@dataclass(frozen=True)
class Mutant:
    """One fault in one module."""

    path: str  #: of the module, below the folder of the package
    scope: str  #: the function, class or constant that it is in
    function: str  #: its qualified name; empty outside of all functions
    what: str
    start: int  #: of the bytes of the source that are replaced
    end: int
    replacement: str
    rules: frozenset[str]  #: of the specification, that the function names

    @property
    def name(self) -> str:
        """Of the mutant: the same as long as the text of function and fault does not change."""
        return f"{self.path} {self.scope}: {self.what}"

    @property
    def key(self) -> str:
        """The function, with its module."""
        return f"{self.path} {self.function}"

    def mutated(self, source: bytes) -> bytes:
        """Return the source of the module with the fault."""
        return source[: self.start] + self.replacement.encode() + source[self.end :]


def mutants(root: Path, path: str) -> list[Mutant]:
    """Return the mutants of the module at a path below a folder, in the order of its source."""
    sites = _Sites(path, (root / path).read_bytes())
    return sorted(sites.found, key=lambda mutant: (mutant.start, -mutant.end))


class Source:
    """The source of a module, and where its nodes are."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._starts = [0]  # of the lines
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: Any) -> tuple[int, int]:
        """Return where a node begins and ends, in bytes."""
        start, end = self._starts[node.lineno - 1], self._starts[node.end_lineno - 1]
        return start + node.col_offset, end + node.end_col_offset


class _Sites(ast.NodeVisitor):
    """Finds the mutants of one module."""

    def __init__(self, path: str, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._path = path
        self._source = Source(source)
        self._scope: list[str] = []
        self._above: list[ast.AST] = []
        self._rules: frozenset[str] = frozenset()
        self._names: Counter[tuple[str, str]] = Counter()
        self.visit(ast.parse(source))

    def _offer(self, node: Any, what: str, replacement: str) -> None:
        scope = ".".join(part for part in self._scope if part != "<locals>") or "module"
        inside = self._scope and self._scope[-1] == "<locals>"
        function = ".".join(self._scope[:-1]) if inside else ""
        self._names[scope, what] += 1
        number = self._names[scope, what]
        start, end = self._source.span(node)
        what += f" ({number})" if number > 1 else ""
        self.found.append(Mutant(self._path, scope, function, what, start, end, replacement, self._rules))

    def generic_visit(self, node: ast.AST) -> None:
        """Visit the children of a node."""
        self._above.append(node)
        super().generic_visit(node)
        self._above.pop()

    # --- where no mutants are ---------------------------------------------------------------------

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave out what is written for people."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Leave out the annotation."""
        if node.value is not None:
            self.visit_Assign(ast.Assign([node.target], node.value))

    def visit_Assign(self, node: ast.Assign) -> None:
        """Take the name of a constant for what its value is in."""
        if "<locals>" in self._scope:
            self.generic_visit(node)
            return
        self._scope.append(ast.unparse(node.targets[0]))
        self.generic_visit(node)
        self._scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Leave out decorators and annotations."""
        if "<locals>" not in self._scope:
            text = self._source.text[slice(*self._source.span(node))].decode()
            self._rules = frozenset(re.findall(r"LCC-[A-Z0-9]+-[0-9]+", text))
        self._scope.append(node.name)
        self._visit_all([*node.args.defaults, *filter(None, node.args.kw_defaults)])
        self._scope.append("<locals>")
        self._visit_all(node.body)
        del self._scope[-2:]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Leave out decorators."""
        self._scope.append(node.name)
        self._visit_all(node.body)
        self._scope.pop()

    def _visit_all(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Leave out -1 where NumPy finds a size by itself: it takes any number below 0."""
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "reshape"):
            self.generic_visit(node)
            return
        sizes = [size for size in node.args if ast.unparse(size) != "-1"]
        self.generic_visit(ast.Call(node.func, sizes, node.keywords))

    # --- faults -----------------------------------------------------------------------------------

    def visit_Raise(self, node: ast.Raise) -> None:
        """Drop it."""
        texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
        rules = [text for text in texts if isinstance(text, str) and text.startswith("LCC-")]
        what = rules[0] if rules else _short(node.exc) if node.exc else ""
        self._offer(node, f"no raise {what}".rstrip(), "pass")

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Drop each clause."""
        for place, clause in enumerate(node.values):
            others = node.values[:place] + node.values[place + 1 :]
            left = others[0] if len(others) == 1 else ast.BoolOp(node.op, others)
            self._offer(node, f"without `{_short(clause)}`", f"({ast.unparse(left)})")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """Drop each condition."""
        for condition in node.ifs:
            self._offer(condition, f"without `if {_short(condition)}`", "True")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Drop the first or the last of several comparisons; move each bound by one."""
        if len(node.ops) > 1:
            sides = [node.left, *node.comparators]
            for dropped, kept in ((slice(2), slice(1, None)), (slice(-2, None), slice(-1))):
                operators = node.ops[1:] if kept.start else node.ops[:-1]
                left = ast.Compare(sides[kept][0], operators, sides[kept][1:])
                one = ast.Compare(sides[dropped][0], [node.ops[0 if kept.start else -1]], sides[dropped][1:])
                self._offer(node, f"without `{_short(one)}`", f"({ast.unparse(left)})")
        for place, operator in enumerate(node.ops):
            if type(operator) in _BOUNDS:
                changed: list[ast.cmpop] = [*node.ops]
                changed[place] = _BOUNDS[type(operator)]()
                moved = ast.unparse(ast.Compare(node.left, changed, node.comparators))
                self._offer(node, f"`{_short(node)}` as `{_short(moved)}`", f"({moved})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Add one to an integer."""
        if type(node.value) is int:
            above = self._above[-1]
            about = f" in `{_short(above)}`" if isinstance(above, ast.expr) else ""
            self._offer(node, f"{node.value + 1} for {node.value}{about}", str(node.value + 1))


def _short(node: Any) -> str:
    """Return the source of a node in one line, or the beginning of it."""
    text = " ".join((node if isinstance(node, str) else ast.unparse(node)).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."

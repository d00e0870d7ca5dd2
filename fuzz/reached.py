"""Which answers reach which mutants: a copy of a decoder tells what it executes.

A mutant in a condition is reached where it changes whether that holds, any other where its
statement is executed. An answer that does not reach a mutant is the same with it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from faulty import replace
from sites import Mutant, Source

#: Calls without an effect: a condition that has no others may be looked at again.
_PURE = {
    *("all", "any", "bool", "bytes", "enumerate", "float", "int", "is_integer", "isinstance", "len", "list"),
    *("map", "max", "min", "pairwise", "prod", "range", "set", "sorted", "str", "sum", "tuple", "zip"),
    *("count", "fullmatch", "get", "isfinite", "items", "startswith", "values"),
}


class Reached:
    """A copy of a decoder in this process, and which of its mutants were reached.

    Modules that use it, by the names `users`, are imported again.
    """

    def __init__(self, package: Path, mutants: Sequence[Mutant], *users: str) -> None:
        self._mutants = mutants
        #: What tells of each mutant: its place among them in a condition, or else the number of its
        #: statement. Those outside of all functions have none.
        self._number_of: dict[int, int] = {}
        self._statements = count(len(mutants))
        self._reached: set[int] = set()
        self._conditions: dict[int, list[int]] = {}
        self._left: dict[int, list[int]] = {}
        replace(package, {path: self._instrumented(path) for path in sorted(package.glob("*.py"))}, *users)
        self.begin()
        vars(builtins).update(_reached=self._reached.add, _holds=self._holds)

    def begin(self) -> None:
        """Forget what was reached."""
        self._reached.clear()
        self._left = {number: [*places] for number, places in self._conditions.items()}

    @property
    def places(self) -> list[int]:
        """Places of the mutants that were reached, and of those that may have been."""
        every = range(len(self._mutants))
        return [place for place in every if self._number_of.get(place) in {None, *self._reached}]

    def _instrumented(self, path: Path) -> bytes:
        source = Source(path.read_bytes())
        every = enumerate(self._mutants)
        own = {place: mutant for place, mutant in every if mutant.path == path.name and mutant.function}
        tree = ast.parse(source.text)
        for node in [*ast.walk(tree)]:
            if isinstance(node, ast.If | ast.While | ast.IfExp):
                node.test = self._condition(node.test, source, own)
            elif isinstance(node, ast.comprehension):
                node.ifs = [self._condition(test, source, own) for test in node.ifs]
        spans: list[tuple[int, int, int]] = []
        for node in [*ast.walk(tree)]:
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list) and not isinstance(node, ast.Module | ast.ClassDef):
                    told: list[ast.stmt] = []
                    for statement in block:
                        spans.append((*source.span(statement), next(self._statements)))
                        told += [*ast.parse(f"_reached({spans[-1][2]})").body, statement]
                    setattr(node, name, told)
        for place, mutant in own.items():
            around = [span for span in spans if span[0] <= mutant.start and mutant.end <= span[1]]
            if around:  # not the default of a parameter
                self._number_of.setdefault(place, min(around, key=lambda span: span[1] - span[0])[2])
        return ast.unparse(ast.fix_missing_locations(tree)).encode()

    def _condition(self, test: ast.expr, source: Source, own: dict[int, Mutant]) -> ast.expr:
        """Return a condition that is looked at with each of its mutants."""
        calls = [node.func for node in ast.walk(test) if isinstance(node, ast.Call)]
        if not all(getattr(call, "id", getattr(call, "attr", None)) in _PURE for call in calls):
            return test
        start, end = source.span(test)
        before, behind = source.text[start:], source.text[:end]
        texts = {
            place: before[: mutant.start - start] + mutant.replacement.encode() + behind[mutant.end :]
            for place, mutant in own.items()
            if start <= mutant.start and mutant.end <= end and place not in self._number_of
        }
        if not texts:
            return test
        number = min(texts)
        self._conditions[number] = [*texts]
        self._number_of.update((place, place) for place in texts)
        changed = ", ".join(f"{place}: lambda: ({text.decode()})" for place, text in texts.items())
        return ast.parse(f"_holds({number}, ({ast.unparse(test)}), {{{changed}}})", mode="eval").body

    def _holds(self, number: int, value: Any, changed: dict[int, Callable[[], Any]]) -> Any:
        """Return the value of a condition, and look at what its mutants make of it."""
        for place in [*self._left[number]]:
            try:
                differs = bool(changed[place]()) is not bool(value)
            except Exception:
                differs = True
            if differs:
                self._reached.add(place)
                self._left[number].remove(place)
        return value

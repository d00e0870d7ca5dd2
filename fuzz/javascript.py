"""The mutants of ``spec/reader``: its modules in JavaScript with one small fault each.

There are four kinds, as in ``sites.py``: a ``throw`` is dropped, a clause of a condition is
dropped, a bound is off by one, an integer is one more. They are found by their text: so comments
and texts have none, and a clause is what stands between brackets and operators of one level.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sites import Mutant

READER = Path(__file__).parents[1] / "spec" / "reader"
#: What shows files in a browser, and what only it needs.
PAGE = {"open.js", "worker.js", "statistics.js", "answer.js", "answers.js", "index.js"}
CPU_SECONDS = 8  # for all answers; without a fault they take 1.5
SECONDS = 90  # for an answer, on a busy machine

_SKIPPED = re.compile(
    r"//[^\n]*|/\*.*?\*/|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`"
    r"|/(?:[^/\\\n\[]|\\.|\[[^\]]*\])+/[a-z]*(?=[.,)\]; ])",
    re.DOTALL,
)
_THROW = re.compile(r"throw new \w+\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\);")
_BOUND = re.compile(r"(?<=\s)(<=|>=|<|>)(?=\s)")
_INTEGER = re.compile(r"(?<![\w.])(0x[0-9a-fA-F]+|\d+)(n?)(?![\w.])")
_CLAUSE = re.compile(r"\s+(&&|\|\|)\s+")
_BEGINNING = re.compile(r"(?:&&|\|\||return|=>|[;,?:]|(?<![=!<>])=)(?=\s)")
_MOVED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


class Javascript:
    """The questions about all vectors, to a copy of the reader. A context manager."""

    def __init__(self) -> None:
        sys.path[:0] = [str(READER.parent / "conformance")]
        from corpus import LEVELS, cases
        from run import Program, Silent

        if shutil.which("node") is None:
            raise ValueError("the reader is asked by Node, which is not here")
        self._program, self._silent, self._level = Program, Silent, max(LEVELS)
        self._directory = tempfile.TemporaryDirectory()
        self._copy = Path(self._directory.name, "reader")
        shutil.copytree(READER, self._copy)
        (questions := Path(self._directory.name, "questions")).mkdir()
        self._cases = list(cases(questions))
        self._order = sorted(range(len(self._cases)), key=lambda place: cost(self._cases[place]))
        self._asked: dict[str, set[int]] = {}  # the questions that run each mutant, by their places

    def __enter__(self) -> Javascript:
        return self

    def __exit__(self, *_: object) -> None:
        self._directory.cleanup()

    def look(self, chosen: Sequence[Mutant]) -> None:
        """Find out which questions run the code of each mutant; `reached.js` tells."""
        questions = [json.dumps({"id": case.name, **case.question}) for case in self._cases]
        # What is optimized is not counted.
        command = ["node", "--no-opt", str(READER.parents[1] / "fuzz" / "reached.js"), str(self._copy)]
        done = subprocess.run(command, input="\n".join(questions), capture_output=True, text=True, check=True)
        sources = {path.name: path.read_bytes() for path in READER.glob("*.js")}
        # The first and last character of each: they may lie in two blocks.
        ends = [
            {len(sources[one.path][:end].decode()) for end in (one.start, max(one.start, one.end - 1))}
            for one in chosen
        ]
        reached: list[set[int]] = [set() for _ in chosen]
        for place, line in enumerate(done.stdout.splitlines(), -1):
            ran = {module: _that_ran(blocks) for module, blocks in json.loads(line).items()}
            for found, mutant, its in zip(reached, chosen, ends, strict=True):
                if any(ran.get(mutant.path, b"")[end : end + 1] == b"\1" for end in its):
                    found.update([place] if place >= 0 else self._order)  # before the first question: all
        self._asked = {one.name: found for one, found in zip(chosen, reached, strict=True)}

    def noticed(self, mutant: Mutant) -> str | None:
        """Return the vector that notices a mutant; None if it survives."""
        path = self._copy / mutant.path
        source = (READER / mutant.path).read_bytes()
        path.write_bytes(mutant.mutated(source))
        try:
            limited = ["sh", "-c", f'ulimit -t {CPU_SECONDS}; exec node "$0"', str(self._copy / "answer.js")]
            with self._program(limited, SECONDS) as program:
                asked = self._asked.get(mutant.name, set(self._order))
                for place in filter(asked.__contains__, self._order):
                    if self._is_wrong(program, place):
                        self._order.remove(place)
                        self._order.insert(0, place)
                        return str(self._cases[place].name)
        finally:
            path.write_bytes(source)
        return None

    def _is_wrong(self, program: Any, place: int) -> bool:
        case = self._cases[place]
        try:
            return case.problem(program.ask(case.name, case.question), self._level) is not None
        except self._silent:
            return True


def reader_mutants() -> Iterator[Mutant]:
    """Yield the mutants of all modules that an answer needs."""
    for path in sorted(READER.glob("*.js")):
        if path.name not in PAGE:
            yield from faults(path.name, path.read_text(encoding="utf-8"))


def _that_ran(blocks: list[tuple[int, int, int]]) -> bytearray:
    """Return a 1 for each character of a module whose innermost block ran, otherwise 0."""
    ran = bytearray(max(end for _, end, _ in blocks))
    for start, end, count in sorted(blocks, key=lambda block: block[0] - block[1]):
        ran[start:end] = bytes([count > 0]) * (end - start)
    return ran


def cost(case: Any) -> int:
    """Return about how long an answer takes: its values where they are stored, its bytes."""
    path = Path(next(iter(case.question.values())))
    files = path.iterdir() if path.is_dir() else [path, *([case.stored] if case.stored else ())]
    unknown = 1 << 20 if "frame" in case.question and case.stored is None and case.rule is None else 0
    return unknown + sum(file.stat().st_size for file in files if file.is_file())


def faults(path: str, source: str) -> list[Mutant]:
    """Return the mutants of a module."""
    code = _SKIPPED.sub(
        lambda found: re.sub(r"[^\n]", " " if found[0][:2] in ("//", "/*") else "_", found[0]), source
    )
    found: list[Mutant] = []
    names: Counter[tuple[str, str]] = Counter()

    def offer(start: int, end: int, what: str, replacement: str) -> None:
        scope = _function_at(source, start)
        names[scope, what] += 1
        number = names[scope, what]
        what += f" ({number})" if number > 1 else ""
        first, last = len(source[:start].encode()), len(source[:end].encode())
        found.append(Mutant(path, scope, "", what, first, last, replacement, frozenset()))

    for at in _THROW.finditer(code):
        rule = re.search(r"LCC-[A-Z0-9]+-\d+", source[at.start() : at.end()])
        offer(at.start(), at.end(), f"no throw {rule[0] if rule else ''}".rstrip(), ";")
    for at in _BOUND.finditer(code):
        around = _line(source, at.start())
        offer(at.start(), at.end(), f"`{_MOVED[at[0]]}` for `{at[0]}` in `{around}`", _MOVED[at[0]])
    for at in _INTEGER.finditer(code):
        value = str(int(at[1], 0) + 1) + at[2]
        offer(at.start(), at.end(), f"{value} for {at[0]} in `{_line(source, at.start())}`", value)
    for at in _CLAUSE.finditer(code):
        before, behind = _left(code, at.start()), _right(code, at.end())
        offer(before, at.end(), f"without `{_short(source[before : at.start()])}`", "")
        offer(at.start(), behind, f"without `{_short(source[at.end() : behind])}`", "")
    return found


def _left(code: str, place: int) -> int:
    """Return where the clause before a place begins."""
    depth = 0
    for at in range(place - 1, -1, -1):
        depth += {")": 1, "]": 1, "}": 1, "(": -1, "[": -1, "{": -1}.get(code[at], 0)
        step = _BEGINNING.match(code, at)
        if depth < 0 or (depth == 0 and step is not None):
            start = step.end() if step is not None else at + 1
            return start + len(code[start:place]) - len(code[start:place].lstrip())
    return 0


def _right(code: str, place: int) -> int:
    """Return where the clause behind a place ends."""
    depth = 0
    for at in range(place, len(code)):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(code[at], 0)
        if depth < 0 or (depth == 0 and re.match(r"\s+(&&|\|\||\?)\s|[;,]", code[at : at + 99])):
            return at
    return len(code)


def _function_at(source: str, place: int) -> str:
    names = re.findall(r"^(?:export )?(?:function\*? |class |const )(\w+)", source[:place], re.MULTILINE)
    return str(names[-1]) if names else "module"


def _line(source: str, place: int) -> str:
    start = source.rfind("\n", 0, place) + 1
    return _short(source[start : source.find("\n", place)])


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 70 else f"{text[:67]}..."

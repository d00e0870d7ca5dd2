"""Show what vectors and fuzzing reach of the parsers: ``python fuzz/covered.py [--seconds N]``.

For each module that reads untrusted bytes it prints the share of the lines that were run, and the
others, after all vectors and so many seconds of each target. A function that was not entered is
left out: it writes, or serves a verb that no target has.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
from mutants import PACKAGE, READERS, ROOT
from mutation import mutate
from run import HERE, TARGETS, inputs_of, limit_resources

#: Modules that read files of other formats.
FOREIGN = {
    "adapters": ["npz", "safetensors", "seals"],
    "adapters/files": ["formats", "header", "shards", "structure", "zip_archive"],
    "adapters/torch": ["archive"],
}


def run_vectors() -> None:
    """Answer the questions about all vectors, and validate the files of those."""
    import lccodec

    sys.path.insert(0, str(ROOT / "spec" / "conformance"))
    corpus, answering = (importlib.import_module(name) for name in ("corpus", "with_lccodec"))
    with tempfile.TemporaryDirectory() as directory:
        for case in corpus.cases(Path(directory)):
            answering.answer(case.question)
            if "file" in case.question:
                lccodec.validate(case.question["file"], deep=True)


def fuzz(name: str, seconds: float) -> int:
    """Run a target for a while; return how many inputs were run."""
    target: Any = importlib.import_module(f"target_{name}")
    rng, inputs = random.Random(1), inputs_of(name, target)
    small = [data for data in inputs if len(data) < 1 << 12]
    for data in inputs:
        target.check(data)
    ended, runs = time.monotonic() + seconds, len(inputs)
    while time.monotonic() < ended:
        target.check(mutate(rng.choice(small), small, target.TOKENS, rng))
        runs += 1
    return runs


def counted(path: Path, statements: set[int], missing: set[int]) -> tuple[set[int], set[int]]:
    """Return the statements, and those not run, without functions that were not entered."""
    for function in _functions(ast.parse(path.read_text(encoding="utf-8"))):
        body = {line for line in statements if function.body[0].lineno <= line <= (function.end_lineno or 0)}
        if body <= missing:
            statements, missing = statements - body, missing - body
    return statements, missing


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10, help="of each target")
    arguments = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.path[:0] = [str(HERE), str(ROOT)]
    warnings.simplefilter("ignore")
    modules = {**READERS, **FOREIGN}
    paths = [PACKAGE / folder / f"{name}.py" for folder, own in modules.items() for name in own]
    measured = coverage.Coverage(data_file=None, config_file=False, include=[str(path) for path in paths])
    measured.start()
    run_vectors()
    limit_resources()
    runs = {name: fuzz(name, arguments.seconds) for name in TARGETS}
    measured.stop()
    print("all vectors, and", ", ".join(f"{count:,} of {name}" for name, count in runs.items()))
    for path in paths:
        _, lines, _, missing, _ = measured.analysis2(str(path))
        statements, left = counted(path, set(lines), set(missing))
        share, places = 100 * (1 - len(left) / max(len(statements), 1)), sorted(left)
        print(f"{share:6.1f} %  {path.relative_to(PACKAGE)}", *places)


if __name__ == "__main__":
    main()

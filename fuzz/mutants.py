"""Mutation testing of what reads stored bytes: ``python fuzz/mutants.py [--of WHAT] [--sample N]``.

Each mutant (``sites.py``) answers the questions of ``spec/conformance`` in a process of its own, up
to its first wrong answer. Those that get all of them right survive the vectors. ``README.md`` names
each, and says why it may: it is equivalent, or a test notices it. With ``--tests``, these tests
run, and others are looked for where none is named.

Besides the package there are ``spec/decoder``, the decoders of ``wrong.py``, and ``spec/reader`` in
JavaScript (``javascript.py``), which needs Node and has no tests.

The exit status is 1 if a survivor is not named, or a named one no longer survives.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

from faulty import CPU_SECONDS, allow, in_a_child, install
from javascript import Javascript, cost, reader_mutants
from reached import Reached
from sites import Mutant, mutants
from wrong import DECODER, wrong_decoders

# Children are forked, and a thread that makes compiled loops ready is not.
os.environ["LCCODEC_KERNELS"] = "numpy"

HERE = Path(__file__).parent
ROOT = HERE.parent
PACKAGE = ROOT / "lccodec"
TABLE = HERE / "README.md"
#: Modules that read stored bytes. Of each, the functions count that an answer needs, and the
#: constants in them: the others write, or read only a part of a file.
READERS = {
    ".": ["constants", "cursor"],
    "loops": ["representatives", "search", "sums"],
    "entropy": [
        "classes",
        "lanes",
        "runs",
        "split",
        "stream_reader",
    ],
    "frame": ["codebook", "content", "decode", "header", "planes", "smooth"],
    "container": [
        "bundle",
        "checkpoint",
        "manifest",
        "parity",
        "piece_table",
        "tree",
    ],
    "parity": ["__init__"],
    "chain/read": ["links", "replay"],
    "chain/store": ["directory", "store"],
}
TEST_SECONDS = 300  # for a file or a folder of tests
TRACE_SECONDS = 120  # for all vectors, with every call or statement looked at
MANY = 100  # mutants, for which it pays to look first which answers reach them

#: Answers need these, too, to describe what was read.
WRITERS = ("_Flattener", "flatten")
CALLERS_FAULT = "no raise ArgumentError"  # no stored byte leads there


# --- the vectors ----------------------------------------------------------------------------------


class Vectors:
    """The questions about all vectors. A context manager: some are about copies, which it removes.

    A mutant is asked those that lead to its function. First come those about rules that the
    function names, then those that noticed the last mutants: neighbours are noticed by the same.

    Attributes
    ----------
    asked
        The questions that lead to each function, or reach each mutant, by their places.
    names
        All names in these functions.
    """

    def __init__(self, package: Path, command: str) -> None:
        sys.path[:0] = [str(ROOT), str(ROOT / "spec" / "conformance")]
        self._package, self._command = package, command
        from corpus import LEVELS, VECTORS, cases

        self._directory = tempfile.TemporaryDirectory()
        (questions := Path(self._directory.name, "questions")).mkdir()
        tempfile.tempdir = self._directory.name  # what a child leaves goes with it
        self._cases = list(cases(questions))
        self._level = max(LEVELS)
        entries = json.loads((VECTORS / "manifest.json").read_bytes())
        self._errors = {entry["name"]: entry.get("error") for entry in entries}
        self._order = list(range(len(self._cases)))
        self._order.sort(key=lambda place: cost(self._cases[place]))
        self._answering()  # children have it, and all that it imports, from the beginning
        self.asked: dict[str, list[int]] = {}
        self.names: list[str] = []
        if package == PACKAGE:
            self.asked, self.names = in_a_child(self._traced, TRACE_SECONDS)

    def __enter__(self) -> Vectors:
        return self

    def __exit__(self, *_: object) -> None:
        tempfile.tempdir = None
        self._directory.cleanup()

    def look(self, chosen: Sequence[Mutant]) -> None:
        """Find out which questions reach each mutant of a decoder."""
        self.asked = in_a_child(partial(self._reached, chosen), TRACE_SECONDS)

    def noticed(self, mutant: Mutant | None) -> str | None:
        """Return what notices a mutant: a vector, or "limits"; None if it survives."""
        place = in_a_child(lambda: self._first_wrong(mutant))
        if isinstance(place, int):
            self._order.remove(place)
            self._order.insert(0, place)
            place = self._cases[place].name
        return None if place is None else str(place)

    def _first_wrong(self, mutant: Mutant | None) -> int | str | None:
        gc.disable()
        if mutant is not None:
            install(mutant, self._package, self._command)
        try:
            answering = self._answering()
        except Exception:
            return "import"
        first = [place for place in self._order if mutant and self._cases[place].rule in mutant.rules]
        asked = set(self._order)
        if mutant is not None:
            asked &= set(self.asked.get(mutant.name, self.asked.get(mutant.key, self._order)))
        for place in dict.fromkeys([*first, *self._order]):
            if place not in asked:
                continue
            allow(CPU_SECONDS)
            if self._is_wrong(answering, place):
                return place
        return None

    def _is_wrong(self, answering: Any, place: int) -> bool:
        case = self._cases[place]
        try:
            answer = answering.answer(case.question)
            # Of what is made, no entry tells the class of the error.
            error = self._errors.get(case.name.partition("@")[0], answer.get("error"))
            if case.problem(answer, self._level) or answer.get("error", error) != error:
                return True
            if self._package != PACKAGE:
                return False
            valid = case.rule is None and "file" in case.question
            if case.may_read or valid:  # a Validator sees the fault, and none where there is none
                path = next(iter(case.question.values()))
                problems = answering.lccodec.validate(path, deep=case.may_read)
                return {problem.rule for problem in problems} != ({case.rule} - {None})
        except Exception:
            return True
        return False

    def _traced(self) -> tuple[dict[str, list[int]], list[str]]:
        """Return the questions that lead to each function, and the names in all functions."""
        asked: dict[str, list[int]] = {}
        names: set[str] = set()
        inside = f"{self._package}{os.sep}"

        def called(frame: FrameType, event: str, _: object) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename.startswith(inside):
                function = f"{code.co_filename.removeprefix(inside)} {code.co_qualname}"
                if (places := asked.setdefault(function, []))[-1:] != [place]:
                    places.append(place)
                names.update(code.co_names)

        answering, wrong = self._answering(), []
        sys.setprofile(called)
        for place, case in enumerate(self._cases):
            for cached in _caches(self._package.name, len(sys.modules)):
                cached.cache_clear()  # else such a function is called for the first question only
            if self._is_wrong(answering, place):
                wrong.append(case.name)
        sys.setprofile(None)
        if wrong:
            raise ValueError(f"wrong without any fault: {wrong}")
        return asked, sorted(names)

    def _reached(self, chosen: Sequence[Mutant]) -> dict[str, list[int]]:
        """Return the questions that reach each mutant, by its name."""
        reached = Reached(self._package, chosen, self._command)
        answering = self._answering()
        asked: dict[str, list[int]] = {mutant.name: [] for mutant in chosen}
        for place in range(len(self._cases)):
            reached.begin()
            if self._is_wrong(answering, place):
                raise ValueError(f"wrong without any fault: {self._cases[place].name}")
            for number in reached.places:
                asked[chosen[number].name].append(place)
        return asked

    def _answering(self) -> Any:
        answering = importlib.import_module(self._command)
        if self._package == PACKAGE:
            warnings.simplefilter("ignore", answering.lccodec.LccodecWarning)
        return answering


@cache
def _caches(package: str, _: int) -> list[Any]:
    """Return the functions of a package that keep their results; of so many modules."""
    own = [module for name, module in sys.modules.items() if name.startswith(f"{package}.")]
    return [value for module in own for value in vars(module).values() if hasattr(value, "cache_clear")]


def readers(vectors: Vectors) -> list[Mutant]:
    """Return the mutants of what reads stored bytes."""

    def is_needed(mutant: Mutant) -> bool:
        if mutant.scope.split(".", maxsplit=1)[0] in WRITERS or mutant.what.startswith(CALLERS_FAULT):
            return False
        if mutant.function:
            return mutant.key in vectors.asked
        return mutant.scope.rsplit(".", maxsplit=1)[-1] in {*vectors.names, "module"}

    paths = [Path(folder, f"{name}.py").as_posix() for folder, own in READERS.items() for name in own]
    return [mutant for path in paths for mutant in mutants(PACKAGE, path) if is_needed(mutant)]


# --- the tests ------------------------------------------------------------------------------------


def noticing_test(mutant: Mutant, named: str | None, package: Path) -> str | None:
    """Return the file or folder of tests that notices a mutant: the one that is named, or any."""
    near = _near(mutant) if package == PACKAGE else ["tests/spec/test_decoder.py"]
    for test in [named] if named else near:
        if in_a_child(partial(_fails, mutant, test, package), TEST_SECONDS) is not False:
            return test
    return None


def _fails(mutant: Mutant, test: str, package: Path) -> bool:
    import pytest

    os.chdir(ROOT)
    install(mutant, package)
    # Plain asserts: for those of its own, pytest would read modules again, without the fault.
    options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--assert=plain", "-m", "not browser"]
    return pytest.main([*options, test]) == pytest.ExitCode.TESTS_FAILED


def _near(mutant: Mutant) -> list[str]:
    """Return the tests that may notice a mutant, the nearest first."""
    path = Path(mutant.path)
    folder = Path("tests") / path.parent
    own = [folder / f"test_{path.stem}.py", Path(PACKAGE.name, path)]
    near = [*own, folder, *folder.parents[:-2], Path("tests/spec"), Path("tests/test_fuzz.py")]
    return [str(test) for test in near if (ROOT / test).exists()]


# --- what README.md says -------------------------------------------------------------------------


def table(text: str, what: str = "lccodec") -> dict[str, str]:
    """Return the reason of each mutant that ``README.md`` names: equivalent, or what notices it.

    Those of the package stand first, those of others under a title of their own.
    """
    parts = re.split(r"^### Of `(.*?)`$", text, flags=re.MULTILINE)
    text = dict(zip(["lccodec", *parts[1::2]], parts[::2], strict=True)).get(what, "")
    blocks = re.findall(
        r"^((?:Equivalent|Noticed by|Open).*?)\n\n```\n(.*?)```", text, re.MULTILINE | re.DOTALL
    )
    return {name: " ".join(reason.split()) for reason, names in blocks for name in names.splitlines()}


def test_in(reason: str | None) -> str | None:
    """Return the tests that a reason names; None if the mutant is equivalent."""
    found = re.match(r"Noticed by `((?:tests|lccodec)/\S+?)`", reason or "")
    return found and found[1]


def subjects() -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    """Return what has mutants, and what asks it."""
    return {
        "lccodec": lambda: Vectors(PACKAGE, "with_lccodec"),
        "decoder": lambda: Vectors(DECODER, "with_decoder"),
        "wrong": lambda: Vectors(DECODER, "with_decoder"),
        "reader": Javascript,
    }


def mutants_of(what: str, vectors: Any) -> list[Mutant]:
    """Return the mutants of the package, of the decoder, wrong decoders, or those of the reader."""
    if what == "lccodec":
        return readers(vectors)
    if what == "wrong":
        return wrong_decoders()
    if what == "reader":
        return list(reader_mutants())
    return [mutant for path in sorted(DECODER.glob("*.py")) for mutant in mutants(DECODER, path.name)]


def survivors(vectors: Any, chosen: Sequence[Mutant], journal: Path | None = None) -> list[Mutant]:
    """Return the mutants that all vectors let pass; tell how far it is.

    What a mutant is noticed by goes to the journal. Those of which it has that are not asked again.
    """
    known = set()
    if journal is not None and journal.exists():
        known = {line.rpartition(": noticed by ")[0] for line in journal.read_text().splitlines()}
    found = []
    for number, mutant in enumerate(chosen, 1):
        replaced = f"{mutant.name} at {mutant.start}, as `{' '.join(mutant.replacement.split())}`"
        if replaced in known:
            continue
        place = vectors.noticed(mutant)
        if place is None:
            found.append(mutant)
            print(f"{number:4d}  {mutant.name}", flush=True)
        elif journal is not None:
            with journal.open("a", encoding="utf-8") as lines:
                lines.write(f"{replaced}: noticed by {place}\n")
    return found


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--of", choices=subjects(), default="lccodec", help="what has the faults  [lccodec]")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many mutants, chosen by chance")
    parser.add_argument("--seed", type=int, default=1, help="of the choice")
    parser.add_argument("--only", default="", metavar="TEXT", help="only mutants whose names have it")
    parser.add_argument("--tests", action="store_true", help="run the tests that survivors need")
    parser.add_argument("--journal", type=Path, metavar="FILE", help="go on where another run stopped")
    parser.add_argument("--list", action="store_true", help="print the names, and run nothing")
    arguments = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a fork with threads may wait for ever

    reasons = table(TABLE.read_text(encoding="utf-8"), arguments.of)
    began = time.monotonic()
    with subjects()[arguments.of]() as vectors:
        all_of_them = mutants_of(arguments.of, vectors)
        chosen = [mutant for mutant in all_of_them if arguments.only in mutant.name]
        if arguments.sample is not None and arguments.sample < len(chosen):
            places = random.Random(arguments.seed).sample(range(len(chosen)), arguments.sample)
            chosen = [chosen[place] for place in sorted(places)]
        if arguments.list:
            print(*(mutant.name for mutant in chosen), sep="\n")
            return 0
        if arguments.of in ("decoder", "reader") and len(chosen) >= MANY:
            vectors.look(chosen)
        left = survivors(vectors, chosen, arguments.journal)
    wrong = [f"not named: {mutant.name}" for mutant in left if mutant.name not in reasons]
    survived = {mutant.name for mutant in left}
    gone = (reasons.keys() & {mutant.name for mutant in chosen}) - survived
    wrong += [f"named, but the vectors notice it: {name}" for name in sorted(gone)]
    missing = reasons.keys() - {mutant.name for mutant in all_of_them}
    wrong += [f"named, but there is no such mutant: {name}" for name in sorted(missing)]
    if arguments.tests:
        wrong += _tested(left, reasons, PACKAGE if arguments.of == "lccodec" else DECODER)
    print(*wrong, sep="\n")
    share = len(left) / max(len(chosen), 1)
    print(
        f"{len(chosen)} mutants of {len(all_of_them)}, {time.monotonic() - began:.0f} s: the vectors "
        f"notice all but {len(left)} ({share:.1%}); {len(wrong)} of them are not as README.md says"
    )
    return 1 if wrong else 0


def _tested(left: Sequence[Mutant], reasons: dict[str, str], package: Path) -> list[str]:
    """Run tests with the mutants that survived the vectors and are not equivalent."""
    wrong = []
    for mutant in left:
        named = test_in(reasons.get(mutant.name))
        if mutant.name in reasons and named is None:
            continue
        test = noticing_test(mutant, named, package)
        print(f"{mutant.name}\n      noticed by {test or 'nothing'}", flush=True)
        if test is None:
            wrong.append(f"no test notices it: {mutant.name}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())

"""Run the whole corpus through any implementation: ``python run.py [options] -- COMMAND``.

COMMAND is a program that reads questions, a line of JSON each, and answers each by a line of JSON:
README.md says how. It is started once, and again if it ends. What it got right is printed by
section and rule; the exit status is 1 if an answer is wrong.
"""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any

from corpus import LEVELS, Answer, Case, cases, rules
from large import large


class Silent(Exception):  # noqa: N818
    """A program gives no answer."""


class Program:
    """A program that answers questions.

    Parameters
    ----------
    command
        Its name and arguments.
    timeout
        The seconds that it may take for an answer.
    """

    def __init__(self, command: Sequence[str], timeout: float) -> None:
        self._command, self._timeout = command, timeout
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def ask(self, number: str, question: dict[str, Any]) -> Answer:
        """Return the answer to a question; raise `Silent` if there is none."""
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"id": number, **question}) + "\n")
            process.stdin.flush()
            line = self._lines.get(timeout=self._timeout)
        except queue.Empty:
            self._stop()
            raise Silent(f"no answer within {self._timeout:g} s (each line must be flushed)") from None
        except OSError:
            line = None
        if line is None:
            self._stop()
            raise Silent("the program ended")
        try:
            answer: Answer = json.loads(line)
            fits = answer["id"] == number
        except (ValueError, TypeError, KeyError):
            fits = False
        if not fits:
            self._stop()
            raise Silent(f"not an answer to {number}: {line[:99]!r}")
        return answer

    def _start(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, encoding="utf-8")
        assert process.stdout is not None
        self._process, self._lines = process, queue.Queue()
        threading.Thread(target=_read, args=(process.stdout, self._lines), daemon=True).start()
        return process

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                try:
                    if stream is not None:
                        stream.close()
                except OSError:  # a pipe that nobody reads
                    pass
            self._process = None


def _read(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    """Hand on the lines of a program, and None at its end."""
    try:
        for line in stream:
            lines.put(line)
    except ValueError:  # closed, or not UTF-8
        pass
    lines.put(None)


def judged(program: Program, asked: Iterable[Case], level: int) -> Iterator[tuple[Case, str | None, bool]]:
    """Yield each case, what is wrong with its answer, and whether it is beyond the level."""
    for case in asked:
        try:
            problem = case.problem(program.ask(case.name, case.question), level)
        except Silent as error:
            problem = str(error)
        yield case, problem, case.level > level


def table(results: Sequence[tuple[Case, str | None, bool]]) -> str:
    """Return how many answers are right, by section and by rule."""
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for case, problem, beyond in results:
        if not beyond or problem is not None:
            row = found[case.section, case.group]
            row[0] += problem is None
            row[1] += 1
    lines, last = [f"{'section':8} {'rule':26} {'right':>5} {'of':>5}"], ""
    order = [*rules()]
    for (section, group), (right, count) in sorted(found.items(), key=lambda item: _place(item[0], order)):
        mark = "" if right == count else "  <--"
        lines.append(f"{section if section != last else '':8} {group:26} {right:5} {count:5}{mark}")
        last = section
    return "\n".join(lines)


def _place(row: tuple[str, str], order: Sequence[str]) -> tuple[list[int], int, str]:
    section, group = row
    numbers = [int(part) for part in section.split(".")]
    return numbers, order.index(group) if group in order else -1, group


def read(program: Program, level: int, only: str, with_large: bool = False) -> int:
    """Run the vectors with a text in their names; return how many answers are wrong."""
    with tempfile.TemporaryDirectory() as scratch:
        every = chain(cases(Path(scratch)), large(Path(scratch)) if with_large else ())
        asked = [case for case in every if only in case.name]
        results = list(judged(program, asked, level))
    print(table(results))
    wrong = [(case, problem) for case, problem, _ in results if problem is not None]
    for case, problem in wrong:
        print(f"{case.name}: {problem}")
    beyond = sum(beyond and problem is None for _, problem, beyond in results)
    counted = len(results) - beyond
    print(f"level {level} ({LEVELS[level]}): {counted - len(wrong)} of {counted} answers are right", end="")
    print(f"; {beyond} are beyond it" if beyond else "")
    return len(wrong)


def write(program: Program) -> int:
    """Let a program write states, and read its files; return how many are wrong."""
    from writer import states, written_problem  # with the decoder, which only this needs

    wrong = count = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name, state in states():
            path = Path(scratch, f"written-{name}.lcc.h5")  # not a name of a chain's file
            count += 1
            try:
                answer = program.ask(name, {"write": str(path), **state.question(Path(scratch))})
                problem = written_problem(path, state, answer)
            except Silent as error:
                problem = str(error)
            if problem is not None:
                wrong += 1
                print(f"{name}: {problem}")
    print(f"{count - wrong} of {count} files hold the states that were to be written")
    return wrong


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--level", type=int, choices=LEVELS, default=3, help="of the Reader (SPEC 4)  [3]")
    parser.add_argument(
        "--writer", action="store_true", help="check the files that the program writes instead"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="vectors with this text in their names")
    parser.add_argument("--large", action="store_true", help="also what is too large to store")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for an answer  [60]")
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    options = parser.parse_args()
    with Program(options.command, options.timeout) as program:
        wrong = (
            write(program) if options.writer else read(program, options.level, options.only, options.large)
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

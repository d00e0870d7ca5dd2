"""Interrupts at a chosen line: what a signal handler does between two lines of the main thread.

A signal comes at random moments, so the few that matter are hit once in thousands of attempts. Here
each line is one attempt: those of lccodec, and of what the standard library does for threads.
"""

import dis
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import lccodec

#: Parts of the paths of files whose lines count, wherever the checkout lies.
PLACES = (
    str(Path(lccodec.__file__).parent),
    "/threading.py",
    "/concurrent/futures/",
    "/contextlib.py",
    "/logging/__init__.py",
    "/subprocess.py",
)


class Interrupt(BaseException):
    """What the handler raises; nobody else does."""


def interrupt() -> None:
    """A handler that raises, as Python's own for SIGINT does."""
    raise Interrupt


def interrupted(
    call: Callable[[], object], number: int = -1, handler: Callable[[], object] = interrupt
) -> list[str]:
    """Make a call, and call a handler before the line of some number that this thread comes to.

    The handler is called once, and without a number not at all. What it raises is raised there; an
    `Interrupt` ends here. Returns the lines before, as ``file:number``.
    """
    passed: list[str] = []

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if not any(place in name for place in PLACES):
            return None
        if event == "line" and frame.f_lasti not in _without_signals(frame.f_code):
            if len(passed) == number:
                sys.settrace(None)
                handler()
                return None
            passed.append(f"{name.rpartition('/')[2]}:{frame.f_lineno}")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interrupt:
        pass
    finally:
        sys.settrace(before)
    return passed


@cache
def _without_signals(code: CodeType) -> set[int]:
    """Where Python calls no handler: before the instructions at these offsets.

    Those are what a line of ``try`` is made of, and the end of a ``with`` block before its exit.
    What is raised there by a trace function would leave a block without its exit.
    """
    instructions = list(dis.get_instructions(code))
    is_none = [each.opname == "LOAD_CONST" and each.argval is None for each in instructions]
    return {
        each.offset
        for number, each in enumerate(instructions)
        if each.opname == "NOP"
        or is_none[number : number + 3] == [True] * 3
        or (each.opname == "SWAP" and is_none[number + 1 : number + 4] == [True] * 3)  # of a `return`
    }


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """Return what a call returns, made by another thread; fail if it hangs.

    The time only ends what would never end.
    """
    found: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            found.append((call(), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not found:
        raise AssertionError(f"{call} hangs")
    result, error = found[0]
    if error is not None:
        raise error
    return result

import re
import sys
import threading
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import ArgumentError, LccodecWarning
from lccodec.errors import warn
from lccodec.parallel import (
    Line,
    SideThread,
    aside,
    cached_property,
    has_lock,
    member_count,
    ordered,
    slices,
    thread_count,
    uninterrupted,
)

from .support.interrupts import interrupted, within
from .support.programs import run_program


@given(st.integers(0, 5000), st.integers(1, 700))
def test_slices_cut_an_array_into_pieces(size: int, length: int) -> None:
    array = np.arange(size)
    parts = [array[part] for part in slices(size, length)]
    assert [part.size for part in parts[:-1]] == [length] * len(parts[:-1])
    np.testing.assert_array_equal(np.concatenate([array[:0], *parts]), array)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_results_come_in_order_and_few_are_held(threads: int) -> None:
    started = []

    def work(item: int) -> int:
        started.append(item)
        return item * item

    for count, result in enumerate(ordered(work, range(100), threads)):
        assert result == count * count
        assert len(started) <= count + threads + 1
    assert sorted(started) == list(range(100))


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_comes_in_its_turn(threads: int) -> None:
    def work(item: int) -> int:
        if item == 5:
            raise ValueError("five")
        return item

    results = ordered(work, range(10), threads)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="five"):
        next(results)
    assert threading.active_count() < 20


def test_numbers_of_threads() -> None:
    assert thread_count(3) == 3
    assert thread_count(0) >= 1
    for bad in (-1, 1.5, True, None):
        with pytest.raises(ArgumentError, match="threads"):
            thread_count(bad)


def test_a_side_thread_makes_calls_in_their_order() -> None:
    made: list[int] = []
    with SideThread() as side:
        for number in range(50):
            last = side.call(made.append, number)
        last.result()
        assert made == list(range(50))
        assert side.call(threading.get_ident).result() != threading.get_ident()


def test_a_side_thread_tells_what_was_raised() -> None:
    def fail() -> None:
        raise ValueError("beside")

    with pytest.raises(ValueError, match="beside"), SideThread() as side:
        for _ in range(10):
            side.call(fail)


def test_numbers_of_members() -> None:
    assert member_count(3) == 3
    assert member_count(0) >= 1
    assert has_lock()
    for bad in (-1, 1.5, True, "2"):
        with pytest.raises(ArgumentError, match="workers must be"):
            member_count(bad)


# --- what an interrupt does not split -------------------------------------------------------------


def test_a_call_comes_to_its_end_whatever_line_of_the_caller_is_interrupted() -> None:
    count = len(interrupted(lambda: uninterrupted(lambda: None)))
    ended = 0
    for number in range(count):
        done: SimpleQueue[str] = SimpleQueue()

        def call(done: SimpleQueue[str] = done) -> None:
            done.put("begun")
            done.put("ended")

        interrupted(lambda call=call: uninterrupted(call), number)
        if not done.empty():  # it has begun, whatever became of the caller
            assert within(60, done.get) == "begun"
            assert within(60, done.get) == "ended"
            ended += 1
    assert ended


def test_what_a_call_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="five"):
        uninterrupted(lambda: int("five"))


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("_thread.start_new_thread", refuse)


@pytest.mark.usefixtures("no_threads")
def test_without_threads_the_caller_does_it() -> None:
    line, done = Line(), list[int]()
    assert uninterrupted(threading.get_ident) == threading.get_ident()
    assert list(ordered(str, range(3), threads=2)) == ["0", "1", "2"]
    line.add(lambda: done.append(1))
    assert (done, line.waiting, line.wait()) == ([1], [], True)


def test_a_line_does_all_in_its_order_from_any_thread() -> None:
    line, done = Line(), list[tuple[int, int]]()

    def add(caller: int) -> None:
        for number in range(200):
            line.add(partial(done.append, (caller, number)))

    threads = [threading.Thread(target=add, args=(caller,)) for caller in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert line.wait(60)
    assert line.waiting == []
    for caller in range(4):
        assert [number for own, number in done if own == caller] == list(range(200))


def test_an_interrupt_leaves_a_thing_added_or_not() -> None:
    """And nothing sleeps: what comes later wakes what an interrupt has left."""
    line = Line()
    count = len(interrupted(lambda: line.add(lambda: None)))
    assert line.wait(60)
    added = 0
    for number in range(count):
        done = list[int]()
        interrupted(lambda done=done: line.add(lambda: done.append(1)), number)
        is_added = bool(done or line.waiting)
        assert within(60, line.wait)
        assert done == [1] * is_added
        added += is_added
    assert 0 < added < count


def test_a_handler_may_add_something_to_a_line_that_is_added_to() -> None:
    line, done = Line(), list[str]()

    def handler() -> None:
        line.add(lambda: done.append("handler"))
        assert line.wait(60)

    number = 0
    while True:
        passed = interrupted(lambda: line.add(lambda: done.append("caller")), number, handler)
        if len(passed) < number:
            break
        assert within(60, line.wait)
        assert sorted(done) == ["caller", "handler"] or len(passed) == number
        done.clear()
        number += 1
    assert number > 10


def test_a_wait_has_a_limit() -> None:
    line, go_on = Line(), threading.Event()
    line.add(go_on.wait)
    assert not line.wait(0.01)
    go_on.set()
    assert line.wait(60)


#: A child of a fork has nothing to do of what its parent has, and does its own; at the end of a
#: program all is done, by threads that `concurrent.futures` may still start.
PROGRAM = """
import os, sys, threading, warnings
from concurrent.futures import ThreadPoolExecutor
from lccodec.parallel import Line
warnings.simplefilter("ignore")
line, go_on = Line(), threading.Event()
line.add(go_on.wait)
child = os.fork()
if not child:
    assert line.waiting == [] and line.wait()
    line.add(lambda: os.write(1, b"child "))
    line.wait()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert len(line.waiting) == 1
go_on.set()

def last():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(os.write, 1, b"end").result()

Line().add(lambda: threading.Event().wait(0.2))
line.add(lambda: threading.Event().wait(0.2))
line.add(last)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_forks_and_the_end_of_a_program() -> None:
    run = run_program(PROGRAM)
    assert (run.stdout, run.stderr) == ("child end", "")


def test_a_value_that_one_thread_computes_is_no_other_threads_wait() -> None:
    """A signal handler may save while its own thread computes a value: in another thread."""

    class Lazy:
        other: "Lazy | None" = None

        @cached_property
        def value(self) -> int:
            if self.other is not None:
                thread = threading.Thread(target=lambda other: other.value, args=(self.other,), daemon=True)
                thread.start()
                thread.join(10)
                assert not thread.is_alive()
            return 1

    lazy = Lazy()
    lazy.other = Lazy()
    assert lazy.value == 1
    assert vars(lazy)["value"] == vars(lazy.other)["value"] == 1


def test_no_module_keeps_values_behind_a_lock() -> None:
    for path in Path(lccodec.__file__).parent.rglob("*.py"):
        if path.name != "parallel.py":
            assert not re.search(r"functools.*cached_property", path.read_text()), path


def test_what_is_called_aside_is_done_in_order_and_holds_nobody_up() -> None:
    done: list[int] = []
    lock = threading.Lock()

    def call(number: int) -> None:
        with lock:
            done.append(number)
        raise ValueError("is dropped")

    aside(lambda: call(0))
    assert done == [0]
    with lock:
        for number in range(1, 20):
            aside(lambda number=number: call(number))  # type: ignore[misc]
        assert done == [0]
    ended: SimpleQueue[None] = SimpleQueue()
    aside(lambda: ended.put(None))
    ended.get(timeout=20)
    assert done == list(range(20))


def test_the_caller_gives_the_warnings_of_what_is_not_interrupted() -> None:
    """Who gives them may need a lock that the caller has."""
    threads: list[int] = []

    def call() -> None:
        threads.append(threading.get_ident())
        warn("from a thread")

    with pytest.warns(LccodecWarning, match="from a thread") as caught:
        uninterrupted(call)
    assert threads != [threading.get_ident()]
    assert [warning.filename for warning in caught] == [__file__]

"""What a second core is worth: two threads, and two processes, beside one thread.

Threads share an interpreter that runs one of them at a time but for what NumPy does outside it,
call by call; processes share nothing. Where two processes halve the time and two threads do not, it
is the interpreter that threads wait for, and their CPU time shows it: it stays what it was.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

import lccodec

from ..measure.figures import ONE_THREAD, Figure
from .arrays import QUANTIZERS
from .inputs import Walk, load_walk
from .plan import Plan

__all__ = ["threads"]

PIECES = (None, 1 << 18, 1 << 16)  # values a call of np.sqrt; None: all at once
MOST_SECONDS = 60.0  # to wait for the other process

Missing = list[str]
Work = Callable[[int], object]


@dataclass(frozen=True)
class Spent:
    """Seconds of one run: on the clock, and of the process on all cores."""

    wall: float
    cpu: float


def _roots(array: np.ndarray, out: np.ndarray, piece: int | None, count: int) -> None:
    """Take square roots with that many threads, one call a piece: NumPy at its best."""
    parts = list(zip(np.array_split(array, count), np.array_split(out, count), strict=True))

    def run(part: tuple[np.ndarray, np.ndarray]) -> None:
        values, target = part
        step = piece or values.size
        for start in range(0, values.size, step):
            np.sqrt(values[start : start + step], out=target[start : start + step])

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(run, parts))


def _works(walk: Walk, values: int) -> Mapping[str, Work]:
    """Return what is measured on that many values; each is called with the number of threads."""
    array, reference = walk.pair(values)
    out = np.empty_like(array)
    works: dict[str, Work] = {}
    positive = np.abs(array)
    for piece in PIECES:
        name = "np.sqrt, one call a thread" if piece is None else f"np.sqrt, {piece:,} values a call"
        works[name] = partial(_roots, positive, out, piece)
    for name, quantizer in QUANTIZERS.items():
        frame = lccodec.encode(array, quantizer, reference)
        works[f"encode, {name}"] = lambda count, q=quantizer: lccodec.encode(
            array, q, reference, threads=count
        )
        works[f"decode into, {name}"] = lambda count, f=frame: lccodec.decode(
            f, reference, out, threads=count
        )
    return works


def _spent(work: Work, count: int) -> Spent:
    wall, cpu = time.perf_counter(), time.process_time()
    work(count)
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def _half(states: Path | None, values: int, rounds: int, barrier: Barrier, results: Connection) -> None:
    """Do the work on half of the values; both processes begin together; send starts and ends."""
    found: dict[str, list[tuple[float, float]]] = {}
    for name, work in _works(load_walk(states), values // 2).items():
        work(1)
        for _ in range(rounds):
            barrier.wait(MOST_SECONDS)
            start = time.monotonic()
            work(1)
            found.setdefault(name, []).append((start, time.monotonic()))
    results.send(found)


def _two_processes(plan: Plan, values: int) -> dict[str, float]:
    """Return the best wall time of each work, done by two processes at once."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    processes = [
        context.Process(target=_half, args=(plan.states, values, plan.rounds, barrier, sender), daemon=True)
        for _, sender in pipes
    ]
    for process, (_, sender) in zip(processes, pipes, strict=True):
        process.start()
        sender.close()
    halves = [receiver.recv() for receiver, _ in pipes]
    for process in processes:
        process.join()
    return {name: min(map(_wall, zip(*(half[name] for half in halves), strict=True))) for name in halves[0]}


def _wall(runs: Iterable[tuple[float, float]]) -> float:
    """Return the time from the first start to the last end."""
    starts, ends = zip(*runs, strict=True)
    return max(ends) - min(starts)


def threads(plan: Plan, walk: Walk) -> tuple[list[Figure], Missing]:
    """Each array operation with one thread, two threads and two processes."""
    size = max(plan.sizes)
    works = _works(walk, size)
    spent: dict[tuple[str, int], list[Spent]] = {}
    for _ in range(plan.rounds + 1):
        for name, work in works.items():
            for count in (1, 2):
                spent.setdefault((name, count), []).append(_spent(work, count))
    del works
    apart = _two_processes(plan, size)
    case = f"{size:,} float32, {walk.source}, {os.cpu_count()} cores; {ONE_THREAD}"
    figures = []
    for name, wall in apart.items():
        one, two = (min(spent[name, count], key=lambda s: s.wall) for count in (1, 2))
        columns = (
            ("1 thread, CPU time", one.cpu, 1),
            ("wall", two.wall, 2),
            ("CPU time", two.cpu, 2),
            ("2 processes, wall", wall, 1),
        )
        for action, seconds, count in columns:
            figures.append(
                Figure(
                    "threads",
                    case,
                    name,
                    action,
                    seconds / one.wall,
                    count,
                    base=ONE_THREAD,
                    seconds=seconds,
                    values=size,
                    peer=True,
                    note=f"{one.wall * 1e3:.1f} ms",
                )
            )
    return figures, []

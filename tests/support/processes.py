"""Worker processes, as the system lists them; and programs that are killed."""

import gc
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from .folders import TESTS

WORKER = re.compile(rb"from lccodec\.chain\.(save\.background|read\.follow_crew) import main")


def is_running(process: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children(parent: int | None = None) -> list[int]:
    """The workers that a process has started, by default this one, and those that these started."""
    gc.collect()  # chains that were dropped end their workers
    parents = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if WORKER.search((place / "cmdline").read_bytes()) and is_running(int(place.name)):
                stat = (place / "stat").read_text().rpartition(")")[2].split()
                parents[int(place.name)] = int(stat[1])
        except OSError:
            continue
    found = [os.getpid() if parent is None else parent]
    for process in found:
        found += sorted(child for child, above in parents.items() if above == process)
    return found[1:]


def started_with(argument: object) -> list[int]:
    """The processes that run and have something in their command."""
    found, wanted = [], str(argument).encode()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            if wanted in (place / "cmdline").read_bytes() and is_running(int(place.name)):
                found.append(int(place.name))
    return found


def killed_after(waits: Iterable[float], program: str, *words: object) -> Iterator[None]:
    """Kill a program, which prints a line once it is ready, after each of some seconds."""
    for seconds in waits:
        command = [sys.executable, "-c", program, *map(str, words)]
        with subprocess.Popen(command, cwd=TESTS.parent, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            threading.Event().wait(seconds)
            process.kill()
        yield

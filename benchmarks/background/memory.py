"""Memory of a training process beyond its state, and of its workers; Linux only.

Each way is measured in a process of its own, by the most resident memory that it and its workers
have had, and by the sum of their proportional shares, asked for while a save runs:
``python -m benchmarks.background.memory WAY RUN.npz VALUES DIRECTORY`` prints JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ..measure.figures import Figure
from .plan import Plan
from .states import Adam, State
from .ways import OWN, TwoWorkers, Way

__all__ = ["PROCESS", "SECTION", "WORKER", "family", "memory"]

SECTION = "memory"
PROCESS, SHARES = "training process beyond the state", "all processes beyond the state, PSS"
WORKER = "a worker beyond reference and shared copy"
WORKERS = "workers, RSS"
WAYS = {way.name: way for way in (*OWN, TwoWorkers)}
PROC = Path("/proc")
REPOSITORY = Path(__file__).parents[2]
MIB = 1 << 20
SAVES = 4
SECONDS_BETWEEN_LOOKS = 0.01
RESET_HIGH_WATER = "5"  # what the system takes for that

Missing = list[str]


def status(pid: int, field: str) -> int:
    """Return a field of a process's status, in bytes."""
    lines = (PROC / str(pid) / "status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(f"{field}:")).split()[1])


def share(pid: int) -> int:
    """Return the proportional share of a process in the memory that it uses, in bytes."""
    lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("Pss:")).split()[1])


def family(pid: int) -> list[int]:
    """Return the processes below a process."""
    found = []
    for task in (PROC / str(pid) / "task").iterdir():
        with suppress(OSError):  # the thread has ended
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *family(child)]
    return found


def memory(plan: Plan, adam: Adam) -> tuple[list[Figure], Missing]:
    """Measure each of lccodec's ways."""
    if not (PROC / "self" / "smaps_rollup").exists():
        return [], ["memory: no /proc here"]
    figures = []
    nbytes = 4 * adam.values
    case = f"{nbytes / 1e6:,.0f} MB, {SAVES} saves"
    with TemporaryDirectory(dir=plan.directory) as name:
        run = Path(name).absolute() / "run.npz"
        np.savez(run, **{f"{step}/{key}": a for step in (0, 1) for key, a in adam.run[step].items()})
        for way in WAYS:
            command = [sys.executable, "-m", __spec__.name, way, str(run), str(adam.values)]
            command.append(str(Path(name).absolute() / "chain"))
            done = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            shared = nbytes if found["workers"] else 0  # the copy in shared memory
            rows = {PROCESS: found["process"], SHARES: found["shares"]}
            if shared:
                rows[WORKERS] = sum(found["workers"])
                rows[WORKER] = max(0, max(found["workers"]) - nbytes - shared)
            figures += [
                Figure(
                    SECTION, case, way, action, amount / MIB, base="MiB", amount=amount, values=adam.values
                )
                for action, amount in rows.items()
            ]
    return figures, []


def _measure(way: Way, adam: Adam, state: State) -> dict[str, Any]:
    """Save some steps; return bytes beyond what the process has now, and those of its workers."""
    me = os.getpid()
    (PROC / "self" / "clear_refs").write_text(RESET_HIGH_WATER)
    before, before_share = status(me, "VmRSS"), share(me)
    most: dict[int, int] = {}
    shares = 0
    for step in range(SAVES):
        adam.fill(step % 2, state)
        way.save(step, state)
        while way.busy:
            shares = max(shares, sum(map(share, [me, *family(me)])) - before_share)
            time.sleep(SECONDS_BETWEEN_LOOKS)
        way.settle()
        most |= {pid: status(pid, "VmHWM") for pid in family(me)}
        shares = max(shares, sum(map(share, [me, *family(me)])) - before_share)
    process = status(me, "VmHWM") - before
    way.close()
    return {"process": process, "shares": shares, "workers": list(most.values())}


def _main() -> None:
    name, run, values, directory = sys.argv[1:]
    states: list[State] = [{}, {}]
    with np.load(run) as file:
        for key in file.files:
            step, _, array = key.partition("/")
            states[int(step)][array] = file[key]
    adam = Adam(states, int(values))
    state = adam.state(0)
    path = Path(directory) / name.replace(" ", "-")
    print(json.dumps(_measure(WAYS[name](path), adam, state)))


if __name__ == "__main__":
    _main()

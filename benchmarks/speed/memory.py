"""Peak memory: of a save beyond state and reference, and of a restore beyond the state.

Each is measured in a process of its own, by the high-water mark of its resident memory (Linux
only): ``python benchmarks/memory.py save DIRECTORY VALUES TENSOR POLICY [STATES]`` prints the
bytes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import lccodec

from ..measure.figures import Figure
from .chains import POLICIES
from .inputs import Walk, load_walk
from .plan import Plan

__all__ = ["memory"]

STATUS = Path("/proc/self/status")
REPOSITORY = Path(__file__).parents[2]


def _high_water() -> int:
    """Return the most resident memory this process has had, in bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def memory(plan: Plan, walk: Walk) -> tuple[list[Figure], list[str]]:
    """Measure a save of a keyframe and a delta, and a restore of the delta, for every policy."""
    if not STATUS.exists():
        return [], ["peak memory: no /proc here"]
    case = f"{4 * plan.state / 1e6:,.0f} MB float32, {walk.source}"
    figures = []
    for policy in POLICIES:
        with TemporaryDirectory(dir=plan.directory) as name:
            for action in ("save", "restore"):
                command = [sys.executable, "-m", __spec__.name, action, str(Path(name).absolute())]
                command += [str(plan.state), str(plan.tensor), policy]
                if plan.states is not None:
                    command.append(str(plan.states.absolute()))
                run = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
                amount = int(run.stdout)
                ratio = amount / (4 * plan.state)
                figures.append(Figure("memory", case, policy, action, ratio, base="the state", amount=amount))
    return figures, []


def _main() -> None:
    action, name, values, tensor, policy, *states = sys.argv[1:]
    walk = load_walk(Path(states[0]) if states else None)
    # What is loaded on first use belongs to the library, not to the save.
    with TemporaryDirectory() as scratch:
        lccodec.Chain(scratch, policy=policy, newest="history").save(0, walk.state(0, 1_000, 1_000))
        lccodec.Chain(scratch, policy=policy).restore(0)
    before = _high_water()
    with lccodec.Chain(name, policy=policy, newest="history") as chain:
        if action == "restore":
            chain.restore()
            print(_high_water() - before - 4 * int(values))
            return
        state = walk.state(0, int(values), int(tensor))
        chain.save(0, state)
        repeats = walk.repeats(int(tensor))
        for number, array in enumerate(state.values()):
            walk.fill(1, array, number * repeats)
        chain.save(1, state)
        print(_high_water() - before - 2 * 4 * int(values))


if __name__ == "__main__":
    _main()

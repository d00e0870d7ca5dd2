"""How soon the first array of a deep chain is there, beside the whole state."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import lccodec

from ..measure.figures import Figure
from ..measure.rounds import Job, measure
from ..speed.chains import About, copier, state_figures
from .crews import WORKERS, Jobs, Missing, restore, row, write_deep
from .plan import Plan
from .states import Adam

__all__ = ["FIRST", "POLICY", "SECTION", "WHOLE", "first"]

SECTION = "first array"
FIRST, WHOLE, RESTORE = "first array", "all arrays, one by one", "restore"
POLICY = "balanced"


def iterate(directory: Path, workers: int, *, whole: bool) -> None:
    """Open a chain anew, and take the first array or all of them."""
    with lccodec.Chain(directory, workers=workers) as chain:
        arrays = chain.restore_iter()
        next(arrays)
        if whole:
            for _ in arrays:
                pass
        else:
            arrays.close()


def first(plan: Plan, adam: Adam) -> tuple[list[Figure], Missing]:
    """Measure the first array, all of them, and a plain restore, of the deepest delta."""
    large = Adam(adam.run, plan.large)
    with TemporaryDirectory(dir=plan.directory) as name:
        deep = Path(name) / "deep"
        write_deep(deep, POLICY, large, plan.depth)
        jobs: Jobs = {}
        for n in WORKERS:
            jobs[row(POLICY, n), FIRST] = Job(partial(iterate, deep, n, whole=False))
            jobs[row(POLICY, n), WHOLE] = Job(partial(iterate, deep, n, whole=True))
            jobs[row(POLICY, n), RESTORE] = Job(partial(restore, deep, plan.depth, n))
        state = large.state(0)
        timings = measure(jobs, copier(state), plan.rounds)
    case = f"{4 * large.values / 1e9:,.2f} GB in {len(state):,} float32 arrays, {plan.depth} deltas deep"
    return state_figures(SECTION, case, state, timings, About()), []

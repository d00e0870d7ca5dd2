"""The exact file of a chain: writing it beside np.save of the same bytes, and restoring it."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import lccodec
from lccodec.chain.save.encode import plan_manifest
from lccodec.chain.save.exact import commit_exact, lay_out
from lccodec.chain.save.plan import candidates, make_plan
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.tree import flatten

from ..measure.figures import Figure
from ..measure.rounds import Job, measure
from .chains import About, DeltaSaves, Missing, State, copier, state_figures
from .inputs import Walk
from .plan import Plan

__all__ = ["EXACT", "PEER", "newest"]

EXACT, PEER = "exact file", "np.save"
POLICY = "lc-3"


def save_arrays(state: State, path: Path) -> None:
    """Write all arrays to one file with np.save, over the file before, and sync it."""
    with path.open("wb") as file:
        for array in state.values():
            np.save(file, array)
        file.flush()
        os.fsync(file.fileno())


def load_arrays(state: State, path: Path) -> list[np.ndarray]:
    """Read the arrays back."""
    with path.open("rb") as file:
        return [np.load(file) for _ in state]


def exact_writer(directory: Path, state: State) -> Job:
    """Return the job of writing the exact file of a state, over the one before."""
    flat = flatten(state)
    plan = make_plan(candidates(flat, {}), lccodec.POLICIES["lossless"], None)
    manifest = plan_manifest(plan, flat, step=0, policy="lossless", metadata={})
    directory.mkdir()
    store = DirectoryStore(directory)
    return Job(lambda: commit_exact(store, *lay_out(plan.candidates, flat, manifest)))


def newest(plan: Plan, walk: Walk) -> tuple[list[Figure], Missing]:
    """Measure the exact file alone, saves and restores with it, and np.save beside them."""
    states = tuple(walk.state(step, plan.state, plan.tensor) for step in (0, 1))
    later = states[1]
    with TemporaryDirectory(dir=plan.directory) as name:
        root = Path(name)
        chains = {}
        for kept in ("history", "exact"):
            chains[kept] = DeltaSaves(root / kept, POLICY, (states[0], later))
            chains[kept].chain = lccodec.Chain(root / kept, POLICY, keyframe_every=1_000_000, newest=kept)
            chains[kept].save()
        saved = root / "arrays.npy"
        save_arrays(later, saved)
        jobs = {
            (EXACT, "write"): exact_writer(root / "alone", later),
            (PEER, "write"): Job(partial(save_arrays, later, saved)),
            (f"{POLICY}, newest=history", "save"): Job(chains["history"].save),
            (f"{POLICY}, newest=exact", "save"): Job(chains["exact"].save),
            (EXACT, "restore"): Job(lambda: lccodec.Chain(root / "exact").restore()),
            (PEER, "restore"): Job(partial(load_arrays, later, saved)),
        }
        timings = measure(jobs, copier(later), plan.rounds)
    case = f"{4 * plan.state / 1e6:,.0f} MB in {len(later)} float32 arrays, {walk.source}"
    return state_figures("newest", case, later, timings, About(peers=(PEER,))), []

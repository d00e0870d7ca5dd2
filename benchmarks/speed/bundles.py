"""Bundles: a chain in one file and back, beside copying its files."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import lccodec

from ..measure.figures import Figure
from ..measure.rounds import Job, measure
from .chains import About, Missing, copier, state_figures
from .inputs import Walk
from .plan import Plan

__all__ = ["BUNDLE", "PEER", "bundles"]

BUNDLE, PEER = "bundle", "copy of the files, synced"
STEPS = 10  # keyframes


def copy_files(source: Path, target: Path) -> None:
    """Copy the files of a directory, and bring each to the disk."""
    shutil.copytree(source, target)
    for path in target.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def bundles(plan: Plan, walk: Walk) -> tuple[list[Figure], Missing]:
    """Measure making a bundle of a chain and taking it apart, and copies of the chain's files."""
    state = walk.state(0, plan.state // STEPS, plan.tensor)
    with TemporaryDirectory(dir=plan.directory) as name:
        root = Path(name)
        chain = lccodec.Chain(root / "run", "lossless", keyframe_every=0)
        for step in range(STEPS):
            chain.save(step, state)
        size = sum(path.stat().st_size for path in chain.directory.iterdir())
        copied, bundled, back = root / "copied", root / "run.lcc", root / "back"
        lccodec.bundle(chain.directory, bundled)
        remove = partial(shutil.rmtree, ignore_errors=True)
        jobs = {
            (PEER, "write"): Job(
                partial(copy_files, chain.directory, copied),
                partial(shutil.rmtree, copied, ignore_errors=True),
            ),
            (BUNDLE, "write"): Job(partial(lccodec.bundle, chain.directory, bundled)),
            (BUNDLE, "take apart"): Job(partial(lccodec.unbundle, bundled, back), partial(remove, back)),
        }
        timings = measure(jobs, copier(state), plan.rounds)
    case = f"{STEPS} keyframes, {size / 1e6:,.0f} MB together; the copy is that of one state"
    return state_figures("bundle", case, state, timings, About(peers=(PEER,))), []

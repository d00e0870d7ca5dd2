"""One tensor out of a large checkpoint, and thousands of small arrays in one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import lccodec

from ..measure.figures import Figure
from ..measure.rounds import Job, measure
from .chains import About, DeltaSaves, copier, state_figures
from .inputs import Walk
from .plan import Plan
from .savers import remove, savers

__all__ = ["SMALL", "many", "one", "small"]

MIB = 1 << 20
SMALL = 1_000  # values of each of many arrays

Missing = list[str]


def bytes_read() -> int | None:
    """Return how many bytes this process has read by system calls, ``None`` if not counted."""
    counts = Path("/proc/self/io")
    if not counts.exists():
        return None
    return int(counts.read_text().split()[1])  # rchar


def one(plan: Plan, walk: Walk) -> tuple[list[Figure], Missing]:
    """Open a lossless checkpoint, read a tensor of 1 MiB from its middle; safetensors beside."""
    state = walk.state(0, plan.checkpoint * MIB // 4, MIB // 4)
    wanted = list(state)[plan.checkpoint // 2]
    tensor = {wanted: state[wanted]}
    missing: Missing = []
    with TemporaryDirectory(dir=plan.directory) as name:
        path, other = Path(name) / "one.lcc.h5", Path(name) / "one.safetensors"
        lccodec.save_file(state, path)

        def read() -> np.ndarray:
            with lccodec.open(path) as file:
                return file.get(wanted)

        jobs = {("lccodec", "open, read one, close"): Job(read)}
        try:
            from safetensors import safe_open
            from safetensors.numpy import save_file

            save_file(state, other)

            def read_other() -> np.ndarray:
                with safe_open(other, framework="numpy") as file:
                    return file.get_tensor(wanted)

            jobs["safetensors", "open, read one, close"] = Job(read_other)
        except ImportError:
            missing.append("safetensors")
        del state
        before, between = bytes_read(), bytes_read()
        read()
        after = bytes_read()
        timings = measure(jobs, copier(tensor), max(plan.rounds, 10))
    case = f"1 MiB out of a checkpoint of {plan.checkpoint} MiB"
    figures = state_figures("tensor", case, tensor, timings, About(peers=("safetensors",)))
    if before is not None and between is not None and after is not None:
        amount = after - between - (between - before)  # less what the question itself reads
        figures.append(
            Figure("tensor", case, "lccodec", "read", amount / MIB, base="the tensor", amount=amount)
        )
    return figures, missing


def many(plan: Plan, walk: Walk) -> tuple[list[Figure], Missing]:
    """Thousands of small arrays: save and restore beside np.savez and np.load, synced and not."""
    states = tuple(small(walk, step, plan.many) for step in (0, 1))
    found, absent = savers()
    peers = [saver for saver in found if saver.name in ("np.savez", "safetensors")]
    with TemporaryDirectory(dir=plan.directory) as name:
        root = Path(name)
        keyframe = root / "keyframe"
        jobs = {
            ("keyframe", "save"): Job(
                lambda: lccodec.Chain(keyframe).save(0, states[0]), lambda: remove(keyframe)
            ),
            ("keyframe", "load"): Job(lambda: lccodec.Chain(keyframe).restore(0)),
        }
        for policy in ("lc-3", "balanced"):
            chain = DeltaSaves(root / policy, policy, states)
            chain.save()
            jobs[policy, "save"] = Job(chain.save)
            jobs[policy, "load"] = Job(lambda path=root / policy: lccodec.Chain(path).restore(1))
        for saver in peers:
            path = root / f"saver-{saver.name}"
            jobs[saver.name, "save, not synced"] = Job(
                partial(saver.save, states[0], path), partial(remove, path)
            )
            jobs[saver.name, "save"] = Job(
                partial(saver.save_durably, states[0], path), partial(remove, path)
            )
            jobs[saver.name, "load"] = Job(partial(saver.load, path))
        timings = measure(jobs, copier(states[0]), plan.rounds)
    case = f"{plan.many:,} arrays of {SMALL:,} float32"
    names = tuple(saver.name for saver in peers)
    return state_figures("many", case, states[0], timings, About(peers=names)), absent


def small(walk: Walk, step: int, count: int) -> dict[str, np.ndarray]:
    """Return a state of `count` arrays of `SMALL` values."""
    values = walk.array(step, count * SMALL).reshape(count, SMALL)
    return {f"layer{number:05}.weight": row.copy() for number, row in enumerate(values)}

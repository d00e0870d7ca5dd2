"""Whole states: `Chain.save` and its parts, `Chain.restore` from a keyframe and 32 deltas deep."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import lccodec

from ..measure.figures import COPY, Figure
from ..measure.rounds import Job, Timing, measure
from .inputs import DEPTH, Walk
from .plan import Plan
from .savers import remove, savers

__all__ = ["POLICIES", "About", "DeltaSaves", "copier", "restore", "save", "state_figures"]

POLICIES = ("lc-2", "lc-3", "balanced")
FRAMES, HASH, WRITE = "frames alone", "SHA-256 of as many bytes", "write and sync as many bytes"

State = dict[str, np.ndarray]
Missing = list[str]


def copier(state: State) -> Callable[[], object]:
    """Return the reference of all ratios: a copy of every array of the state."""
    copies = [np.empty_like(array) for array in state.values()]

    def copy() -> None:
        for target, array in zip(copies, state.values(), strict=True):
            np.copyto(target, array)

    return copy


@dataclass(frozen=True)
class About:
    """What is known of rows beside their times.

    Parameters
    ----------
    bits
        Of a value, by the name of the row.
    notes
        By the name of the row.
    peers
        Names of the rows that are not lccodec's.
    """

    bits: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    peers: tuple[str, ...] = ()


def state_figures(
    section: str,
    case: str,
    state: State,
    timings: dict[Any, Timing],
    about: About,
) -> list[Figure]:
    """Return the figures of timings that are named (subject, action)."""
    values = sum(array.size for array in state.values())
    copy = timings[COPY]
    note = f"{copy.seconds * 1e3:.1f} ms, median {copy.typical:.2f} x best"
    figures = [Figure(section, case, COPY, "copy", 1.0, typical=copy.typical, peer=True, note=note)]
    for key, timing in timings.items():
        if key != COPY:
            subject, action = key
            figures.append(
                Figure(
                    section,
                    case,
                    subject,
                    action,
                    timing.ratio,
                    typical=timing.typical,
                    seconds=timing.seconds,
                    values=values,
                    bits=about.bits.get(subject),
                    peer=subject in about.peers,
                    note=about.notes.get(subject, ""),
                )
            )
    return figures


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and bring it to the disk: what a save cannot do without."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def save_keyframe(directory: Path, state: State) -> None:
    """Start a chain with one checkpoint."""
    lccodec.Chain(directory).save(0, state)


def restore_step(directory: Path, step: int) -> object:
    """Restore a step of a chain opened anew: nothing comes from the writer's memory."""
    return lccodec.Chain(directory).restore(step)


def encode_all(state: State, quantizer: Any, references: State) -> None:
    """Make the frames of a delta, and drop them."""
    for name, array in state.items():
        lccodec.encode(array, quantizer, references[name])


class DeltaSaves:
    """A chain that alternates between two real states: every save after the first is a delta."""

    def __init__(self, directory: Path, policy: str, states: tuple[State, State]) -> None:
        self.chain = lccodec.Chain(directory, policy=policy, keyframe_every=1_000_000, newest="history")
        self.states = itertools.cycle(states)
        self.steps = itertools.count()
        self.save()

    def save(self) -> None:
        """Save the next step."""
        self.chain.save(next(self.steps), next(self.states))

    def last_file(self) -> bytes:
        """Return the bytes of the latest checkpoint, which must be a delta."""
        if self.chain.info().parent is None:
            raise SystemExit("save: a keyframe where a delta was to be measured")
        return max(self.chain.directory.iterdir()).read_bytes()


def save(plan: Plan, walk: Walk) -> tuple[list[Figure], Missing]:
    """`Chain.save` of a state, everything included, and its parts; other writers beside it."""
    states = tuple(walk.state(step, plan.state, plan.tensor) for step in (0, 1))
    earlier, later = states
    found, absent = savers()
    jobs: dict[tuple[str, str], Job] = {}
    bits: dict[str, float] = {}
    with TemporaryDirectory(dir=plan.directory) as name:
        root = Path(name)
        path = root / "keyframe"
        jobs["keyframe", "save"] = Job(partial(save_keyframe, path, later), partial(remove, path))
        for policy in POLICIES:
            chain = DeltaSaves(root / policy, policy, states)
            chain.save()
            delta = chain.last_file()
            jobs[policy, "save"] = Job(chain.save)
            bits[policy] = 8 * len(delta) / plan.state
            path = root / "written"
            jobs[policy, FRAMES] = Job(
                partial(encode_all, later, lccodec.POLICIES[policy].roles["weight"], earlier)
            )
            jobs[policy, HASH] = Job(partial(sha256, delta))
            jobs[policy, WRITE] = Job(partial(write_synced, path, delta), partial(remove, path))
        for saver in found:
            path = root / f"saver-{saver.name}"
            jobs[saver.name, "save"] = Job(partial(saver.save_durably, later, path), partial(remove, path))
        timings = measure(jobs, copier(later), plan.rounds)
    case = f"{4 * plan.state / 1e6:,.0f} MB in {len(later)} float32 arrays, {walk.source}"
    about = About(bits=bits, peers=tuple(saver.name for saver in found))
    return state_figures("save", case, later, timings, about), absent


def restore(plan: Plan, walk: Walk) -> tuple[list[Figure], Missing]:
    """`Chain.restore` of a keyframe and of deltas, opened anew; other readers beside it."""
    found, absent = savers()
    jobs: dict[tuple[str, str], Job] = {}
    depths = {}
    with TemporaryDirectory(dir=plan.directory) as name:
        root = Path(name)
        for policy in POLICIES:
            path = root / policy
            with lccodec.Chain(path, policy=policy, newest="history") as chain:
                for step in range(DEPTH):
                    state = walk.state(len(walk.layer) - DEPTH + step, plan.chain, plan.tensor)
                    chain.save(step, state)
                depth, deepest = max((chain.info(step).deltas, step) for step in chain.steps)
            depths[policy] = f"deepest: {depth} deltas"
            for action, step in (("keyframe", 0), ("1 delta", 1), ("deepest", deepest)):
                jobs[policy, action] = Job(partial(restore_step, path, step))
        for saver in found:
            path = root / f"saver-{saver.name}"
            saver.save_durably(state, path)
            jobs[saver.name, "keyframe"] = Job(partial(saver.load, path))
        timings = measure(jobs, copier(state), plan.rounds)
    case = f"{4 * plan.chain / 1e6:,.0f} MB in {len(state)} float32 arrays, {walk.source}"
    peers = tuple(saver.name for saver in found)
    return state_figures("restore", case, state, timings, About(notes=depths, peers=peers)), absent

"""Chains with branches, written file by file."""

import random
from pathlib import Path

import numpy as np

import lccodec
from lccodec import Lossless
from lccodec.container.checkpoint import CheckpointWriter, open_checkpoint
from lccodec.container.manifest import INHERITED, Manifest, Parent
from lccodec.frame.header import parse_header

State = dict[str, np.ndarray]

#: The parent of each step.
TREES = {
    "two branches in turn": [None, 0, 0, 1, 2, 3, 4, 5, 6],
    "a comb": [None, 0, 0, 2, 2, 4, 4, 6, 6],
    "a star": [None, 0, 0, 0, 0, 0, 0],
    "two keyframes": [None, None, 0, 1, 2, 3],
    "random": [None, *(random.Random(1).randrange(step) for step in range(1, 20))],
}


def write(directory: Path, step: int, parent: int | None, state: State, before: State | None) -> None:
    """Write a checkpoint with one frame for each array; `before` holds the references."""
    named = None
    if parent is not None:
        with open_checkpoint(directory / f"{parent:012d}.lcc.h5") as reader:
            named = Parent(parent, reader.root)
    with CheckpointWriter(directory / f"{step:012d}.lcc.h5") as writer:
        entries = []
        for name, array in state.items():
            reference = None if before is None else before[name]
            frame = lccodec.encode(array, Lossless(), reference)
            assert parse_header(frame).relative == (before is not None)
            entries.append(writer.write_frame(frame))
        tree = INHERITED if parent is not None else {name: i for i, name in enumerate(state)}
        numbers = tuple(range(1, len(entries) + 1))
        writer.commit(Manifest(step, named, "lossless", {}, tree, [], numbers, tuple(entries)))


def write_tree(directory: Path, parents: list[int | None], wrong: int | None = None) -> dict[int, State]:
    """Write checkpoints with these parents; step `wrong` is coded against another reference."""
    rng = np.random.default_rng(0)
    states: dict[int, State] = {}
    for step, parent in enumerate(parents):
        last = {} if parent is None else states[parent]
        states[step] = {
            name: (last.get(name, np.ones(50)) + 1e-6 * rng.standard_normal(50)).astype(np.float32)
            for name in ("v", "w")
        }
        before = None if parent is None else dict(states[parent])
        if step == wrong and before is not None:
            before["w"] = before["w"] + 1
        write(directory, step, parent, states[step], before)
    return states

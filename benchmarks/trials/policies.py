"""Each policy on LeNet-5: 50 checkpoints of a real run through the public API of lccodec.

The paper's smallest neural network (LC-Checkpoint, section 5): plain SGD, 61,706 float32
parameters, no optimizer state, so "ratio" means weights. Every checkpoint is saved with each
policy, every step is restored from the chain opened anew, and the restored networks are tested.

Run ``python benchmarks/lenet.py --data DIR``; ``benchmarks/README.md`` says how to read the table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from ..networks.datasets import Split, data_directory, load_mnist
from ..networks.lenet import BATCH, LEARNING_RATE, State, train
from ..networks.models import LeNet5

POLICIES = ("balanced", "small", "lc-2", "lc-3", "lossless")
REPORTED_STEPS = (10, 25, 50)


@dataclass(frozen=True)
class Quality:
    """How well one state does on the test split."""

    accuracy: float
    loss: float


@dataclass(frozen=True)
class Row:
    """One reported step of one policy; sizes are bytes on disk, ratios are of float32 weights."""

    policy: str
    step: int
    file_bytes: int
    delta_bytes_mean: float
    delta_ratio: float
    keyframes: int
    chain_bytes: int
    chain_ratio: float
    original: Quality
    restored: Quality
    error_over_movement: float


def assess(state: State, split: Split) -> Quality:
    """Return the accuracy and mean loss of `state` on `split`."""
    network = LeNet5()
    network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in state.items()})
    labels = torch.from_numpy(split.labels)
    with torch.no_grad():
        logits = network(torch.from_numpy(split.images))
        loss = functional.cross_entropy(logits, labels).item()
        accuracy = (logits.argmax(1) == labels).double().mean().item()
    return Quality(accuracy, loss)


def rms_difference(a: State, b: State) -> float:
    """Return the root mean square difference of two states over all their parameters."""
    squares = sum(float(np.sum((a[name].astype(np.float64) - b[name]) ** 2)) for name in a)
    return float(np.sqrt(squares / parameter_count(a)))


def parameter_count(state: State) -> int:
    """Return the number of parameters of `state`."""
    return sum(array.size for array in state.values())


def is_identical(a: State, b: State) -> bool:
    """Tell whether two states hold the same names, shapes, dtypes and bytes."""
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype
        and a[name].shape == b[name].shape
        and a[name].tobytes() == b[name].tobytes()
        for name in a
    )


def measure(
    policy: str, states: list[State], directory: Path, test: Split, steps: tuple[int, ...]
) -> tuple[list[Row], dict[str, float]]:
    """Save `states` as steps 1, 2, ... of a chain, restore every one, report the chosen `steps`."""
    import lccodec

    begin = time.perf_counter()
    with lccodec.Chain(directory, policy=policy, newest="history") as chain:
        for step, state in enumerate(states, 1):
            chain.save(step, state)
    saved = time.perf_counter()
    # Opened anew, so that nothing comes from the memory of the chain that wrote.
    with lccodec.Chain(directory, policy=policy, newest="history") as chain:
        restored = [chain.restore(step) for step in range(1, len(states) + 1)]
        done = time.perf_counter()
        infos = [chain.info(step) for step in range(1, len(states) + 1)]
    if policy == "lossless":
        for step, (was, got) in enumerate(zip(states, restored, strict=True), 1):
            if not is_identical(was, got):
                raise SystemExit(f"lossless: step {step} was restored with other bits")

    full_bytes = 4 * parameter_count(states[0])
    rows = []
    for step in steps:
        so_far = infos[:step]
        deltas = [info.file_bytes for info in so_far if info.parent is not None]
        chain_bytes = sum(info.file_bytes for info in so_far)
        state, got = states[step - 1], restored[step - 1]
        rows.append(
            Row(
                policy=policy,
                step=step,
                file_bytes=infos[step - 1].file_bytes,
                delta_bytes_mean=sum(deltas) / len(deltas),
                delta_ratio=full_bytes * len(deltas) / sum(deltas),
                keyframes=step - len(deltas),
                chain_bytes=chain_bytes,
                chain_ratio=full_bytes * step / chain_bytes,
                original=assess(state, test),
                restored=assess(got, test),
                error_over_movement=rms_difference(state, got) / rms_difference(state, states[step - 2]),
            )
        )
    count = len(states)
    return rows, {"save_seconds": (saved - begin) / count, "restore_seconds": (done - saved) / count}


def as_markdown(rows: list[Row]) -> str:
    """Return the rows as a markdown table."""
    lines = [
        "| policy | step | chain, bytes (keyframes) | chain, ratio | deltas, mean bytes | deltas, ratio "
        "| file, bytes | test accuracy, original | restored | test loss, original | restored "
        "| error / movement |",
        "|---|" + "---:|" * 11,
    ]
    lines += [
        f"| {r.policy} | {r.step} | {r.chain_bytes:,} ({r.keyframes}) | {r.chain_ratio:.1f}x "
        f"| {r.delta_bytes_mean:,.0f} | {r.delta_ratio:.1f}x | {r.file_bytes:,} | {r.original.accuracy:.2%} "
        f"| {r.restored.accuracy:.2%} | {r.original.loss:.4f} | {r.restored.loss:.4f} "
        f"| {r.error_over_movement:.2f} |"
        for r in rows
    ]
    return "\n".join(lines)


@contextlib.contextmanager
def work_directory(out: Path | None) -> Iterator[Path]:
    """Yield `out`, created if need be, or a temporary directory that is removed at the end."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="lccodec-lenet-") as name:
        yield Path(name)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="LeNet-5 on MNIST through lccodec chains")
    parser.add_argument("--data", metavar="DIR", help="folder of the MNIST files (default: $LCCODEC_DATA)")
    parser.add_argument("--checkpoints", type=int, default=50, metavar="N", help="how many (default: 50)")
    parser.add_argument("--every", type=int, default=5, metavar="N", help="iterations apart (default: 5)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the chains here, one folder a policy")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--states", type=Path, metavar="FILE", help="write the states as an .npz, step/name")
    parser.add_argument("--quick", action="store_true", help="few checkpoints of a small slice, for CI")
    arguments = parser.parse_args()
    if arguments.checkpoints < 2 or arguments.every < 1:
        parser.error("at least 2 checkpoints, at least 1 iteration apart")
    return arguments


def main() -> None:
    """Train, save, restore, report."""
    arguments = parse_arguments()
    torch.set_num_threads(1)  # one thread sums in one order: the same run on the same machine
    torch.use_deterministic_algorithms(True)
    training, test = load_mnist(data_directory(arguments.data))
    checkpoints = arguments.checkpoints
    if arguments.quick:
        checkpoints = min(checkpoints, 10)
        training, test = (Split(s.images[:1_000], s.labels[:1_000]) for s in (training, test))

    states = train(training, checkpoints, arguments.every, arguments.seed)
    if arguments.states:
        named = {f"{step}/{name}": a for step, s in enumerate(states, 1) for name, a in s.items()}
        np.savez(arguments.states, **named)

    steps = tuple(step for step in REPORTED_STEPS if step <= checkpoints) or (checkpoints,)
    rows: list[Row] = []
    timings = {}
    with work_directory(arguments.out) as root:
        for policy in POLICIES:
            policy_rows, timings[policy] = measure(policy, states, root / policy, test, steps)
            rows += policy_rows

    print(as_markdown(rows))
    if arguments.json:
        report = {
            "parameters": parameter_count(states[0]),
            "full_bytes": 4 * parameter_count(states[0]),
            "checkpoints": checkpoints,
            "every": arguments.every,
            "batch": BATCH,
            "learning_rate": LEARNING_RATE,
            "seed": arguments.seed,
            "quick": arguments.quick,
            "rows": [asdict(row) for row in rows],
            "seconds_per_step": timings,
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")

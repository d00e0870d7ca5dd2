"""A chain in a bucket: requests, rounds, bytes and seconds, against a server that runs.

Calls of the backend are counted, below the attempts and the parallel calls: each is one request,
but for a listing, which is one request for each 1,000 objects.
"""

from __future__ import annotations

import argparse
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from click.testing import CliRunner

import lccodec
from lccodec.chain.store.bucket.backend import FsspecBackend, ObstoreBackend, PatientBackend
from lccodec.cli.listing import ls

from .many import state

DEPTH: Final = 32  # deltas that the deepest restore replays
LARGE_VALUES: Final = 1 << 18  # of float32: 1 MiB
#: What must hold, by the name of a line.
BOUNDS: Final = {
    "one tensor: rounds beyond the listing": 2,
    "one tensor: bytes over its frames": 1.2,
    "chain.steps: requests beyond listings": 0,
    "ls, seconds": 5.0,
}


@dataclass
class Counted:
    """What was asked of a store."""

    listings: int = 0
    others: int = 0
    rounds: int = 0
    received: int = 0
    seconds: float = 0.0
    saved: list[float] = field(default_factory=list)


@contextmanager
def counting() -> Iterator[Counted]:
    """Count the calls of all backends meanwhile, without a cache on the disk."""
    found, kept, before = Counted(), list[tuple[type, str, Any]](), os.environ.get("LCCODEC_CACHE")

    def wrap(owner: type, name: str, note: Callable[[Any], None]) -> None:
        call = getattr(owner, name)
        kept.append((owner, name, call))

        def counted(self: Any, *args: Any) -> Any:
            result = call(self, *args)
            note(result)
            return result

        setattr(owner, name, counted)

    def listed(_: object) -> None:
        found.listings += 1

    def read(data: bytes) -> None:
        found.others += 1
        found.received += len(data)

    def other(_: object) -> None:
        found.others += 1

    def a_round(_: object) -> None:
        found.rounds += 1

    for owner in (ObstoreBackend, FsspecBackend):
        wrap(owner, "objects", listed)
        wrap(owner, "read", read)
        for name in ("put_if_absent", "upload", "delete", "head"):
            wrap(owner, name, other)
    wrap(PatientBackend, "read_many", a_round)
    os.environ["LCCODEC_CACHE"] = ""
    start = time.perf_counter()
    try:
        yield found
    finally:
        found.seconds = time.perf_counter() - start
        for owner, name, call in kept:
            setattr(owner, name, call)
        os.environ.pop("LCCODEC_CACHE")
        if before is not None:
            os.environ["LCCODEC_CACHE"] = before


def deep_chain(place: str) -> int:
    """Save a keyframe and 32 deltas of a tensor of 1 MiB and others; return its frames' bytes."""
    rng = np.random.default_rng(0)
    arrays = {f"layer{i}.weight": rng.standard_normal((64, 64)).astype(np.float32) for i in range(20)}
    arrays["large.weight"] = rng.standard_normal(LARGE_VALUES).astype(np.float32)
    frames = 0
    with lccodec.Chain(place, "lc-3", keyframe_every=DEPTH, newest="history") as chain:
        for step in range(DEPTH + 1):
            for name, values in arrays.items():
                arrays[name] = values + 1e-3 * rng.standard_normal(values.shape).astype(np.float32)
            chain.save(step, arrays)
    for step in range(DEPTH + 1):
        with lccodec.open(place, step=step) as file:
            frames += sum(array.stored_bytes for array in file.info().arrays if array.name == "large.weight")
    return frames


def measured(place: str, checkpoints: int) -> dict[str, float]:
    """Return all figures by the names of their lines."""
    frames, lines = deep_chain(f"{place}/deep"), dict[str, float]()
    with counting() as found, lccodec.open(f"{place}/deep") as file:
        file.get("large.weight")
    lines["one tensor: listings"] = found.listings
    lines["one tensor: rounds beyond the listing"] = found.rounds
    lines["one tensor: requests beyond the listing"] = found.others
    lines["one tensor: bytes over its frames"] = found.received / frames
    lines["one tensor: milliseconds"] = 1e3 * found.seconds
    with counting() as found, lccodec.Chain(f"{place}/many", "lc-3", newest="history") as chain:
        for step in range(checkpoints):
            start = time.perf_counter()
            chain.save(step, state(step))
            found.saved.append(time.perf_counter() - start)
    lines["a save: listings"] = found.listings / checkpoints
    lines["a save: other requests"] = found.others / checkpoints
    lines["a save: milliseconds, the first hundred"] = 1e3 * float(np.median(found.saved[:100]))
    lines["a save: milliseconds, the last hundred"] = 1e3 * float(np.median(found.saved[-100:]))
    with counting() as found:
        steps = lccodec.Chain(f"{place}/many").steps
    assert len(steps) == checkpoints
    lines["chain.steps: listings"] = found.listings
    lines["chain.steps: requests beyond listings"] = found.others
    lines["chain.steps: milliseconds"] = 1e3 * found.seconds
    with counting() as found:
        result = CliRunner().invoke(ls, [f"{place}/many"])
    assert result.exit_code == 0, result.output
    lines["ls, seconds"] = found.seconds
    lines["ls: requests beyond listings"] = found.others
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all figures; return 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="A prefix for chains of its own, such as s3://bucket/prefix.")
    parser.add_argument("--checkpoints", type=int, default=1000)
    options = parser.parse_args(arguments)
    lines = measured(f"{options.address}/{secrets.token_hex(4)}", options.checkpoints)
    missed = 0
    print("| what | measured | must be at most |\n|---|---|---|")
    for name, value in lines.items():
        bound = BOUNDS.get(name)
        missed += bound is not None and value > bound
        print(f"| {name} | {value:.4g} | {'' if bound is None else f'{bound:g}'} |")
    return int(missed > 0)

"""Updates of a fine-tuned network by every way: bytes, and time to publish, prepare and commit.

Run ``python benchmarks/follow.py --data DIR [--quick] [--results FOLDER]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ..measure.figures import Figure, dump, markdown
from ..measure.goals import Goal, missed, summary, table
from ..measure.results import add_results, machine, tell
from ..measure.rounds import Job, measure
from ..networks.datasets import data_directory
from .bucket import bucket_goals
from .publisher import publisher_goals
from .updates import Kind, Update, make_update
from .ways import Lccodec, TwoWorkers, all_ways

__all__ = ["main", "measure_update"]

SHARES = (0.003, 0.01, 0.05)
KINDS: tuple[Kind, ...] = ("bfloat16", "float8")
#: Of bfloat16, by share: the part of the array that an update may take.
BOUNDS = {0.003: 1 / 440, 0.01: 1 / 160, 0.05: 1 / 42}
MAX_OF_XOR = 0.6  # bytes
MAX_PAUSE_COPIES, PAUSE_SECONDS_AN_ARRAY = 1.2, 1e-3
MAX_SECONDS_A_GB = 1.0
MAX_OF_ONE_WORKER = 0.65
PUBLISHED: tuple[Kind, float] = ("bfloat16", 0.01)  # what a publisher is measured with
PUBLISHED_BYTES = 336_000_000
PUBLISH, PREPARE, COMMIT = "publish", "prepare", "pause"


def measure_update(update: Update, directory: Path, rounds: int) -> list[Figure]:
    """Time every way on one update, in interleaved rounds."""
    ways = all_ways(update, directory)
    sizes = {way.name: way.publish() for way in ways}
    for way in ways:
        if not isinstance(way, Lccodec):
            sizes[way.name] = way.publish()
        way.prepare()
        way.commit()
        way.check()
    source = np.ones(update.nbytes, np.uint8)
    target = np.empty_like(source)
    jobs = {}
    for way in ways:
        jobs[way.name, PUBLISH] = Job(way.publish)
        jobs[way.name, PREPARE] = Job(way.prepare, prepare=way.go_back)
        jobs[way.name, COMMIT] = Job(way.commit, prepare=way.reset)
    timings = measure(jobs, lambda: np.copyto(target, source), rounds)
    case = f"{update.kind}, {100 * update.share:.2g} % changed"
    figures = []
    for way in ways:
        part = sizes[way.name] / update.nbytes
        figures.append(
            Figure("Weight sync", case, way.name, "bytes", 1 / part, peer=not isinstance(way, Lccodec))
        )
        for action in (PUBLISH, PREPARE, COMMIT):
            timing = timings[way.name, action]
            figures.append(
                Figure(
                    "Weight sync",
                    case,
                    way.name,
                    action,
                    timing.ratio,
                    base="copies",
                    typical=timing.typical,
                    seconds=timing.seconds,
                    amount=None,
                    peer=not isinstance(way, Lccodec),
                )
            )
    return figures


def goals_of(update: Update, share: float, figures: Sequence[Figure]) -> list[Goal]:
    """Return what the figures of one update must be."""
    found = {(f.subject, f.action): f for f in figures}
    what = f"{update.kind}, {100 * update.share:.2g} % changed"
    own = 1 / found["lccodec", "bytes"].ratio
    goals = []
    if update.kind == "bfloat16":
        # The bound is for its share: the update that was made has another one, but for a little.
        bound = BOUNDS[share] * max(update.share / share, 1.0)
        goals.append(Goal(f"{what}: bytes, over the array's", 1000 * own, 1000 * bound, unit="thousandths"))
    xor = 1 / found["XOR + zstd -1", "bytes"].ratio
    goals.append(Goal(f"{what}: bytes, over XOR + zstd -1", own / xor, MAX_OF_XOR))
    pause, prepare = found["lccodec", COMMIT], found["lccodec", PREPARE]
    copy = (pause.seconds or 0) / pause.ratio
    changed = update.changed_bytes / update.nbytes * copy
    limit = MAX_PAUSE_COPIES * changed + PAUSE_SECONDS_AN_ARRAY * len(update.old)
    goals.append(Goal(f"{what}: pause", 1000 * (pause.seconds or 0), 1000 * limit, unit="ms"))
    both = found[TwoWorkers.name, PREPARE]
    goals.append(
        Goal(f"{what}: prepare, two workers over one", both.ratio / prepare.ratio, MAX_OF_ONE_WORKER)
    )
    for taken, workers in ((prepare, ""), (both, ", two workers")):
        seconds = ((taken.seconds or 0) + (pause.seconds or 0)) * 1e9 / update.nbytes
        goals.append(Goal(f"{what}: one step behind, for 1 GB{workers}", seconds, MAX_SECONDS_A_GB, unit="s"))
    return goals


def main(words: list[str] | None = None) -> int:
    """Measure, print, store; return 1 if a bound is missed."""
    parser = argparse.ArgumentParser(prog="follow.py", description=__doc__.splitlines()[0])
    parser.add_argument("--data", metavar="DIR", help="folder of the data sets (default: $LCCODEC_DATA)")
    parser.add_argument("--quick", action="store_true", help="a small network, a few MB: some seconds")
    parser.add_argument("--size", type=float, metavar="BYTES", help="of the arrays (256e6, or 2e6)")
    parser.add_argument("--rounds", type=int, default=0, metavar="N", help="interleaved rounds (5, or 2)")
    parser.add_argument("--bucket", metavar="ADDRESS", help="measure a follower of a chain there, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    add_results(parser)
    options = parser.parse_args(words)
    nbytes = int(options.size or (2e6 if options.quick else 256e6))
    rounds = options.rounds or (2 if options.quick else 5)
    figures, goals, told = list[Figure](), list[Goal](), list[str]()
    with TemporaryDirectory(prefix="lccodec-follow-") as name:
        for kind in KINDS:
            for share in SHARES:
                data = data_directory(options.data)
                update = make_update(data, kind, share, nbytes, quick=options.quick)
                told.append(f"{kind}: {100 * update.share:.3g} % at a learning rate of {update.rate:.2g}")
                found = measure_update(update, Path(name) / "ways", rounds)
                figures += found
                goals += goals_of(update, share, found)
                if (kind, share) == PUBLISHED:
                    size = nbytes if options.quick or options.size else PUBLISHED_BYTES
                    one = update if size == nbytes else make_update(data, kind, share, size)
                    goals += publisher_goals(one, Path(name) / "publisher", rounds)
                if options.bucket and kind == "bfloat16":
                    size = 0 if options.quick else 1e9
                    goals += [g for n in (1, 2) for g in bucket_goals(update, options.bucket, size, n)]
    text = (
        f"`python benchmarks/follow.py --data DIR{' --quick' * options.quick}`; {machine()}, "
        f"NumPy {np.__version__}. Arrays of {nbytes / 1e6:.0f} MB. "
        f"What one step changes: {'; '.join(told)}.\n\n{summary(goals)}\n\n{table(goals)}\n\n"
        "Bytes are a part of the array's, times are copies of the array.\n\n"
        f"{markdown(figures)}"
    )
    tell(text, "follow.py", options.results)
    if options.json:
        dump(figures, {"rounds": rounds, "bytes": nbytes}, options.json)
    return 1 if missed(goals) else 0

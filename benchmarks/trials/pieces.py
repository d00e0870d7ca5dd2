"""What one scheme does in one case, in pieces that are kept: a long run can stop anywhere."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import lccodec

from ..networks.tasks import WEIGHT, task
from ..networks.trajectories import Trajectory, trajectory
from ..schemes.catalogue import VARIANTS, catalogue, is_close, is_own, is_variant
from ..schemes.session import Scheme
from ..schemes.streams import State, roles
from . import resume

__all__ = ["CASES", "Case", "Piece", "pieces"]

IMAGES = ("logistic", "lenet", "batchnorm", "momentum", "spike")
EXACT, OLDER = "exact", "exact, one interval older"
SEEDS = tuple(range(1, 9))  # of the batches of runs that go on
OTHERS_SEEDS = SEEDS[:3]
PRESETS = ("balanced", "small")
MADE_BY = ("compressors", "networks", "schemes")  # folders whose code a result depends on
LATE = 25  # checkpoints after which accuracy has to hold (LeNet-5's goal)


@dataclass(frozen=True)
class Case:
    """A trajectory and what is measured on it.

    Parameters
    ----------
    name
        Of its table.
    task
        Of the trajectory.
    checkpoints, every
        Their number, iterations apart.
    marks
        Iterations after which resumed runs are compared; those that are not looked at closely only
        after the first.
    seeds
        Of the batches of resumed runs, of exact states, `PRESETS` and their variants; at most three
        of all others.
    restores
        Whether there is a run of ten restores, of those that are looked at closely.
    apart
        Of how many seeds there are runs of ten restores, ten checkpoints apart, of lccodec's lossy
        presets.
    close
        Whether only those are measured at all.
    curve
        Whether the variants of `balanced` are measured too.
    thinned
        Iterations apart of the checkpoints that are used of a trajectory; all of them if 0.
    until
        Iteration of the last of them; all of them if 0.
    """

    name: str
    task: str
    checkpoints: int
    every: int
    marks: tuple[int, ...] = (60,)
    seeds: int = 8
    restores: bool = False
    apart: int = 0
    close: bool = False
    curve: bool = False
    thinned: int = 0
    until: int = 0

    def trajectory(self, data: Path, cache: Path, *, quick: bool) -> Trajectory:
        """Return its trajectory, made if it is not there."""
        start = None
        if self.task == "finetune":
            before = CASES["gpt every 20"].trajectory(data, cache, quick=quick)
            start = before.state(before.iterations[-1])
        found = trajectory(
            task(self.task, data, quick=quick), cache, self.checkpoints, self.every, start=start
        )
        return found.part(self.thinned or self.every, self.until or found.iterations[-1])


CASES = {
    case.name: case
    for case in (
        Case("logistic every 1", "logistic", 50, 1, marks=(10,)),
        Case("logistic every 20", "logistic", 50, 20, restores=True),
        Case("lenet every 1", "lenet", 50, 1, marks=(10,)),
        Case("lenet every 20", "lenet", 50, 20, restores=True, apart=5),
        Case("batchnorm every 20", "batchnorm", 50, 20),
        Case("momentum every 20", "momentum", 50, 20, close=True),
        Case("spike every 20", "spike", 50, 20, close=True),
        Case("gpt every 20", "gpt", 50, 20, marks=(60, 300), restores=True, apart=1, curve=True),
        Case("gpt every 20 to 400", "gpt", 50, 20, close=True, until=400),
        Case("gpt every 20 to 700", "gpt", 50, 20, close=True, until=700),
        Case("gpt every 100", "gpt", 50, 20, close=True, curve=True, thinned=100),
        Case("finetune every 20", "finetune", 50, 20, close=True, seeds=3),
    )
}


@dataclass(frozen=True)
class Piece:
    """A part of a trial, whose result is kept in a file.

    Parameters
    ----------
    case, scheme
        What is measured.
    kind
        ``"chain"``, ``"resume"`` (for one seed), ``"restores"`` or ``"apart"`` (for one seed).
    seed
        Of the batches, where it resumes.
    data, cache
        Folders.
    quick
        Whether networks are small, seeds few, the first mark is the only one, and no run is long.
    """

    case: str
    scheme: str
    kind: str
    data: Path
    cache: Path
    quick: bool
    seed: int = 0

    @property
    def marks(self) -> tuple[int, ...]:
        """Iterations after which resumed runs are compared."""
        close = self.scheme in {EXACT, OLDER} or is_close(self.scheme)
        return CASES[self.case].marks[: 1 if self.quick or not close else None]

    @cached_property
    def path(self) -> Path:
        """File of the result; its name tells the code that made it."""
        key = f"{CASES[self.case].checkpoints}-{_source(self.scheme)}-{'quick' if self.quick else 'full'}"
        name = f"{self.case}-{self.scheme}".replace(" ", "_").replace("/", "_").replace(",", "")
        return self.cache / "trials" / f"{name}-{self.kind}-{self.seed}-{key}.json"

    @property
    def result(self) -> dict[str, Any] | None:
        """What was measured, or ``None`` where it was not yet."""
        found = json.loads(self.path.read_text()) if self.path.exists() else None
        if found is not None and self.kind == "resume" and len(found["losses"]) < len(self.marks):
            return None
        return found

    def run(self) -> None:
        """Measure, and keep the result."""
        found = CASES[self.case].trajectory(self.data, self.cache, quick=self.quick)
        begin = time.process_time()
        kinds = {
            "chain": self._chain,
            "resume": self._resume,
            "restores": self._restores,
            "apart": self._apart,
        }
        result = kinds[self.kind](found)
        result["cpu_seconds"] = time.process_time() - begin
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(result, indent=1) + "\n")

    @property
    def _states(self) -> Path:
        return self.path.with_name(
            self.path.name.replace(f"-{self.kind}-{self.seed}-", "-state-0-")
        ).with_suffix(".npz")

    def _chain(self, found: Trajectory) -> dict[str, Any]:
        last = found.iterations[-1]
        if self.scheme in {EXACT, OLDER}:
            state = found.state(last if self.scheme == EXACT else found.iterations[-2])
            return self._judged(found, state)
        scheme = _scheme(self.scheme)
        late = LATE if CASES[self.case].task in IMAGES and not scheme.lossless else 0
        result, state = chain(scheme, found.states(), found, late)
        if scheme.lossless:
            exact = found.state(last)
            if any(state[name].tobytes() != array.tobytes() for name, array in exact.items()):
                raise SystemExit(f"{self.scheme}: restored with other bits")
        return {**result, **self._judged(found, state)}

    def _judged(self, found: Trajectory, state: State) -> dict[str, Any]:
        state, impossible = resume.mended(state)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(self._states, **state)
        judged = resume.quality(found.task, state)
        return {
            "accuracy": judged.accuracy,
            "loss": judged.loss,
            "impossible": impossible,
        }

    def _resume(self, found: Trajectory) -> dict[str, Any]:
        with np.load(self._states) as file:
            state = {name: file[name] for name in file.files}
        return {"losses": resume.resumed(found.task, state, found.iterations[-1], self.seed, self.marks)}

    def _restores(self, found: Trajectory) -> dict[str, Any]:
        loss, impossible = resume.ten_restores(found, _scheme(self.scheme))
        return {"loss": loss, "degradation": loss / found.losses[-1] - 1, "impossible": impossible}

    def _apart(self, found: Trajectory) -> dict[str, Any]:
        scheme = None if self.scheme == EXACT else _scheme(self.scheme)
        losses, impossible = resume.ten_restores_apart(found, scheme, self.seed)
        return {"losses": losses, "impossible": impossible}


def chain(
    scheme: Scheme, states: Iterator[tuple[int, State]], found: Trajectory, late: int
) -> tuple[dict[str, Any], State]:
    """Save all states; return the bytes of the chain, the times, and what was restored last."""
    session = scheme.open()
    try:
        _, state = next(states)
        full = {
            role: 4 * sum(a.size for n, a in state.items() if n.startswith(f"{role}/"))
            for role in roles(state)
        }
        first = session.start(state)
        keyframes, deltas, weights, seconds, gaps = [first], [], [], [], []
        for number, (_, state) in enumerate(states, 2):
            sizes = session.save(state)
            if session.is_keyframe:
                keyframes.append(sum(sizes.values()))
            else:
                deltas.append(sum(sizes.values()))
                weights.append(sizes[WEIGHT])
                seconds.append(session.save_seconds)
            if late and number >= late and number % 5 == 0:
                was, got = (resume.quality(found.task, s).accuracy for s in (state, session.restore()))
                gaps.append(abs(got - was))
        restored = session.restore()
        checkpoints, total = len(keyframes) + len(deltas), sum(keyframes) + sum(deltas)
        result = {
            "checkpoints": checkpoints,
            "keyframes": len(keyframes),
            "keyframe_bytes": float(np.mean(keyframes)),
            "chain_bytes": total,
            "chain_ratio": checkpoints * sum(full.values()) / total,
            "delta_bytes": float(np.mean(deltas)),
            "delta_ratio": sum(full.values()) / float(np.mean(deltas)),
            "weight_ratio": full[WEIGHT] / float(np.mean(weights)),
            "save_seconds": median(seconds),
            "restore_seconds": session.restore_seconds,
            "restores": [asdict(restore) for restore in session.restores()],
            "late_gap": max(gaps, default=None),
        }
        return result, restored
    finally:
        session.close()


def _scheme(name: str) -> Scheme:
    return next(scheme for scheme in catalogue()[0] if scheme.name == name)


def _source(scheme: str) -> str:
    """Return a hash of the code that a result depends on; for lccodec's schemes all its modules."""
    benchmarks = Path(__file__).parents[1]
    files = [path for name in MADE_BY for path in sorted((benchmarks / name).glob("*.py"))]
    files.append(benchmarks / "trials" / "resume.py")
    if is_own(scheme):
        files += sorted(Path(lccodec.__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:10]


def pieces(cases: list[str], names: list[str], data: Path, cache: Path, *, quick: bool) -> list[Piece]:
    """Return all pieces in the order they are to be run in: what a table needs most comes first."""
    make: Callable[..., Piece] = lambda *a, **k: Piece(*a, data=data, cache=cache, quick=quick, **k)  # noqa: E731
    lossless = {scheme.name for scheme in catalogue()[0] if scheme.lossless}
    rows = [
        (case, name)
        for case in cases
        for name in (EXACT, OLDER, *names)
        if name in {EXACT, OLDER, *lossless}
        or (CASES[case].curve if is_variant(name) else is_close(name) or not CASES[case].close)
    ]
    lossy = [(case, name) for case, name in rows if name not in lossless]
    found = [make(case, name, "chain") for case, name in rows]
    for seed in OTHERS_SEEDS if quick else SEEDS:
        many = {EXACT, OLDER, *PRESETS, *VARIANTS}
        here = [(c, n) for c, n in lossy if seed in OTHERS_SEEDS or (n in many and seed <= CASES[c].seeds)]
        found += [make(case, name, "resume", seed=seed) for case, name in here]
    restored = [(case, name) for case, name in lossy if CASES[case].restores and is_close(name)]
    found += [make(case, name, "restores") for case, name in restored]
    presets = [(case, name) for case, name in lossy if name in {EXACT, *PRESETS}]
    return found + [
        make(case, name, "apart", seed=seed)
        for seed in SEEDS
        for case, name in presets
        if seed <= CASES[case].apart and not quick
    ]

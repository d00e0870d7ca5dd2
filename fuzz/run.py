"""Fuzz a target for a while: ``python fuzz/run.py TARGET [--seconds N] [--seed S] [--engine E]``.

Targets are ``frame``, ``manifest``, ``checkpoint``, ``chain``, ``follow``, ``bundle``, ``parity``,
``foreign``, ``skeleton`` and ``forms``.

The exit status is 0 where the invariant held, and 1 where an input broke it. That input and the
traceback are in ``fuzz/work/TARGET/`` then. An input may take `INPUT_SECONDS` of CPU, and the
process `MEMORY_BYTES` of address space.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import importlib.util
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Self

HERE = Path(__file__).parent
TARGETS = (
    *("frame", "manifest", "checkpoint", "chain", "follow", "bundle", "parity", "foreign", "skeleton"),
    "forms",
)
INPUT_SECONDS = 10
WAIT_SECONDS = 300  # that an input may take on the clock of a busy machine
MEMORY_BYTES = 4 << 30
MAX_INPUT_BYTES = 1 << 17

Check = Callable[[bytes], None]


class Overtime(BaseException):
    """An input took too long; not an Exception, so that nothing on the way takes it for its own."""


class Session:
    """Runs inputs, counts them and keeps the one that breaks the invariant. A context manager.

    ``current`` in the directory `work` is the input that runs, should the process be killed.
    """

    def __init__(self, check: Check, work: Path) -> None:
        self.check = check
        self.work = work
        self.runs = 0
        self.began = time.monotonic()
        work.mkdir(parents=True, exist_ok=True)
        self._current = (work / "current").open("wb", buffering=0)
        self._watched = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._current.close()

    @property
    def seconds(self) -> float:
        """Time since the session began."""
        return time.monotonic() - self.began

    def run(self, data: bytes) -> bool:
        """Run one input and return whether the invariant held."""
        self.runs += 1
        self._current.seek(0)
        self._current.truncate()
        self._current.write(data)
        self._watch()
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_PROF, INPUT_SECONDS)
        try:
            self.check(data)
        except KeyboardInterrupt:
            raise
        except BaseException:
            self._keep(data, traceback.format_exc())
            return False
        finally:
            if hasattr(signal, "setitimer"):
                signal.setitimer(signal.ITIMER_PROF, 0)
        return True

    def _watch(self) -> None:
        """Print the place and end the process where a call outside Python delays the alarm."""
        if self.seconds > self._watched + 1:  # a thread is started each time
            self._watched = self.seconds
            faulthandler.dump_traceback_later(WAIT_SECONDS, exit=True, file=sys.__stderr__)

    def _keep(self, data: bytes, trace: str) -> None:
        path = self.work / sha256(data).hexdigest()[:16]
        path.write_bytes(data)
        path.with_suffix(".txt").write_text(trace)
        print(f"{trace}\nthe invariant is broken by {path}")

    def report(self, outcomes: Counter[str]) -> None:
        """Print how much was run and where it led."""
        rules = sorted(outcome for outcome in outcomes if outcome.startswith("LCC-"))
        print(f"{self.runs} runs, {self.runs / self.seconds:.0f} runs/s, {len(rules)} rules reached")
        print(" ".join(rules))
        print(", ".join(f"{outcomes[o]} {o}" for o in sorted(set(outcomes) - set(rules))), flush=True)


def attack(
    session: Session, seeds: Sequence[bytes], tokens: Sequence[bytes], seconds: float, seed: int
) -> bool:
    """Run the seeds, then mutations of them until the time is over; return if all held."""
    from mutation import mutate

    rng = random.Random(seed)
    for data in seeds:
        if not session.run(data):
            return False
    small = [data for data in seeds if len(data) < 1 << 12]
    while session.seconds < seconds:
        parent = rng.choice(small if rng.random() < 0.9 else seeds)
        if not session.run(mutate(parent, small, tokens, rng)[:MAX_INPUT_BYTES]):
            return False
    return True


def attack_with_atheris(
    session: Session, outcomes: Counter[str], seeds: Sequence[bytes], seconds: float, seed: int
) -> NoReturn:
    """Let atheris choose the inputs by the branches they reach; ends the process."""
    import atheris

    def one_input(data: bytes) -> None:
        held = session.run(data)
        if not held or session.seconds > seconds:
            session.report(outcomes)
            os._exit(0 if held else 1)  # libFuzzer would not return to Python

    with tempfile.TemporaryDirectory() as corpus:
        for number, data in enumerate(seeds):
            (Path(corpus) / str(number)).write_bytes(data)
        # Time and memory are watched here, with a traceback to show for it.
        options = [f"-seed={seed + 1}", f"-max_len={MAX_INPUT_BYTES}", "-timeout=0", "-rss_limit_mb=0"]
        atheris.Setup([sys.argv[0], *options, "-verbosity=0", corpus], one_input)
        atheris.Fuzz()
    sys.exit(0)


def load_target(name: str, *, instrumented: bool = False) -> Any:
    """Import a target, and with it lccodec, with the branches counted for atheris if asked to."""
    if not instrumented:
        return importlib.import_module(f"target_{name}")
    import atheris

    with atheris.instrument_imports(include=["lccodec"]):
        return importlib.import_module(f"target_{name}")


def inputs_of(name: str, target: Any) -> list[bytes]:
    """Return the first inputs of a target: regressions, vectors of the specification, and seeds."""
    paths = sorted((HERE / "regressions" / name).iterdir())
    vectors = target.vectors() if hasattr(target, "vectors") else ()
    return [*(path.read_bytes() for path in paths), *vectors, *target.seeds()]


def limit_resources() -> None:
    """Bound the address space, and have an input interrupted that takes too much time."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    signal.signal(signal.SIGPROF, _overtime)


def _overtime(_: int, __: FrameType | None) -> NoReturn:
    raise Overtime(f"more than {INPUT_SECONDS} s of CPU")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    has_atheris = importlib.util.find_spec("atheris") is not None
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--engine", choices=("atheris", "mutation"), default="atheris" if has_atheris else "mutation"
    )
    arguments = parser.parse_args()

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads take address space, and are not needed
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    warnings.simplefilter("error")  # a warning is not among what decoding may give either
    target = load_target(arguments.target, instrumented=arguments.engine == "atheris")
    seeds = inputs_of(arguments.target, target)
    limit_resources()
    with Session(target.check, HERE / "work" / arguments.target) as session:
        if arguments.engine == "atheris":
            attack_with_atheris(session, target.outcomes, seeds, arguments.seconds, arguments.seed)
        held = attack(session, seeds, target.TOKENS, arguments.seconds, arguments.seed)
        session.report(target.outcomes)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

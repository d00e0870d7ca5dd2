"""A table of which a share of the rows changes between two saves: bytes, time and memory.

Chains that keep hashes of the newest state, chains that keep the state, and zstd over all of it.
Each saves the same states. Seconds are those of processors, of all threads of this process: they
mean something on a machine that others use too. A read of the state is a pass of SHA-256 over it.
The most memory is that of the whole process (Linux only), beyond what it had with the state alone.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import lccodec

from ..measure.results import add_results, tell

__all__ = ["main"]

COLUMNS: Final = 256
SHARES: Final = (0.001, 0.01, 0.1)
STEP: Final = 1e-3  # of the values that change; those of the table are 0.02
MAX_FILE, MAX_TIME, MAX_RESTART = 1.05, 4.0, 1.0  # over the rows, over a read, seconds for 1 GB
MAX_MEMORY: Final = (1 / 1000, 128 << 20)  # of the state, and bytes
#: What changes: the name in the table, and how rows are chosen and changed.
CHANGES: Final = ("steps, anywhere", "steps, in a row", "any bits, anywhere")
STATUS, REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass
class Row:
    """What a save took: bytes of its file over those of the rows, seconds, most bytes of memory."""

    scheme: str
    change: str
    share: float
    size: float
    seconds: float
    memory: int


def fill(table: np.ndarray) -> None:
    """Fill the table with small normal numbers."""
    rng = np.random.default_rng(0)
    for start in range(0, len(table), 10_000):
        part = table[start : start + 10_000]
        part[:] = rng.standard_normal(part.shape, np.float32) * np.float32(0.02)


def change_rows(table: np.ndarray, change: str, share: float, seed: int) -> int:
    """Change a share of the rows in place; return their bytes."""
    rng, count = np.random.default_rng(seed), max(round(share * len(table)), 1)
    first = int(rng.integers(0, len(table) - count + 1))
    rows = np.arange(first, first + count)
    if change.endswith("anywhere"):
        rows = rng.choice(len(table), count, replace=False)
    if change.startswith("steps"):
        table[rows] += rng.standard_normal((count, COLUMNS), np.float32) * np.float32(STEP)
    else:
        table[rows] = rng.integers(0, 1 << 32, (count, COLUMNS), np.uint32).view(np.float32)
    return count * COLUMNS * table.itemsize


def _memory(name: str) -> int:
    line = next((line for line in STATUS.read_text().splitlines() if line.startswith(name)), None)
    return 0 if line is None else 1024 * int(line.split()[1])


@contextmanager
def watched(before: int) -> Iterator[list[float]]:
    """Note the processors' seconds of what is done, and the most memory beyond that of before."""
    gc.collect()
    found: list[float] = []
    if REFERENCES.exists():
        REFERENCES.write_text("5")  # the high-water mark begins anew
    start = time.process_time()
    yield found
    found.append(time.process_time() - start)
    found.append(_memory("VmHWM") - before if STATUS.exists() else 0)


def read_seconds(table: np.ndarray, place: Path) -> float:
    """Return how long a file of the state takes to read from the disk."""
    path, piece = place / "state", bytearray(1 << 22)
    with path.open("wb", buffering=0) as file:
        table.tofile(file)
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    start = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(piece):
            pass
    seconds = time.perf_counter() - start
    path.unlink()
    return seconds


def hash_seconds(table: np.ndarray) -> float:
    """Return how long SHA-256 of the state takes."""
    start = time.process_time()
    hashlib.sha256(table)
    return time.process_time() - start


def zstd_rows(table: np.ndarray, place: Path, before: int, rounds: int) -> Iterator[Row]:
    """Compress the whole state each time; only its first size matters."""
    import zstandard

    for share in SHARES:
        taken = []
        for seed in range(rounds):
            nbytes = change_rows(table, CHANGES[0], share, seed)
            with watched(before) as found, (place / "zstd").open("wb") as file:
                writer = zstandard.ZstdCompressor(level=1).stream_writer(file, closefd=False)
                writer.write(table.data)
                writer.close()
                os.fsync(file.fileno())
            taken.append((found, (place / "zstd").stat().st_size / nbytes))
        yield _best("zstd -1", CHANGES[0], share, taken)


def _best(scheme: str, change: str, share: float, taken: list[tuple[list[float], float]]) -> Row:
    seconds = min(found[0] for found, _ in taken)
    return Row(scheme, change, share, taken[-1][1], seconds, int(max(found[1] for found, _ in taken)))


def chain_rows(
    table: np.ndarray, place: Path, before: int, rounds: int, reference: Any
) -> tuple[list[Row], float]:
    """Save a keyframe and deltas; return them, and the seconds that another writer begins with."""
    options = {"policy": "lossless", "newest": "history", "keyframe_every": 1000, "reference": reference}
    rows = []
    with lccodec.Chain(place, **options) as chain:
        with watched(before) as found:
            size = chain.save(0, {"table": table})
        rows.append(Row(reference, "keyframe", 1.0, size / table.nbytes, found[0], int(found[1])))
        for change in CHANGES if reference == "hashes" else CHANGES[:-1]:
            for share in SHARES:
                taken = []
                for seed in range(rounds):
                    nbytes = change_rows(table, change, share, 100 + seed)
                    with watched(before) as found:
                        size = chain.save(len(chain.steps), {"table": table})
                    taken.append((found, size / nbytes))
                rows.append(_best(reference, change, share, taken))
    seconds = []
    with lccodec.Chain(place, **options) as chain:
        for _ in range(3):
            start = time.process_time()
            chain.save(len(chain.steps), {"table": table})
            seconds.append(time.process_time() - start)
    return rows, seconds[0] - min(seconds[1:])


def main(arguments: list[str] | None = None) -> int:
    """Print the table; return 1 if a bound is missed."""
    parser = argparse.ArgumentParser(prog="tables.py", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, default=1e6, help=f"of {COLUMNS} float32 numbers")
    parser.add_argument("--rounds", type=int, default=3, help="of each row: the best time counts")
    parser.add_argument("--directory", type=Path, help="where the chains are written")
    add_results(parser)
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    restarts: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="lccodec-tables-", dir=options.directory) as name:
        table = np.empty((int(options.rows), COLUMNS), np.float32)
        fill(table)
        read = min(read_seconds(table, Path(name)) for _ in range(options.rounds))
        hashes = min(hash_seconds(table) for _ in range(options.rounds))
        before = _memory("VmRSS") if STATUS.exists() else 0
        for reference in ("hashes", "values"):
            fill(table)
            found, restarts[reference] = chain_rows(
                table, Path(name, reference), before, options.rounds, reference
            )
            rows += found
        fill(table)
        rows += zstd_rows(table, Path(name), before, options.rounds)
    text, missed = told(rows, restarts, read, hashes, table.nbytes)
    tell(text, "tables.py", options.results)
    return int(missed)


def told(
    rows: list[Row], restarts: dict[str, float], read: float, hashes: float, nbytes: int
) -> tuple[str, bool]:
    """Return the table and what is below it, and whether a bound is missed."""
    lines = [
        "| rows that change | share | saved by | file over them | seconds | over a read | beyond the state |",
        "|---|---:|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        share = "" if row.change == "keyframe" else f"{row.share:.1%}"
        cells = (
            *(row.change, share, row.scheme, f"{row.size:.3f}x", f"{row.seconds:.2f}"),
            *(f"{row.seconds / hashes:.1f}x", f"{row.memory / 2**20:,.0f} MiB"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    own = [row for row in rows if row.scheme == "hashes"]
    (one,) = [row for row in own if (row.change, row.share) == (CHANGES[0], 0.01)]
    memory, most = max(row.memory for row in own), nbytes * MAX_MEMORY[0] + MAX_MEMORY[1]
    restart = restarts["hashes"] / (nbytes / 1e9)
    bounds = [
        ("file over 1 % of the rows", one.size, MAX_FILE, "x"),
        ("time over one read of the state", one.seconds / hashes, MAX_TIME, "x"),
        ("memory beyond the state", memory / 2**20, most / 2**20, " MiB"),
        ("restart of the writer, for 1 GB", restart, MAX_RESTART, " s"),
    ]
    lines += ["", '| bound, `reference="hashes"` | measured | must be | |', "|---|---:|---:|---|"]
    for what, found, bound, unit in bounds:
        state = "met" if found <= bound else "missed"
        lines.append(f"| {what} | {found:.2f}{unit} | {bound:.2f}{unit} | {state} |")
    lines += [
        "",
        f"The state has {nbytes / 1e9:.2f} GB. SHA-256 of it takes {hashes:.2f} s. A file of it is read from"
        f" the disk in {read:.2f} s by the clock.",
        f"Another writer begins after {restarts['hashes']:.2f} s with hashes, and after"
        f" {restarts['values']:.1f} s with values, which are decoded.",
    ]
    return "\n".join(lines), any(found > bound for _, found, bound, _ in bounds)

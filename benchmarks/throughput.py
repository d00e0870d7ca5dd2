"""Throughput of the array codec: encode, and decode-and-apply, against np.copyto of the same bytes.

Every figure is a ratio measured in one run on one thread, in rounds that take the reference and the
codec in turn, so that the machine's noise meets both; the best round counts.

The differences are real: one layer of two successive LeNet-5 checkpoints (``lenet.py --states``), repeated
to the size asked for, or without that file a heavy-tailed random walk.

Run ``python benchmarks/throughput.py [--states FILE.npz] [--elements N] [--json FILE]``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import lccodec

QUANTIZERS = {
    "lc-2": lccodec.ExponentBuckets(bits=2),
    "lc-3": lccodec.ExponentBuckets(bits=3),
    "uniform, 2 x rms": lccodec.UniformDeadzone(relative_step=2),
    "uniform, 1 x rms": lccodec.UniformDeadzone(relative_step=1),
    "lossless": lccodec.Lossless(),
}


@dataclass(frozen=True)
class Row:
    """One quantizer: times as multiples of np.copyto of the array's bytes."""

    quantizer: str
    bits_per_value: float
    encode: float
    decode: float
    decode_fresh: float


def deltas(states: Path | None, elements: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Return an array, its reference, and what they are."""
    if states is None:
        rng = np.random.default_rng(0)
        reference = rng.standard_normal(elements, np.float32)
        scale = np.exp(rng.standard_normal(elements, np.float32)) * np.float32(0.003)
        return reference + rng.standard_normal(elements, np.float32) * scale, reference, "random walk"
    with np.load(states) as data:
        steps = sorted({int(name.split("/")[0]) for name in data.files})
        middle = len(steps) // 2
        before, after = (data[f"{steps[i]}/fc1.weight"].reshape(-1) for i in (middle, middle + 1))
    repeats = -(-elements // before.size)
    return (
        np.tile(after, repeats)[:elements],
        np.tile(before, repeats)[:elements],
        "LeNet-5 fc1, one interval",
    )


def measure(array: np.ndarray, reference: np.ndarray, rounds: int) -> tuple[list[Row], dict[str, float]]:
    """Return the rows, and the time of the reference."""
    out = np.empty_like(array)
    jobs: dict[str, Callable[[], object]] = {"copy": lambda: np.copyto(out, array)}
    frames = {name: lccodec.encode(array, q, reference) for name, q in QUANTIZERS.items()}
    for name, quantizer in QUANTIZERS.items():
        frame = frames[name]
        jobs[f"encode {name}"] = lambda q=quantizer: lccodec.encode(array, q, reference)
        jobs[f"decode {name}"] = lambda f=frame: lccodec.decode(f, reference, out)
        jobs[f"fresh {name}"] = lambda f=frame: lccodec.decode(f, reference)
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds):
        for name, job in jobs.items():
            # The reference is short and so the noisiest: take it more often.
            for _ in range(5 if name == "copy" else 1):
                start = time.perf_counter()
                job()
                best[name] = min(best[name], time.perf_counter() - start)
    copy = best["copy"]
    rows = [
        Row(
            quantizer=name,
            bits_per_value=8 * len(frames[name]) / array.size,
            encode=best[f"encode {name}"] / copy,
            decode=best[f"decode {name}"] / copy,
            decode_fresh=best[f"fresh {name}"] / copy,
        )
        for name in QUANTIZERS
    ]
    return rows, {"copy_ns_per_value": copy / array.size * 1e9}


def main() -> None:
    """Measure and print a markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=Path, help="states of lenet.py --states")
    parser.add_argument("--elements", type=int, default=16_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    array, reference, what = deltas(options.states, options.elements)
    rows, extra = measure(array, reference, options.rounds)
    print(f"{options.elements:,} float32, {what}; copyto {extra['copy_ns_per_value']:.2f} ns a value\n")
    print("| quantizer | bits a value | encode | decode into | decode, fresh array |")
    print("|---|---|---|---|---|")
    for row in rows:
        speeds = " | ".join(f"1/{value:.1f}" for value in (row.encode, row.decode, row.decode_fresh))
        print(f"| {row.quantizer} | {row.bits_per_value:.3f} | {speeds} |")
    if options.json:
        document = {
            "elements": options.elements,
            "data": what,
            **extra,
            "rows": [asdict(row) for row in rows],
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()

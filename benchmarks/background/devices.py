"""A model on a device: how long it waits for a save in the background, and for an update."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

import lccodec
from lccodec.adapters import torch as adapter

from ..measure.results import add_results, put_into

#: Parts of the weights that an update changes.
SHARES: Final = (0.003, 0.01, 0.05)
#: Sides of the square matrices of the model, but for the last ones.
SIDE: Final = 2048

#: What was timed, its seconds, and these over the seconds of the first row.
Row = tuple[str, float, float]


class Clock:
    """Times calls whose work is queued on a device."""

    def __init__(self, device: torch.device) -> None:
        self._wait = (lambda: torch.cuda.synchronize(device)) if device.type == "cuda" else (lambda: None)

    def __call__(self, call: Callable[[], object]) -> float:
        """Return the seconds of a call, until its work is done."""
        self._wait()
        start = time.perf_counter()
        call()
        self._wait()
        return time.perf_counter() - start

    def typical(self, call: Callable[[], object], rounds: int) -> float:
        """Return the median of some calls behind one that warms up."""
        return statistics.median([self(call) for _ in range(rounds + 1)][1:])


def model(device: torch.device, megabytes: float) -> torch.nn.Module:
    """Return layers of bfloat16 weights, so many megabytes in all."""
    side = min(SIDE, int((megabytes * 1e6 / 8) ** 0.5))
    count = max(1, round(megabytes * 1e6 / (2 * side * side)))
    layers = [torch.nn.Linear(side, side, bias=False, dtype=torch.bfloat16) for _ in range(count)]
    return torch.nn.Sequential(*layers).to(device)


def change(network: torch.nn.Module, share: float) -> None:
    """Give so many of the weights one of their neighbours in bfloat16, as a small step does."""
    with torch.no_grad():
        for weight in network.parameters():
            bits = weight.view(torch.int16).view(-1)
            places = torch.randint(bits.numel(), (max(1, round(share * bits.numel())),), device=bits.device)
            bits[places] ^= 1


def saves(device: torch.device, megabytes: float, rounds: int) -> Iterator[Row]:
    """Yield what training waits for: the call of `save_async`, beside copies of the same bytes."""
    clock, network = Clock(device), model(device, megabytes)
    tensors = list(network.parameters())
    pinned = [torch.empty_like(each, device="cpu", pin_memory=device.type == "cuda") for each in tensors]
    plain = [torch.empty_like(each, device="cpu") for each in tensors]

    def copy(into: list[torch.Tensor]) -> None:
        with torch.no_grad():
            for target, source in zip(into, tensors, strict=True):
                target.copy_(source, non_blocking=True)

    floor = clock.typical(lambda: copy(pinned), rounds)
    yield "copies into pinned memory", floor, 1.0
    plain_seconds = clock.typical(lambda: copy(plain), rounds)
    yield "copies into other memory", plain_seconds, plain_seconds / floor
    with chain(device) as (opened, _):
        step = iter(range(rounds + 2))

        def save() -> None:
            opened.save_async(next(step), {"model": network.state_dict()})

        first = clock(save)
        opened.wait()
        calls = []
        for _ in range(rounds):
            change(network, SHARES[0])
            calls.append(clock(save))
            opened.wait()
    yield "the call of save_async, the first", first, first / floor
    typical = statistics.median(calls)
    yield "the call of save_async, median", typical, typical / floor


def updates(device: torch.device, megabytes: float, rounds: int) -> Iterator[Row]:
    """Yield what a served model waits for, beside a copy of all of it on its device."""
    clock, trained, served = Clock(device), model(device, megabytes), model(device, megabytes)

    def copy() -> None:
        with torch.no_grad():
            for target, source in zip(served.parameters(), trained.parameters(), strict=True):
                target.copy_(source)

    with chain(device) as (opened, directory), lccodec.follow(directory, timeout=0) as follower:
        whole = clock.typical(copy, rounds)
        yield "a copy of the whole model on the device", whole, 1.0
        step = iter(range(1, 1_000_000))
        opened.save(0, {"model": trained.state_dict()})
        for update in follower:
            adapter.apply_update(served, update, prefix="model")
        for share in SHARES:
            staging, pauses = [], []
            for _ in range(rounds + 1):
                change(trained, share)
                opened.save(next(step), {"model": trained.state_dict()})
                for update in follower:
                    staged, seconds = take(clock, served, update)
                    staging.append(seconds)
                    pauses.append(clock(staged.apply))
                for target, source in zip(served.parameters(), trained.parameters(), strict=True):
                    assert torch.equal(target.view(torch.int16), source.view(torch.int16))
            for name, taken in (("stage", staging[1:]), ("apply, the pause", pauses[1:])):
                typical = statistics.median(taken)
                yield f"{share:.1%} changed: {name}", typical, typical / whole


def take(clock: Clock, served: torch.nn.Module, update: lccodec.Update) -> tuple[Any, float]:
    """Stage an update; return it, and the seconds that took."""
    found: list[Any] = []
    seconds = clock(lambda: found.append(adapter.stage(served, update, prefix="model")))
    return found[0], seconds


@contextmanager
def chain(device: torch.device) -> Iterator[tuple[lccodec.Chain, str]]:
    """Open a lossless chain in a directory that goes away."""
    with tempfile.TemporaryDirectory(prefix="lccodec-devices-") as directory:
        options = {"adapter": adapter.OnDevice(device), "newest": "history", "workers": 2}
        with lccodec.Chain(directory, "lossless", **options) as opened:  # type: ignore[arg-type]
            yield opened, directory


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="devices.py", description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--megabytes", type=float, default=1000, help="of the model")
    parser.add_argument("--rounds", type=int, default=5, help="of each row")
    add_results(parser)
    options = parser.parse_args(arguments)
    name = torch.cuda.get_device_name(options.device) if options.device.type == "cuda" else "the CPU"
    about = f"{name}, a model of {options.megabytes:,.0f} MB; PyTorch {torch.__version__}"
    lines = [f"`python benchmarks/devices.py`; {about}."]
    for measure in (saves, updates):
        lines += ["", "| what | milliseconds | over the first row |", "|---|---:|---:|"]
        for what, seconds, ratio in measure(options.device, options.megabytes, options.rounds):
            lines.append(f"| {what} | {1e3 * seconds:.2f} | {ratio:.2f} |")
            print(lines[-1], flush=True)
    if options.results:
        put_into(options.results, "devices.py", "\n".join(lines))
    return 0

"""What the rounded copy of the weights of a run in mixed precision costs a chain.

A GPT computes with bfloat16 weights. AdamW changes their float32, of which they are the rounding.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import lccodec
import lccodec.adapters.torch

from ..networks.models import GPT
from .averages import CHECKPOINTS, CONTEXT, EVERY, LOOKED_AT, loss, texts


def loss_of(weights: Mapping[str, Any], test: torch.Tensor) -> float:
    """Return the test loss of rounded weights."""
    model = GPT(128, 2, 4, CONTEXT).to(torch.bfloat16)
    model.load_state_dict({name: torch.as_tensor(each) for name, each in weights.items()})
    with torch.no_grad():
        return loss(model.float(), test).item()


def measure(policy: str, seed: int) -> tuple[list[int], list[float], float]:
    """Return bytes and seconds of chains without copies and with them, and the gap in intervals."""
    torch.manual_seed(seed)
    model, test = GPT(128, 2, 4, CONTEXT), texts(256, 7)
    master = {name: each.detach().clone().requires_grad_() for name, each in model.named_parameters()}
    model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(master.values(), 1e-3)
    batches = texts(16 * EVERY * CHECKPOINTS, 100 + seed).split(16)
    exact, restored, seconds = [], [], [0.0, 0.0]
    with tempfile.TemporaryDirectory() as directory:
        places = [Path(directory, name) for name in ("alone", "with")]
        settings = {"policy": policy, "newest": "history", "adapter": lccodec.adapters.torch}
        with lccodec.Chain(places[0], **settings) as alone, lccodec.Chain(places[1], **settings) as beside:
            for step in range(CHECKPOINTS):
                for batch in batches[step * EVERY : (step + 1) * EVERY]:
                    model.zero_grad()
                    loss(model, batch).backward()
                    for name, each in model.named_parameters():
                        master[name].grad = each.grad.float()
                    optimizer.step()
                    model.load_state_dict(master, strict=False)
                weights = {name: model.state_dict()[name] for name in master}
                state = {"optimizer": optimizer.state_dict(), "master": master}
                for place, (chain, own) in enumerate(((alone, state), (beside, {"model": weights, **state}))):
                    start = time.perf_counter()
                    chain.save(step, own)
                    seconds[place] += time.perf_counter() - start
                if step in LOOKED_AT:
                    exact.append(loss_of(weights, test))
                    restored.append(loss_of(beside.restore(step)["model"], test))
        sizes = [sum(file.stat().st_size for file in place.rglob("*.h5")) for place in places]
    gap = (sum(restored) - sum(exact)) / len(exact)
    return sizes, seconds, gap / ((exact[0] - exact[-1]) / (LOOKED_AT[-1] - LOOKED_AT[0]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", nargs="+", default=["lossless", "balanced", "small"])
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args(arguments)
    print(
        "| policy | seed | float32 alone | with copies | more | time | gap |\n|---|---|---|---|---|---|---|"
    )
    for policy in chosen.policies:
        for seed in range(chosen.seeds):
            (alone, beside), seconds, gap = measure(policy, seed)
            print(
                f"| `{policy}` | {seed} | {alone:,} | {beside:,} | {beside / alone - 1:.1%} "
                f"| {seconds[1] / seconds[0]:.2f} | {gap:.2f} |",
                flush=True,
            )

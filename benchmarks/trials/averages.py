"""What an average of the weights costs a chain, and what a lossy average costs its loss.

The language is made up, so that no data set is needed.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import lccodec
import lccodec.adapters.torch

from ..networks.models import CHARACTERS, GPT

CHECKPOINTS = 50
EVERY = 20  # iterations
CONTEXT = 32
LOOKED_AT = range(4, CHECKPOINTS, 5)


def texts(count: int, seed: int) -> torch.Tensor:
    """Return texts of a made-up language: each character follows from the two before it."""
    rules = torch.randint(0, CHARACTERS, (8, CHARACTERS, 3), generator=torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(0, CHARACTERS, (count, CONTEXT + 1), generator=generator)
    # The last of three rules is taken half of the time.
    rule = torch.randint(0, 4, text.shape, generator=generator).clamp(max=2)
    for place in range(2, CONTEXT + 1):
        text[:, place] = rules[text[:, place - 2] % 8, text[:, place - 1], rule[:, place]]
    return text


def loss(model: torch.nn.Module, text: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of all characters that have two before them."""
    return functional.cross_entropy(model(text[:, :-1])[:, 1:].flatten(0, 1), text[:, 2:].flatten())


def loss_of(average: Mapping[str, Any], test: torch.Tensor) -> float:
    """Return the test loss of the state of an average."""
    model = GPT(128, 2, 4, CONTEXT)
    model.load_state_dict(
        {name.removeprefix("module."): torch.as_tensor(each) for name, each in average.items() if "." in name}
    )
    with torch.no_grad():
        return loss(model, test).item()


def measure(policy: str, decay: float, seed: int) -> tuple[float, float, float]:
    """Return the ratio of the chain without an average and with it, and the gap in intervals."""
    torch.manual_seed(seed)
    model, test = GPT(128, 2, 4, CONTEXT), texts(256, 7)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
    batches = texts(16 * EVERY * CHECKPOINTS, 100 + seed).split(16)
    nbytes = 4 * sum(parameter.numel() for parameter in model.parameters())
    exact, restored = [], []
    with tempfile.TemporaryDirectory() as directory:
        places = [Path(directory, name) for name in ("without", "with")]
        settings = {"policy": policy, "newest": "history", "adapter": lccodec.adapters.torch}
        with lccodec.Chain(places[0], **settings) as without, lccodec.Chain(places[1], **settings) as beside:
            for step in range(CHECKPOINTS):
                for batch in batches[step * EVERY : (step + 1) * EVERY]:
                    optimizer.zero_grad()
                    loss(model, batch).backward()
                    optimizer.step()
                    average.update_parameters(model)
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                without.save(step, state)
                beside.save(step, {**state, "ema": average.state_dict()})
                if step in LOOKED_AT:
                    exact.append(loss_of(average.state_dict(), test))
                    restored.append(loss_of(beside.restore(step)["ema"], test))
        sizes = [sum(file.stat().st_size for file in place.rglob("*.h5")) for place in places]
    gap = sum(restored) - sum(exact)
    interval = (exact[0] - exact[-1]) / (LOOKED_AT[-1] - LOOKED_AT[0])
    first, second = (CHECKPOINTS * copies * nbytes / size for copies, size in zip((3, 4), sizes, strict=True))
    return first, second, gap / len(exact) / interval


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", nargs="+", default=["balanced", "small", "lossless"])
    parser.add_argument("--decays", nargs="+", type=float, default=[0.999, 0.99])
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args(arguments)
    print("| policy | decay | seed | without | with | share | gap |\n|---|---|---|---|---|---|---|")
    for policy in chosen.policies:
        for decay in chosen.decays:
            for seed in range(chosen.seeds):
                without, beside, gap = measure(policy, decay, seed)
                share = beside / without
                print(
                    f"| `{policy}` | {decay} | {seed} | {without:.1f}x | {beside:.1f}x | {share:.2f} "
                    f"| {gap:.2f} |",
                    flush=True,
                )

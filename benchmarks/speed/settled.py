"""Deltas of a settled chain: the weights of the GPT, each policy in its own closed loop.

The differences are those to what the chain has decoded. So most of them are movements that still
wait in the dead zone. Several deltas in a row are laid end to end, to make one large array.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

import lccodec
from lccodec.element_types import components
from lccodec.quantizers.uniform import weighted

from ..measure.figures import Figure
from .arrays import Codec, Missing, beside, measure_codecs, own
from .inputs import Walk
from .peers import bounded_peers, lossless_peers
from .plan import Plan

if TYPE_CHECKING:
    from ..networks.tasks import Run

__all__ = ["POLICIES", "SECTION", "WIDE", "settled", "sz3_name"]

SECTION = "settled"
POLICIES = ("lc-3", "balanced", "small")
WIDE = ("balanced", "small")  # their dead zones hold back what moved little, until it has moved far
ZSTD_OF = "balanced"  # whose differences the lossless peers get
DELTAS = 5  # laid end to end: 16 million values
EVERY = 20  # iterations
WEIGHT, MOMENT = "model.", "exp_avg_sq."

Arrays = dict[str, np.ndarray]


def sz3_name(policy: str) -> str:
    """Return the row of SZ3 at the maximum error of a policy."""
    return f"SZ3, max error of {policy}"


@dataclass(frozen=True)
class Laid:
    """Values of several deltas, end to end: weights, second moments, and references by policy."""

    array: np.ndarray
    moment: np.ndarray
    references: Arrays


def settled(plan: Plan, walk: Walk) -> tuple[list[Figure], Missing]:  # noqa: ARG001 - as all sections
    """Measure the policies on their own deltas, beside zstd and SZ3 on the same differences."""
    if plan.data is None:
        return [], ["settled deltas: they need --data"]
    with TemporaryDirectory(dir=plan.directory) as name:
        laid = _laid(_run(plan, plan.data), Path(name), plan.settling)
    out = np.empty_like(laid.array)
    codecs: list[Codec] = []
    found, absent = lossless_peers()
    for policy in POLICIES:
        reference = laid.references[policy]
        quantizer = lccodec.POLICIES[policy].roles["weight"]
        if policy not in WIDE:
            codecs.append(own(policy, quantizer, laid.array, reference, out))
            continue
        zones = _zones(quantizer, laid.moment)
        codecs.append(own(policy, zones, laid.array, reference, out))
        codecs.append(own(f"{policy}, zones of one width", quantizer, laid.array, reference, out))
        difference = laid.array - reference
        decoded = lccodec.decode(lccodec.encode(laid.array, zones, reference), reference)
        bound = float(np.abs(decoded - laid.array).max())
        bounded, none = bounded_peers(bound, f"max error of {policy}")
        absent = [*absent, *none]
        peers = {**bounded, **(found if policy == ZSTD_OF else {})}
        for peer_name, peer in peers.items():
            limit = bound if peer_name in bounded else None
            codecs.append(beside(peer_name, peer, difference, limit))
    case = f"{laid.array.size:,} float32, {DELTAS} deltas of the GPT after {plan.settling} others"
    return measure_codecs(SECTION, case, laid.array, out, codecs, plan.rounds), absent


def _zones(quantizer: Any, moment: np.ndarray) -> Any:
    """Return the quantizer as a chain has it: with dead zones by second moments."""
    kind, bits = components(moment)
    typical = float(np.mean(moment.astype(np.float64) ** 0.25)) ** 4
    return weighted(quantizer, bits, kind, typical)


def _run(plan: Plan, data: Path) -> Run:
    import torch

    from ..networks.tasks import Run, task

    torch.set_num_threads(1)
    return Run(task("gpt", data, quick=plan.small_network))


def _laid(run: Run, directory: Path, settling: int) -> Laid:
    """Train, save every so many iterations with each policy, and keep the last deltas."""
    opened = partial(lccodec.Chain, keyframe_every=1_000_000)
    chains = {policy: opened(directory / policy, policy=policy) for policy in POLICIES}
    arrays: list[np.ndarray] = []
    moments: list[np.ndarray] = []
    references: dict[str, list[np.ndarray]] = {policy: [] for policy in POLICIES}
    for step in range(settling + 1 + DELTAS):
        run.advance(EVERY, seed=0)
        state = {name.replace("/", "."): array for name, array in run.state().items()}
        names = [name for name in state if name.startswith(WEIGHT)]
        if step > settling:
            arrays += [state[name].reshape(-1) for name in names]
            moments += [state[_moment_of(name)].reshape(-1) for name in names]
        for policy, chain in chains.items():
            if step > settling:
                decoded = chain.restore(keys=names)
                references[policy] += [decoded[name].reshape(-1) for name in names]
            chain.save(step, state)
    for chain in chains.values():
        chain.close()
    laid = {policy: np.concatenate(parts) for policy, parts in references.items()}
    return Laid(np.concatenate(arrays), np.concatenate(moments), laid)


def _moment_of(name: str) -> str:
    return name.replace(WEIGHT, MOMENT, 1)

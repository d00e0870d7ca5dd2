"""What users tell an adapter of its chain: documented here once, and checked in one place."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..chain.chain import Chain
from ..chain.replay import KEYFRAME_EVERY
from ..container.system import checked_path
from ..errors import ArgumentError
from ..policy.policy import Policy
from ..policy.presets import resolve_policy

__all__ = ["ChainOptions"]


@dataclass(frozen=True)
class ChainOptions:
    """Where an adapter keeps its chain of deltas, and how.

    The constructors of the adapters for DCP, Orbax, Lightning, transformers and accelerate take these
    parameters under the same names, with the same defaults.

    Parameters
    ----------
    chain
        Directory of the chain, made by the first save. Without it each checkpoint is a lossless file of its
        own (DCP keeps its chains beside the checkpoint then).
    policy
        A preset (a name of `lccodec.POLICIES`) or a `Policy`, as for `Chain`. Exact by default: a lossy
        policy must be asked for, and needs a chain.
    keyframe_every
        The most deltas that a restore may replay, as for `Chain`.
    threads
        How many threads encode and decode, 0 for one each core.

    Raises
    ------
    ArgumentError
        For an unknown policy, a lossy policy without a chain, or what cannot be a local path.
    """

    chain: str | os.PathLike[str] | None = None
    policy: str | Policy = "lossless"
    keyframe_every: int = KEYFRAME_EVERY
    threads: int = 1

    def __post_init__(self) -> None:
        if self.chain is not None:
            checked_path(self.chain)
        policy = resolve_policy(self.policy)
        if self.chain is None and policy != resolve_policy("lossless"):
            raise ArgumentError(f"policy {policy.name!r} is for deltas, and they need a chain")

    def open(self) -> Chain | None:
        """Open the chain; None where each checkpoint stands alone."""
        return None if self.chain is None else self.open_in(Path(self.chain))

    def open_part(self, name: str) -> Chain | None:
        """Open the chain of one of several processes, in a directory of its own; None as `open`."""
        return None if self.chain is None else self.open_in(Path(self.chain, name))

    def open_in(self, directory: Path, adapter: Any = None) -> Chain:
        """Open a chain with these options in another directory."""
        return Chain(
            directory,
            self.policy,
            keyframe_every=self.keyframe_every,
            threads=self.threads,
            adapter=adapter,
        )

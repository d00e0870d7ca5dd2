"""Originals: the states as they were before anything was lost, to measure the loss.

They come from another chain, such as a lossless one of the same run, or from the exact file of the
chain itself. Files of other formats are read by :mod:`lccodec.adapters.files.steps`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol, Self

import numpy as np

from ...chain.read.checkpoint import OpenCheckpoint
from ...chain.read.replay import DecodedArray
from ...chain.store.store import Store
from ...constants import EXACT_NAME
from ...element_types import Array, components
from ...errors import LccodecError
from ..difference import Leaves
from ..source import Source


class Originals(Protocol):
    """States by step. They are asked for by rising step, and each is valid until the next."""

    @property
    def label(self) -> str:
        """Which originals they are, in words."""

    @property
    def steps(self) -> Collection[int]:
        """The steps that have an original."""

    def state(self, step: int) -> Mapping[str, Any]:
        """Return the leaves of a step by name: arrays and scalars.

        Raises
        ------
        LccodecError
            If it cannot be read.
        """


class ChainOriginals:
    """The states of another chain, each delta decoded once."""

    def __init__(self, source: Source) -> None:
        self.label = f"the states in {source.path}"
        self.steps: Collection[int] = source.steps.keys()
        self._visits = source.visits(decode=True)

    def state(self, step: int) -> Mapping[str, Any]:
        """Return the arrays of a step by name."""
        for number, visit in self._visits:
            if number == step:
                visit.check()
                arrays = visit.arrays()
                return {n: a.array("bits") for n, a in arrays.items() if isinstance(a, DecodedArray)}
        return {}  # it is gone


class ExactOriginals:
    """The newest state, from the exact file of the chain or the bundle."""

    def __init__(self, file: OpenCheckpoint, step: int) -> None:
        self.label = f"the exact file of step {step}"
        self.steps: Collection[int] = (step,)
        self._file = file

    def state(self, step: int) -> Mapping[str, Any]:  # noqa: ARG002 - it has only one
        """Return the leaves of the state; each array is decoded when it is asked for."""
        return Leaves(self._file)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @classmethod
    def of(cls, store: Store, named: bytes | None) -> Self | None:
        """Open the exact file of a store; ``None`` without one of its newest checkpoint.

        `named` is the root that the newest checkpoint names.
        """
        try:
            reader = store.open(EXACT_NAME)
        except LccodecError:
            return None
        if reader.root != named:
            reader.close()
            return None
        return cls(OpenCheckpoint(reader, None), reader.manifest.step or 0)


def original_bits(state: Mapping[str, Any], name: str, like: DecodedArray) -> Array | None:
    """Return the components of an original that has the type and shape of an array, or ``None``."""
    try:
        leaf = state.get(name)
        if not isinstance(leaf, np.ndarray) or leaf.shape != like.shape:
            return None
        kind, bits = components(leaf)
    except LccodecError:  # it is damaged, or of a type that no checkpoint has
        return None
    return bits if kind is like.kind else None

"""Partial checkpoints: SCAR and TOPN save what moved farthest, written from their descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .streams import State, Streams, join, named, roles, split

__all__ = ["Scar", "TopN"]


def farthest(moved: np.ndarray, share: float) -> np.ndarray:
    """Return the positions of the given share of the largest entries, rising."""
    count = max(1, int(moved.size * share))
    return np.sort(np.argpartition(moved, moved.size - count)[moved.size - count :])


@dataclass
class Scar:
    """SCAR's prioritized partial checkpoint (Qiao et al., ICML 2019).

    The share of the parameters that are farthest from their last saved value is saved, exactly,
    moments along with their weights. Which ones is a bit for each parameter, half of what a list
    would take.

    Parameters
    ----------
    share
        Of the parameters in one save.
    """

    share: float
    absolute = False
    codes_first = False
    snapshot_every = 0

    def encode(self, state: State, reference: State) -> Streams:
        """Return which parameters are saved, and their values."""
        weight, *moments = roles(state)
        moved = np.abs(join([state[n] - reference[n] for n in named(state, weight)]))
        chosen = np.zeros(moved.size, bool)
        chosen[farthest(moved, self.share)] = True
        streams = {weight: np.packbits(chosen).tobytes() + _masked(state, named(state, weight), chosen)}
        if moments:  # they belong to parameters, which are the weights without the buffers
            kept = _kept(state, weight, moments[0], chosen)
            streams |= {moment: _masked(state, named(state, moment), kept) for moment in moments}
        return streams

    def decode(self, streams: Streams, reference: State) -> State:
        """Return the reference with what was saved."""
        weight, *moments = roles(reference)
        vector = join([reference[n] for n in named(reference, weight)])
        bits = -(-vector.size // 8)
        chosen = np.unpackbits(np.frombuffer(streams[weight][:bits], np.uint8), count=vector.size).view(bool)
        vector[chosen] = np.frombuffer(streams[weight][bits:], np.float32)
        decoded = split(vector, reference, named(reference, weight))
        if moments:
            kept = _kept(reference, weight, moments[0], chosen)
            for moment in moments:
                names = named(reference, moment)
                vector = join([reference[n] for n in names])
                vector[kept] = np.frombuffer(streams[moment], np.float32)
                decoded |= split(vector, reference, names)
        return decoded


def _masked(state: State, names: Sequence[str], chosen: np.ndarray) -> bytes:
    return join([state[n] for n in names])[chosen].tobytes()


def _kept(state: State, weight: str, moment: str, chosen: np.ndarray) -> np.ndarray:
    """Return which elements of the moments belong to chosen weights."""
    parts = split(chosen, state, named(state, weight))
    return join([parts[f"{weight}/{name.split('/', 1)[1]}"] for name in named(state, moment)])


@dataclass
class TopN:
    """TOPN, a baseline of LC-Checkpoint's paper: the largest differences as index and exact value.

    Parameters
    ----------
    share
        Of the differences of each role.
    """

    share: float
    absolute = False
    codes_first = False
    snapshot_every = 0

    def encode(self, state: State, reference: State) -> Streams:
        """Return indices (uint32) and values of each role."""
        streams = {}
        for role in roles(state):
            now, before = (join([s[n] for n in named(state, role)]) for s in (state, reference))
            chosen = farthest(np.abs(now - before), self.share)
            streams[role] = chosen.astype(np.uint32).tobytes() + now[chosen].tobytes()
        return streams

    def decode(self, streams: Streams, reference: State) -> State:
        """Return the reference with what was saved."""
        decoded: State = {}
        for role, stream in streams.items():
            names = named(reference, role)
            vector = join([reference[n] for n in names])
            vector[np.frombuffer(stream[: len(stream) // 2], np.uint32)] = np.frombuffer(
                stream[len(stream) // 2 :], np.float32
            )
            decoded |= split(vector, reference, names)
        return decoded

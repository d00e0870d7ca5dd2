"""LC-Checkpoint as published, written from its description."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..compressors.huffman import huffman, unhuffman
from .streams import State, Streams, join, named, roles, split

__all__ = ["LCCheckpoint"]

SNAPSHOT_EVERY = 33  # "every so many" in the paper: as deep as lccodec's chains get


@dataclass
class LCCheckpoint:
    """LC-Checkpoint as published (Chen et al., ICML 2020): one set of buckets for a role.

    Differences that share sign and exponent share a bucket, which becomes the average of its
    largest and its smallest member; the 2**bits - 1 buckets of the largest exponents are kept, the
    rest becomes 0; bucket numbers are Huffman coded. The paper knows weights only; each moment gets
    a set of buckets of its own here, which is kinder than one for all.

    Parameters
    ----------
    bits
        Of priority promotion.
    """

    bits: int
    absolute = False
    codes_first = False
    snapshot_every = SNAPSHOT_EVERY

    def encode(self, state: State, reference: State) -> Streams:
        """Return representatives and Huffman coded bucket numbers of each role."""
        streams = {}
        for role in roles(state):
            names = named(state, role)
            delta = join([state[n] - reference[n] for n in names])
            keys = (delta.view(np.uint32) >> 23).astype(np.uint16)  # sign and exponent
            occupied = np.flatnonzero(np.bincount(keys, minlength=512))
            exponents = occupied & 255
            order = np.lexsort((occupied, -exponents))[: (1 << self.bits) - 1]
            promoted = occupied[order][exponents[order] > 0]  # zeros and subnormal numbers stay 0
            table = np.zeros(512, np.uint8)
            table[promoted] = np.arange(1, promoted.size + 1)
            symbols = table[keys]
            values = np.zeros(1 << self.bits, np.float32)
            for number in range(1, promoted.size + 1):
                members = delta[symbols == number]
                values[number] = (members.max() + members.min()) / 2
            streams[role] = values[1:].tobytes() + huffman(symbols)
        return streams

    def decode(self, streams: Streams, reference: State) -> State:
        """Return the reference plus the representatives."""
        decoded: State = {}
        head = 4 * ((1 << self.bits) - 1)
        for role, stream in streams.items():
            names = named(reference, role)
            values = np.concatenate([np.zeros(1, np.float32), np.frombuffer(stream[:head], np.float32)])
            vector = join([reference[n] for n in names]) + values[unhuffman(stream[head:])]
            decoded |= split(vector, reference, names)
        return decoded

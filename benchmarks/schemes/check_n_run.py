"""Rows that changed, each quantized between its ends: as Check-N-Run, from its description."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .streams import State, Streams, named, roles

__all__ = ["CheckNRun"]


@dataclass
class CheckNRun:
    """Like Check-N-Run (Eisenman et al., NSDI 2022): changed rows, each quantized between its ends.

    The values themselves are quantized, not differences. Arrays of one dimension are exact. In a
    dense network all rows change, so that nothing is left of the incremental part.

    Parameters
    ----------
    bits
        4 or 8, of a value.
    """

    bits: int
    absolute = True
    codes_first = True
    snapshot_every = 0

    def encode(self, state: State, reference: State) -> Streams:
        """Return for each array: changed rows, their lowest value and step, their values."""
        streams = {}
        levels = (1 << self.bits) - 1
        for role in roles(state):
            parts = []
            for name in named(state, role):
                if state[name].ndim < 2:
                    parts.append(state[name].tobytes())
                    continue
                rows = state[name].reshape(len(state[name]), -1)
                changed = (rows != reference[name].reshape(rows.shape)).any(axis=1)
                rows = rows[changed]
                low = rows.min(axis=1, keepdims=True, initial=np.inf)
                step = (rows.max(axis=1, keepdims=True, initial=-np.inf) - low) / np.float32(levels)
                codes = np.rint((rows - low) / np.where(step > 0, step, 1)).astype(np.uint8)
                if self.bits == 4:
                    codes = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2)))
                    codes = codes[:, ::2] << 4 | codes[:, 1::2]
                parts += [np.packbits(changed).tobytes(), low.tobytes(), step.tobytes(), codes.tobytes()]
            streams[role] = b"".join(parts)
        return streams

    def decode(self, streams: Streams, reference: State) -> State:
        """Return the rows as they were quantized, and the others from the reference."""
        decoded = {}
        for role, stream in streams.items():
            at = 0

            def take(count: int, dtype: type, stream: bytes = stream) -> np.ndarray:
                nonlocal at
                found = np.frombuffer(stream, dtype, count, at)
                at += found.nbytes
                return found

            for name in named(reference, role):
                array = reference[name].copy()
                if array.ndim < 2:
                    decoded[name] = take(array.size, np.float32).reshape(array.shape)
                    continue
                rows = array.reshape(len(array), -1)
                changed = np.unpackbits(take(-(-len(rows) // 8), np.uint8), count=len(rows)).view(bool)
                count = int(changed.sum())
                low, step = (take(count, np.float32)[:, None] for _ in range(2))
                width = rows.shape[1]
                stored = -(-width * self.bits // 8)
                codes = take(count * stored, np.uint8).reshape(count, stored)
                if self.bits == 4:
                    codes = np.stack([codes >> 4, codes & 15], axis=2).reshape(count, -1)[:, :width]
                rows[changed] = low + codes * step
                decoded[name] = array
        return decoded

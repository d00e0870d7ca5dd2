"""ExCP, written from its description: joint pruning, clusters, LZMA."""

from __future__ import annotations

import lzma
from dataclasses import dataclass

import numpy as np

from .clusters import centres, nearest
from .streams import State, Streams, named, roles

__all__ = ["ExCP"]


@dataclass
class ExCP:
    """ExCP (Li et al., ICML 2024): joint pruning of weight differences and moments, k-means, LZMA.

    A weight's difference is kept where it is above min(2.5, alpha / sqrt(mean v)) medians, the
    moments where the weight was kept and |m| is above beta means; what is left is one of 15
    clusters an array; two codes a byte, all through LZMA at its strongest. Without moments the cap
    of 2.5 medians is the threshold.

    Parameters
    ----------
    alpha, beta
        Of the thresholds; 5e-5 and 2 are the paper's.
    """

    alpha: float = 5e-5
    beta: float = 2.0
    absolute = False
    codes_first = False
    snapshot_every = 0

    def encode(self, state: State, reference: State) -> Streams:
        """Return the LZMA of codes and centres of each role."""
        weight, *moments = roles(state)
        content: dict[str, list[bytes]] = {role: [] for role in (weight, *moments)}
        for name in named(state, weight):
            delta = (state[name] - reference[name]).reshape(-1)
            magnitude, parameter = np.abs(delta), name.split("/", 1)[1]
            arrays = {role: state.get(f"{role}/{parameter}") for role in moments}
            factor = 2.5
            if len(arrays) > 1 and arrays[moments[1]] is not None:
                mean = float(arrays[moments[1]].mean())
                factor = min(2.5, self.alpha / np.sqrt(mean)) if mean else 2.5
            kept = magnitude > factor * np.median(magnitude)
            content[weight] += self._clustered(delta, kept)
            if arrays and arrays[moments[0]] is not None:
                first = arrays[moments[0]].reshape(-1)
                kept &= np.abs(first) > self.beta * np.abs(first).mean()
                for role in moments:
                    content[role] += self._clustered(arrays[role].reshape(-1), kept)
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
        return {r: lzma.compress(b"".join(c), lzma.FORMAT_RAW, filters=filters) for r, c in content.items()}

    @staticmethod
    def _clustered(values: np.ndarray, kept: np.ndarray) -> list[bytes]:
        kept = kept & (values != 0)
        table = np.zeros(15, np.float32)
        codes = np.zeros(values.size + values.size % 2, np.uint8)
        if kept.any():
            found = centres(values[kept], 15)
            table[: found.size] = found
            codes[: values.size][kept] = 1 + nearest(values[kept], found)
        return [table.tobytes(), (codes[::2] << 4 | codes[1::2]).tobytes()]

    def decode(self, streams: Streams, reference: State) -> State:
        """Return the reference plus the centres; the moments are the centres themselves."""
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
        weight = roles(reference)[0]
        decoded = {}
        for role, stream in streams.items():
            content, at = lzma.decompress(stream, lzma.FORMAT_RAW, filters=filters), 0
            for name in named(reference, role):
                size = reference[name].size
                table = np.zeros(16, np.float32)
                table[1:] = np.frombuffer(content, np.float32, 15, at)
                pairs = np.frombuffer(content, np.uint8, (size + 1) // 2, at + 60)
                at += 60 + pairs.size
                values = table[np.stack([pairs >> 4, pairs & 15], axis=1).reshape(-1)[:size]]
                values = values.reshape(reference[name].shape)
                decoded[name] = reference[name] + values if role == weight else values
        return decoded

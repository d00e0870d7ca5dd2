"""Inshrinkerator, written from its description: clusters, and differences of their indices."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np

from ..compressors.huffman import huffman, unhuffman
from .clusters import centres, nearest
from .streams import State, Streams, named, roles

__all__ = ["Inshrinkerator", "runs_packed", "runs_unpacked"]

SMALLEST = 256  # arrays of fewer values are exact


def runs_packed(symbols: np.ndarray) -> np.ndarray:
    """Return symbols with each run of zeros as the binary digits of its length plus 1.

    The first 1 of the digits is left out. They are the symbols 0 and 1; what was 1 and more becomes
    2 and more.
    """
    symbols = symbols.astype(np.int64)
    others = np.flatnonzero(symbols)
    lengths = np.diff(np.concatenate([[-1], others, [symbols.size]])) - 1  # of the run before each, and last
    digits = np.frexp(lengths + 1.0)[1] - 1
    places = digits + 1
    places[-1] -= 1  # no symbol behind the last run
    ends = np.cumsum(places)
    packed = np.zeros(ends[-1], np.uint8)
    packed[ends[:-1] - 1] = symbols[others] + 1
    for digit in range(int(digits.max(initial=0))):
        here = digits > digit
        packed[(ends - places)[here] + digit] = (lengths[here] + 1) >> digit & 1
    return packed


def runs_unpacked(packed: np.ndarray, size: int) -> np.ndarray:
    """Return the symbols of :func:`runs_packed`, of which there were `size`."""
    others = np.flatnonzero(packed > 1)
    owner = np.searchsorted(others, np.arange(packed.size))  # the run each place belongs to
    starts = np.concatenate([[0], others + 1])
    counts = np.concatenate([others, [packed.size]]) - starts
    is_digit = packed < 2
    digit = np.flatnonzero(is_digit) - starts[owner[is_digit]]
    values = (1 << counts) + np.bincount(
        owner[is_digit], packed[is_digit].astype(np.int64) << digit, starts.size
    ).astype(np.int64)
    symbols = np.zeros(size, np.uint8)
    at = np.cumsum(values - 1) + np.arange(starts.size)
    symbols[at[:-1]] = packed[others] - 1
    return symbols


@dataclass
class Inshrinkerator:
    """Inshrinkerator's quantizer and its differences of indices (Agrawal et al., SoCC 2024).

    It codes weights only.     Three tiers an array: the most sensitive values in bfloat16, the
    smallest ones 0, the rest one of some clusters. Sensitivity is |gradient * weight|, for which
    the first moment is at hand, else |weight|. The difference (previous - current) mod B of the
    indices is split by the previous index, run lengths are packed, all is Huffman coded. Arrays of
    few values, and the moments, stay as they are.

    Parameters
    ----------
    clusters
        Of an array; twice as many for embeddings.
    pruned, protected
        Shares of an array's values.
    """

    clusters: int
    pruned: float
    protected: float
    absolute = False
    codes_first = True
    snapshot_every = 0
    before: dict[str, np.ndarray] = field(default_factory=dict)  # indices of the state before, encoding
    known: dict[str, np.ndarray] = field(default_factory=dict)  # the same, decoding

    def _levels(self, name: str) -> int:
        return self.clusters * 2 if "characters" in name or "positions" in name else self.clusters

    def encode(self, state: State, reference: State) -> Streams:  # noqa: ARG002
        """Return for each array its centres, protected values, and coded differences of indices."""
        weight = roles(state)[0]
        parts = []
        for name in named(state, weight):
            values = state[name].reshape(-1)
            if values.size < SMALLEST:
                parts.append(values.tobytes())
                continue
            magnitude = np.abs(values)
            moment = state.get(name.replace(f"{weight}/", "exp_avg/", 1))
            sensitivity = magnitude if moment is None else magnitude * np.abs(moment.reshape(-1))
            small = max(1, int(self.pruned * values.size))
            limit = np.partition(magnitude, small - 1)[small - 1] if self.pruned else np.float32(0)
            protected = np.zeros(values.size, bool)
            count = max(1, int(self.protected * values.size))
            protected[np.argpartition(sensitivity, values.size - count)[values.size - count :]] = True
            clustered = (magnitude > limit) & ~protected
            levels = self._levels(name)
            found = centres(values[clustered], levels, blend=0.2) if clustered.any() else np.zeros(1, "f4")
            symbols = np.zeros(values.size, np.uint8)
            symbols[clustered] = 1 + nearest(values[clustered], found)
            symbols[protected] = levels + 1
            exact = (values[protected].view(np.uint32) + 0x8000 >> 16).astype(np.uint16)
            coded = self._coded(symbols, self.before.get(name), levels + 2)
            self.before[name] = symbols
            parts += [
                struct.pack("<HII", found.size, exact.size, len(coded)),
                found.tobytes(),
                exact.tobytes(),
            ]
            parts.append(coded)
        return {weight: b"".join(parts)}

    @staticmethod
    def _coded(symbols: np.ndarray, before: np.ndarray | None, levels: int) -> bytes:
        if before is None:
            return huffman(symbols)
        moved = ((before.astype(np.int16) - symbols) % levels).astype(np.uint8)
        packed = runs_packed(moved[np.argsort(before, kind="stable")])
        return huffman(packed)

    def decode(self, streams: Streams, reference: State) -> State:
        """Return the weights as they were quantized."""
        ((weight, stream),) = streams.items()
        decoded, at = {}, 0
        for name in named(reference, weight):
            shape, size = reference[name].shape, reference[name].size
            if size < SMALLEST:
                decoded[name] = np.frombuffer(stream, np.float32, size, at).reshape(shape)
                at += 4 * size
                continue
            centre_count, exact_count, length = struct.unpack_from("<HII", stream, at)
            at += 10
            found = np.frombuffer(stream, np.float32, centre_count, at)
            at += found.nbytes
            exact = np.frombuffer(stream, np.uint16, exact_count, at)
            at += exact.nbytes
            levels = self._levels(name)
            before = self.known.get(name)
            symbols = unhuffman(stream[at : at + length])
            at += length
            if before is not None:
                order = np.argsort(before, kind="stable")
                moved = np.empty(size, np.int16)
                moved[order] = runs_unpacked(symbols, size)
                symbols = ((before - moved) % (levels + 2)).astype(np.uint8)
            self.known[name] = symbols
            table = np.zeros(levels + 2, np.float32)
            table[1 : 1 + found.size] = found
            values = table[symbols]
            values[symbols == levels + 1] = (exact.astype(np.uint32) << 16).view(np.float32)
            decoded[name] = values.reshape(shape)
        return decoded

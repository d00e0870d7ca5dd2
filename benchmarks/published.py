"""Schemes of the literature that code differences or rows, written from their descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from schemes import State, Streams, huffman, join, named, roles, split, unhuffman

__all__ = ["CheckNRun", "LCCheckpoint", "Scar", "TopN"]


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

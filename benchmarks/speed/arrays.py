"""Arrays: encode, decode into an array, decode to a fresh one; the Huffman stage alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import lccodec
from lccodec.constants import MAX_STREAM_DEPTH
from lccodec.cursor import Cursor
from lccodec.entropy.stream_reader import read_stream
from lccodec.entropy.stream_writer import write_stream

from ..compressors.compressor import Compressor
from ..measure.figures import COPY, Figure
from ..measure.rounds import Job, Timing, measure
from .inputs import DEAD_ZONE, STEP, Pair, Walk, as_dtype, bucketed, spread, symbols_of_entropy
from .peers import bounded_peers, huffman_peers, lossless_peers
from .plan import Plan

__all__ = [
    "DTYPES",
    "Codec",
    "Missing",
    "beside",
    "dtypes",
    "huffman",
    "measure_codecs",
    "own",
    "real",
    "zeros",
]

QUANTIZERS: Mapping[str, Any] = {
    "lc-2": lccodec.ExponentBuckets(bits=2),
    "lc-3": lccodec.ExponentBuckets(bits=3),
    "uniform, 2 x rms": lccodec.UniformDeadzone(relative_step=2),
    "uniform, 1 x rms": lccodec.UniformDeadzone(relative_step=1),
    "lossless": lccodec.Lossless(),
}
DTYPES = ("float32", "bfloat16", "float64")
STEPS = (1, 2)  # x rms: the bins that the error bounds come from, DEAD_ZONE steps each
LARGE = 100_000_000  # from here on one quantizer at a time, no fresh arrays, no peers: less memory
SAMPLE = 16_000_000  # values that the rms is taken from
ALPHABET, ENTROPY = 41, 3.70

Missing = list[str]


@dataclass(frozen=True, eq=False)
class Codec:
    """A row: how one array is coded, whatever by.

    Parameters
    ----------
    name
        Of the row.
    encode
        Returns the compressed object.
    decode
        Compressed object to a fresh array.
    into
        The same over an array that is there, if that can be done.
    note
        What a reader has to know of a compressed object.
    peer
        Whether it is not lccodec.
    """

    name: str
    encode: Callable[[], Any]
    decode: Callable[[Any], Any]
    into: Callable[[Any], Any] | None = None
    note: Callable[[Any], str] = lambda _: ""
    peer: bool = False


def own(name: str, quantizer: Any, array: np.ndarray, reference: np.ndarray, out: np.ndarray) -> Codec:
    """Return the row of a quantizer of lccodec."""
    return Codec(
        name,
        lambda: lccodec.encode(array, quantizer, reference),
        lambda frame: lccodec.decode(frame, reference),
        lambda frame: lccodec.decode(frame, reference, out),
    )


def beside(name: str, peer: Compressor, difference: np.ndarray, max_error: float | None) -> Codec:
    """Return the row of a peer, which gets the difference; it may have to keep a bound."""

    def decode(coded: Any) -> Any:
        return peer.decode(coded, difference.size)

    def note(coded: Any) -> str:
        """Say so if the error bound does not hold; a little is left for its own rounding."""
        if max_error is None:
            return ""
        error = float(np.abs(decode(coded) - difference).max())
        return "" if error <= 1.001 * max_error else f"error {error / max_error:.2f} x the bound"

    return Codec(name, lambda: peer.encode(difference), decode, note=note, peer=True)


def measure_codecs(
    section: str, case: str, array: np.ndarray, out: np.ndarray, codecs: Iterable[Codec], rounds: int
) -> list[Figure]:
    """Measure all `codecs` in the same rounds as a copy of the bytes of `array` to `out`."""
    raw, target = array.view(np.uint8), out.view(np.uint8)
    jobs: dict[tuple[Codec, str], Job] = {}
    about: dict[Codec, tuple[float, str]] = {}
    for codec in codecs:
        coded = codec.encode()
        about[codec] = (8 * len(coded) / array.size, codec.note(coded))
        jobs[codec, "encode"] = Job(codec.encode)
        if codec.into is not None:
            jobs[codec, "decode into"] = Job(partial(codec.into, coded))
        if codec.into is None or array.size < LARGE:
            jobs[codec, "decode, fresh"] = Job(partial(codec.decode, coded))
    timings = measure(jobs, lambda: np.copyto(target, raw), rounds)
    figures = [_copy_figure(section, case, timings.pop(COPY), array.size)]
    for (codec, action), timing in timings.items():
        bits, note = about[codec]
        figures.append(
            Figure(
                section,
                case,
                codec.name,
                action,
                timing.ratio,
                typical=timing.typical,
                seconds=timing.seconds,
                values=array.size,
                bits=bits,
                peer=codec.peer,
                note=note,
            )
        )
    return figures


def _copy_figure(section: str, case: str, timing: Timing, values: int) -> Figure:
    """Return the row of the copy, with its speed; its typical ratio is the noise of the run."""
    note = f"{timing.seconds / values * 1e9:.3f} ns a value, median {timing.typical:.2f} x best"
    return Figure(
        section,
        case,
        COPY,
        "copy",
        1.0,
        typical=timing.typical,
        seconds=timing.seconds,
        values=values,
        peer=True,
        note=note,
    )


def real(plan: Plan, walk: Walk) -> tuple[list[Figure], Missing]:
    """Real differences in float32, at every size, with the peers beside."""
    figures: list[Figure] = []
    missing: dict[str, None] = {}
    for size in plan.sizes:
        array, reference = walk.pair(size)
        case = f"{size:,} float32, {walk.source}"
        out = np.empty_like(array)
        sample = array[:SAMPLE] - reference[:SAMPLE]
        rms = float(np.sqrt(np.mean(np.square(sample, dtype=np.float64))))
        codecs = [own(name, q, array, reference, out) for name, q in QUANTIZERS.items()]
        for step in STEPS:
            bound = DEAD_ZONE * step * rms
            name = f"uniform, max error {DEAD_ZONE * step:.1f} x rms"
            codecs.append(own(name, lccodec.UniformDeadzone(max_error=bound), array, reference, out))
        if size >= LARGE:
            for codec in codecs:
                figures += measure_codecs("real", case, array, out, [codec], 1)
            missing[f"all peers at {size:,} values"] = None
            continue
        difference = array - reference
        found, absent = lossless_peers()
        codecs += [beside(name, peer, difference, None) for name, peer in found.items()]
        missing |= dict.fromkeys(absent)
        for step in STEPS:
            bound = DEAD_ZONE * step * rms
            found, absent = bounded_peers(bound, f"max error {DEAD_ZONE * step:.1f} x rms")
            codecs += [beside(name, peer, difference, bound) for name, peer in found.items()]
            missing |= dict.fromkeys(absent)
        figures += measure_codecs("real", case, array, out, codecs, plan.rounds)
    return figures, list(missing)


def zeros(plan: Plan, walk: Walk) -> tuple[list[Figure], Missing]:  # noqa: ARG001 - the sections' signature
    """Made differences in float32 with each zero share."""
    figures: list[Figure] = []
    for share in plan.zero_shares:
        made: dict[str, tuple[Any, Pair]] = {
            "lc-2": (lccodec.ExponentBuckets(bits=2), bucketed(share, plan.sweep, 2)),
            "lc-3": (lccodec.ExponentBuckets(bits=3), bucketed(share, plan.sweep, 3)),
            "uniform": (lccodec.UniformDeadzone(step=STEP), spread(share, plan.sweep)),
        }
        array = made["uniform"][1][0]
        out = np.empty_like(array)
        codecs = [own(name, q, *pair, out) for name, (q, pair) in made.items()]
        case = f"{share:.1%} zeros, {plan.sweep:,} float32, made"
        figures += measure_codecs("zeros", case, array, out, codecs, plan.rounds)
    return figures, []


def dtypes(plan: Plan, walk: Walk) -> tuple[list[Figure], Missing]:
    """Real differences in each dtype."""
    figures: list[Figure] = []
    for dtype in DTYPES:
        array, reference = (as_dtype(a, dtype) for a in walk.pair(plan.sweep))
        out = np.empty_like(array)
        codecs = [own(name, q, array, reference, out) for name, q in QUANTIZERS.items()]
        case = f"{plan.sweep:,} {dtype}, {walk.source}"
        figures += measure_codecs("dtypes", case, array, out, codecs, plan.rounds)
    return figures, []


def huffman(plan: Plan, walk: Walk) -> tuple[list[Figure], Missing]:  # noqa: ARG001 - as above
    """The Huffman stage alone, counting included, beside that of zlib."""
    symbols = symbols_of_entropy(ENTROPY, ALPHABET, plan.symbols)

    def encode() -> bytes:
        # At the greatest depth a stream holds no other one: what is left is the Huffman run.
        return b"".join(write_stream(symbols, MAX_STREAM_DEPTH))

    def decode(coded: bytes) -> Any:
        return read_stream(Cursor(memoryview(coded), "stream"), symbols.size)

    if not np.array_equal(decode(encode()), symbols):
        raise SystemExit("the Huffman stage returned other symbols")
    codecs = [Codec("lccodec", encode, decode)]
    codecs += [beside(name, peer, symbols, None) for name, peer in huffman_peers().items()]
    case = f"{plan.symbols:,} symbols of {ALPHABET}, {ENTROPY:.2f} bits"
    return measure_codecs("huffman", case, symbols, np.empty_like(symbols), codecs, plan.rounds), []

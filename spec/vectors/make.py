"""Make the vectors: ``python spec/vectors/make.py [DIRECTORY]``.

It writes ``valid/``, ``invalid/`` and ``manifest.json``.

A vector is a frame (``.lcf``), a checkpoint file (``.lcc.h5``), a bundle (``.lcc``), with what it
decodes to, or a parity file (``.lcc.par``). The
encoder makes the vectors of this module. Their expected values are the array or, if the frame is
lossy, what the frame decodes to. The vectors of ``assembly.py`` and the invalid ones
(``broken.py``) are made without the encoder. All values come from exact arithmetic, so every
machine makes the same files.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from anchors import between, save_anchored
from assembly import assembled_frames
from broken import (
    Broken,
    write_broken_bundle,
    write_broken_checkpoint,
    write_broken_frame,
    write_broken_parity,
)
from broken_bundles import broken_bundles, newest_bundles
from broken_checkpoints import PARENT, SOUND, broken_checkpoints
from broken_frames import broken_frames
from broken_interpolations import HALVES, LATE, broken_interpolations
from broken_manifests import broken_manifests
from broken_parents import BESIDE, broken_parents
from broken_parity import broken_parity
from broken_values import broken_values
from copies import broken_copies, copied_states, equal_files, rounded_file
from edge_files import broken_edge_files, edge_files, edge_parity
from edges import edge_frames
from fields import assembled_fields
from forms import frame_head, stream_forms
from levels import level_of
from parts import split_frames
from pieces import FLOATS, KINDS, METHODS, Frame
from tables import broken_tables, cut_files
from trap_files import broken_trap_files, trap_files
from traps import trap_frames

import lccodec
from lccodec.chain.life.compact import rewrite
from lccodec.chain.mend.protect import parse_redundancy, protect
from lccodec.chain.mend.ranks import protect_ranks
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import ELEMENT_TYPES, ElementType
from lccodec.container.tree import flatten
from lccodec.element_types import Array, components, from_components, unwork
from lccodec.policy.presets import POLICIES
from lccodec.policy.record import Record
from lccodec.policy.roles import Assignment

# --- values ---------------------------------------------------------------------------------------


def noise(count: int, seed: int) -> Array:
    """Return `count` uint64 that look random (SplitMix64)."""
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed << 32)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def bell(count: int, seed: int, share: float = 1.0) -> Array:
    """Return float64 numbers around 0, distributed like a bell; all but a `share` of them are 0."""
    parts = noise(4 * count, seed).reshape(4, count) >> np.uint64(44)
    values = (parts.astype(np.float64).sum(axis=0) - 2.0**21) / 2.0**19
    return np.where(noise(count, seed + 1) < np.uint64(int(share * (2**64 - 2048))), values, 0.0)


def numbers(kind: ElementType, values: Array) -> Array:
    """Return float64 numbers as components of a type; integers get twice the number."""
    if kind.is_float:
        with np.errstate(all="ignore"):
            return unwork(values.astype(kind.work), kind)
    whole = (values * 2).astype(np.int64).astype(kind.bits)
    return whole & kind.bits.type(1) if kind.kind == "b" else whole


def hard(kind: ElementType) -> Array:
    """Return components that are easy to get wrong, such as NaN, infinities, zeros, subnormals."""
    sign, ones = 1 << (8 * kind.size - 1), (1 << (8 * kind.size)) - 1
    if kind.kind == "b":
        return np.array([0, 1, 1, 0], kind.bits)
    if not kind.is_float:
        return np.array([0, 1, sign - 1, sign, sign + 1, ones], kind.bits)
    quiet = 1 << (kind.mantissa - 1)
    infinity = (sign - 1) & ~((1 << kind.mantissa) - 1)
    patterns = [0, sign, 1, sign | 1, (1 << kind.mantissa) - 1, 1 << kind.mantissa, infinity - 1]
    patterns += [infinity, sign | infinity, infinity | quiet, infinity | 1, sign | infinity | quiet | 5, ones]
    return np.array(patterns, kind.bits)


def elements(bits: Array, kind: ElementType, shape: tuple[int, ...] | None = None) -> Array:
    """Return components as an array; without a shape, of all whole elements."""
    whole = bits.size // kind.components
    return from_components(
        bits[: whole * kind.components], kind, (whole,) if shape is None else shape, "bits"
    )


def little(array: Array) -> bytes:
    """Return the components of an array as stored."""
    _, bits = components(array)
    return bits.astype(bits.dtype.newbyteorder("<")).tobytes()


# --- frames that the encoder makes ----------------------------------------------------------------


def encoded(
    name: str,
    description: str,
    array: Array,
    quantizer: Any = None,
    reference: Array | None = None,
    effort: str = "normal",
) -> Frame:
    """Return the vector of an array as the encoder stores it; its name begins with the method."""
    quantizer = quantizer or lccodec.Lossless()
    data = lccodec.encode(array, quantizer, reference, effort=effort)
    if METHODS[data[3]] != name.split("-", maxsplit=1)[0]:
        raise ValueError(f"{name} is coded by the {METHODS[data[3]]} method")
    if isinstance(quantizer, lccodec.Lossless):
        decoded = array
    else:
        decoded = lccodec.decode(data, reference, dtype="bits")
    stored = array.nbytes <= 1 << 16
    return Frame(
        name, description, data, little(decoded), None if reference is None else little(reference), stored
    )


def of_every_type() -> Iterator[Frame]:
    """Yield each method with each element type it has, without and with a reference."""
    for seed, kind in enumerate(ELEMENT_TYPES):
        few = np.concatenate([hard(kind), noise(3, seed).astype(kind.bits)])
        if kind.kind == "b":
            few = few & kind.bits.type(1)
        yield encoded(f"raw-{kind.name}", "a few arbitrary patterns", elements(few, kind))
        coarse = np.round(4 * bell(300, seed)) / 4
        base = numbers(kind, coarse)
        near = numbers(kind, coarse + np.round(4 * bell(300, seed + 99, 0.1)) / 4)
        near[100 : 100 + hard(kind).size] = hard(kind)
        base[105 : 105 + hard(kind).size] = hard(kind)
        yield encoded(f"planes-{kind.name}", "numbers, and every hard pattern", elements(near, kind))
        yield encoded(
            f"planes-{kind.name}-relative",
            "most numbers unchanged, hard patterns in the array and in the reference",
            elements(near, kind),
            reference=elements(base, kind),
        )
    for seed, kind in enumerate(FLOATS):
        base = numbers(kind, bell(300, seed))
        near = numbers(kind, bell(300, seed) + bell(300, seed + 99, 0.3) / 16)
        quantizer = lccodec.ExponentBuckets(3)
        yield encoded(f"codebook-{kind.name}", "exponent buckets", elements(near, kind), quantizer)
        yield encoded(
            f"codebook-{kind.name}-relative",
            "exponent buckets of a difference",
            elements(near, kind),
            quantizer,
            elements(base, kind),
        )
        near[100 : 100 + hard(kind).size] = hard(kind)
        base[105 : 105 + hard(kind).size] = hard(kind)
        yield encoded(
            f"codebook-{kind.name}-escapes",
            "what is not finite, in the array or in the reference, is an escape",
            elements(near, kind),
            quantizer,
            elements(base, kind),
        )


def of_fields() -> Iterator[Frame]:
    """Yield fields of each type that has them."""
    i, j = np.arange(24.0)[:, None], np.arange(30.0)
    plane = (i * (23 - i) * 0.125 + j * j * (j - 40) / 256) / 8
    bound = lccodec.Smooth(max_error=0.03125)
    for seed, kind in enumerate(kind for kind in FLOATS if kind.components == 1):
        near = numbers(kind, (plane + bell(720, seed).reshape(plane.shape) / 16).reshape(-1))
        base = numbers(kind, (plane - i / 16).reshape(-1))
        for name, why, reference in (
            (f"smooth-{kind.name}", "a smooth surface", None),
            (f"smooth-{kind.name}-relative", "the change of one", elements(base, kind, plane.shape)),
        ):
            yield encoded(name, why, elements(near, kind, plane.shape), bound, reference)
        near[100 : 100 + hard(kind).size] = hard(kind)
        base[105 : 105 + hard(kind).size] = hard(kind)
        yield encoded(
            f"smooth-{kind.name}-escapes",
            "what is not finite, in the array or in the reference, is an escape",
            elements(near, kind, plane.shape),
            bound,
            elements(base, kind, plane.shape),
        )
    positive = np.maximum(plane, 0)
    yield encoded("smooth-positive", "no number below 0", positive, lccodec.Smooth(relative_error=1e-3))
    keeping = lccodec.Smooth(relative_error=1e-2, conserve="sum")
    yield encoded("smooth-sum", "the sum is kept", plane, keeping)
    land = np.where(plane < -2, 1e20, plane)
    yield encoded("smooth-fill", "a fill value", land, lccodec.Smooth(relative_error=1e-4))
    fine = lccodec.Smooth(max_error=2.0**-40)
    yield encoded("smooth-fine", "numbers of several bytes", plane, fine)
    noisy = bell(2000, 8).reshape(20, 10, 10)
    yield encoded("smooth-noise", "noise, which is not predicted", noisy, lccodec.Smooth(max_error=0.125))
    hyper = (plane[:, :, None, None] + np.arange(3.0)[:, None] / 4) * (np.arange(4.0) + 1)
    yield encoded("smooth-4d", "four dimensions", hyper, lccodec.Smooth(relative_error=1e-4))
    yield encoded("smooth-constant", "padded for LCC-LIM-12", np.zeros(1 << 16, np.float16), bound)


def of_every_shape() -> Iterator[Frame]:
    """Yield shapes and sizes at the edges."""
    single = KINDS["float32"]
    yield encoded("raw-0d", "no dimensions", np.array(-0.0))
    yield encoded("codebook-0d", "no dimensions", np.array(3.0, np.float32), lccodec.ExponentBuckets(2))
    yield encoded("planes-3d", "three dimensions", (np.arange(600) // 7).astype(np.uint16).reshape(4, 15, 10))
    yield encoded("raw-32d", "as many dimensions as there may be", np.ones((1,) * 31 + (2,), np.int8))
    zeros = np.zeros((1 << 14) + 5, np.float32)
    yield encoded("planes-padded", "zeros, padded for LCC-LIM-03", zeros)
    changed = elements(numbers(single, bell(zeros.size, 3, 0.0005)), single)
    yield encoded("codebook-padded", "sparse, the same", changed, lccodec.UniformDeadzone(step=1.0))
    values = elements(numbers(single, bell(1000, 4)), single)
    wide = lccodec.UniformDeadzone(max_error=0.015)
    yield encoded("codebook-wide", "symbols of two bytes", values, wide)
    yield encoded("codebook-wide-relative", "the same", values, wide, np.ones(1000, np.float32))
    activity = np.repeat([0.2, 2.0], 800)
    half = elements(numbers(KINDS["float16"], activity * bell(1600, 6)), KINDS["float16"], (40, 40))
    yield encoded(
        "codebook-classed", "rows that move more", half, lccodec.UniformDeadzone(step=1.0), effort="high"
    )
    for bits, share in ((1, 0.02), (1, 0.9), (2, 0.5), (8, 1.0)):
        after = elements(numbers(single, 1 + bell(1000, 5, share) / 8), single)
        yield encoded(
            f"codebook-{bits}-bit-{round(100 * share)}",
            f"{bits}-bit buckets, {share:.0%} of the elements changed",
            after,
            lccodec.ExponentBuckets(bits),
            np.ones(1000, np.float32),
        )


def of_sizes() -> Iterator[Frame]:
    """Yield a small step from the same numbers: it changes more of the small ones."""
    kind = KINDS["bfloat16"]
    base = numbers(kind, bell(20_000, 8))
    near = numbers(kind, bell(20_000, 8) + bell(20_000, 9) / 4096)
    why = "a step that small numbers feel and large ones do not"
    yield encoded("planes-bfloat16-split", why, elements(near, kind), reference=elements(base, kind))


def frames() -> Iterator[Frame]:
    """Yield every frame vector."""
    yield from of_every_type()
    yield from of_every_shape()
    yield from of_fields()
    yield from assembled_frames()
    yield from assembled_fields()
    yield from edge_frames()
    yield from of_sizes()
    yield from split_frames()
    yield from trap_frames()


# --- checkpoint files -----------------------------------------------------------------------------


def states() -> Iterator[dict[str, Any]]:
    """Yield three steps of a small training state."""
    bias, shared = np.arange(5, dtype=np.float64), np.ones((2, 2), np.float16)
    for step in range(3):
        weight = elements(
            numbers(KINDS["float32"], bell(120, 7) + step * bell(120, 8, 0.2)), KINDS["float32"]
        )
        state = {
            "model": {"weight": weight.reshape(12, 10), "bias": bias, "tied/~": [shared, shared]},
            "scalars": (step, 0.1 * step, True, None, "π\n", b"\0\xff", float("nan"), -0.0, -(10**40)),
            "mask": elements(numbers(KINDS["bool"], bell(30, step)), KINDS["bool"]),
            "half": elements(hard(KINDS["bfloat16"]), KINDS["bfloat16"]),
        }
        yield state if step < 2 else {"new": np.zeros((), np.int64), **state}


def small_states() -> Iterator[dict[str, Any]]:
    """Yield two steps of a state of small arrays, which share frames."""
    single = KINDS["float32"]
    for step in range(2):
        layers = [
            elements(numbers(single, bell(size, size) + step * bell(size, size + 1, 0.3)), single)
            for size in (40, 7, 64)
        ]
        yield {"layers": [layers[0].reshape(5, 8), *layers[1:]], "counts": [np.arange(3), np.full(2, step)]}


def nested(leaf: Any, depth: int) -> Any:
    """Return a leaf in lists and dicts, one in the other."""
    for level in range(depth):
        leaf = [leaf] if level % 2 else {"k": leaf}
    return leaf


def reordered_states() -> Iterator[dict[str, Any]]:
    """Yield the same arrays three times; the keys of the second are in another order."""
    state: dict[str, Any] = {"a": np.arange(5), "b": {"c": np.ones(2, np.float32), "d": 1}}
    yield state
    yield {"b": {"d": 1, "c": state["b"]["c"]}, "a": state["a"]}
    yield state


#: The first step of the chain that has an exact file. It is the last chain: its newest step is the
#: newest of all.
_EXACT = 140

#: What chains keep of the newest state, by their first steps.
_NEWEST: dict[int, Any] = {120: "history", _EXACT: "exact"}


def checkpoints(directory: Path) -> Iterator[tuple[str, str, Any]]:
    """Write the checkpoint files; yield the name of each, a description and the state in it."""
    first, *_ = states()
    for name, description, state in (
        ("nested", "a nested state with every kind of scalar, lossless", first),
        ("scalar", "a state that is one scalar: no arrays, an empty payload", 7),
        ("array", "a state that is one array without dimensions", np.array(1.5)),
        ("deep", "a state that nests 64 deep", nested(np.arange(4), 64)),
        ("digits", "an integer of a sign and 4,096 digits", {"n": 1 - 10**4096, "a": np.arange(3)}),
    ):
        lccodec.save_file(state, directory / f"{name}.lcc.h5", {"vector": name})
        yield name, description, state
    chains: list[tuple[int, str, str, Callable[[], Iterable[Any]]]] = [
        (110, "lossless", "", states),
        (120, "lc-3", "", states),
        (130, "lossless", " of runs", small_states),
        (150, "lossless", " with other orders of keys", reordered_states),
        (140, "lc-3", " of runs", small_states),
    ]
    for first_step, policy, what, steps in chains:
        with (
            tempfile.TemporaryDirectory() as own,
            lccodec.Chain(own, policy, newest=_NEWEST.get(first_step)) as chain,
        ):
            for step, state in enumerate(steps(), first_step):
                # As a framework gives them.
                weights = {f"layers/{i}": Assignment("weight", "") for i in range(3)}
                chain.save(step, state, roles=weights)
                path = next(Path(own).glob(f"*{step}.lcc.h5"))
                (directory / path.name).write_bytes(path.read_bytes())
                parent = chain.info(step).parent
                role = f"a keyframe{what}" if parent is None else f"a delta{what} against step {parent}"
                restored = state if policy == "lossless" else chain.restore(dtype="bits", exact=False)
                yield path.name.split(".")[0], f"{role}, policy {policy}", restored
            if first_step == _EXACT:
                (directory / "exact.lcc.h5").write_bytes(Path(own, "exact.lcc.h5").read_bytes())
                yield "exact", f"the exact file of step {step}", state


def replaced_checkpoints(directory: Path) -> Iterator[tuple[str, str, Any]]:
    """Write a chain of which one file took the place of another; yield as `checkpoints`."""
    first, second = small_states()
    saved = [first, second, first]
    with tempfile.TemporaryDirectory() as own, lccodec.Chain(own, "lossless") as chain:
        for step, state in enumerate(saved, 115):
            chain.save(step, state)
        rewrite(DirectoryStore(Path(own)), 116, None)
        for name, description in (
            ("000000000115", "a keyframe, policy lossless"),
            ("000000000116", "a keyframe that replaces a delta against step 115"),
            ("000000000117", "a delta against step 116 as it was before"),
        ):
            (directory / f"{name}.lcc.h5").write_bytes(Path(own, f"{name}.lcc.h5").read_bytes())
            yield name, description, saved[int(name) - 115]


def copied_checkpoints(directory: Path) -> Iterator[tuple[str, str, Any]]:
    """Write checkpoints with copies, one of them by hand; yield as `checkpoints`."""
    data, state = rounded_file()
    (directory / "copies.lcc.h5").write_bytes(data)
    yield "copies", "copies of both types, whose values are rounded by hand", state
    for name, description, data, state in equal_files():
        (directory / f"{name}.lcc.h5").write_bytes(data)
        yield name, description, state
    with tempfile.TemporaryDirectory() as own, lccodec.Chain(own, "lossless") as chain:
        for step, state in enumerate(copied_states(), 100):
            chain.save(step, state)
            name = f"{step:012d}.lcc.h5"
            (directory / name).write_bytes(Path(own, name).read_bytes())
            methods = {array.name: array.method for array in chain.info(step).arrays}
            copies = [name for name, method in methods.items() if method == "copy"]
            what = f"copies: {', '.join(copies) or 'none'}"
            yield name.split(".", maxsplit=1)[0], f"step {step} of a chain in mixed precision; {what}", state


def cut_checkpoints(directory: Path) -> Iterator[tuple[str, str, Any]]:
    """Write checkpoints with tables of pieces, and others made by hand; yield as `checkpoints`."""
    for name, description, data, state in (*cut_files(), *edge_files(), *trap_files()):
        (directory / f"{name}.lcc.h5").write_bytes(data)
        yield name, description, state


def interpolated_states() -> Iterator[Any]:
    """Yield states of all types, with values that are easy to get wrong."""
    for step in range(9):
        state: dict[str, Any] = {}
        for seed, kind in enumerate(ELEMENT_TYPES):
            values = bell(40, seed) + step * bell(40, seed + 50)
            bits = np.concatenate([hard(kind), numbers(kind, values)])
            bits = np.roll(bits, step * kind.components) if kind.is_float else bits
            state[kind.name] = elements(bits, kind)
        state["still"] = np.array([1.5, -0.0, np.inf, np.nan])
        state["late"] = np.arange(step + 1, dtype=np.float32)  # of another shape at each step
        yield {**state, "step": step}


def interpolated_checkpoints(directory: Path) -> Iterator[tuple[str, str, Any]]:
    """Write two checkpoints and those between them; yield as `checkpoints`."""
    saved = dict(enumerate(interpolated_states(), 160))
    with tempfile.TemporaryDirectory() as own, lccodec.Chain(own, "lossless") as chain:
        store = DirectoryStore(Path(own))
        chain.save(160, saved[160])
        chain.save(168, saved[168])
        # Unevenly, as in a chain from which steps are missing.
        weights = {165: 200, 161: 0, 164: 255, 167: 85}
        for step, low, high in ((165, 160, 168), (161, 160, 165), (164, 161, 165), (167, 165, 168)):
            if step == 164:  # just what lies between, so that no array has a frame
                for name, array in between(store, low, high, weights[step]).items():
                    saved[step][name] = array.array("bits")
            save_anchored(store, step, saved[step], (low, high), Record(POLICIES["lossless"]), weights[step])
        for step in (160, 161, 164, 165, 167, 168):
            (directory / f"{step:012d}.lcc.h5").write_bytes(Path(own, f"{step:012d}.lcc.h5").read_bytes())
            info = chain.info(step)
            role = "a keyframe" if info.parent is None else f"a delta against step {info.parent}"
            if info.later is not None:
                role = f"interpolated between the steps {info.parent} and {info.later}"
            yield f"{step:012d}", role, chain.restore(step, dtype="bits")


def expected_state(state: Any) -> dict[str, Any]:
    """Return what a state holds, as JSON: tree and scalars as in the specification, and arrays."""
    flat = flatten(state)
    arrays = [
        {
            "name": name,
            "dtype": components(array)[0].name,
            "shape": list(array.shape),
            "sha256": digest(little(array)),
        }
        for name, array in zip(flat.names, flat.arrays, strict=True)
    ]
    return {"tree": flat.tree, "scalars": flat.scalars, "arrays": arrays}


# --- files ----------------------------------------------------------------------------------------


def digest(data: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def write_frame(vector: Frame, directory: Path) -> dict[str, Any]:
    """Write the files of a frame vector and return its entry in the manifest."""
    method, code, _, shapes, _ = frame_head(vector.data)
    files = {"lcf": vector.data}
    if vector.stored:
        files["bin"] = vector.expected
    if vector.reference is not None:
        files["reference.bin"] = vector.reference
    for suffix, data in files.items():
        (directory / f"{vector.name}.{suffix}").write_bytes(data)
    return {
        "name": vector.name,
        "kind": "frame",
        "file": f"valid/{vector.name}.lcf",
        "method": METHODS[method],
        "forms": stream_forms(vector.data),
        "dtype": ELEMENT_TYPES[code].name,
        "shapes": shapes,
        "reference": f"valid/{vector.name}.reference.bin" if vector.reference is not None else None,
        "expected": f"valid/{vector.name}.bin" if vector.stored else None,
        "sha256": digest(vector.expected),
        "description": vector.description,
    }


def write_expected(name: str, description: str, state: Any, directory: Path) -> dict[str, Any]:
    """Write the expected values of a checkpoint vector; return its entry in the manifest."""
    text = json.dumps(expected_state(state), indent=1, ensure_ascii=False) + "\n"
    (directory / f"{name}.json").write_bytes(text.encode())
    return {
        "name": name,
        "kind": "checkpoint",
        "file": f"valid/{name}.lcc.h5",
        "expected": f"valid/{name}.json",
        "sha256": digest(text.encode()),
        "description": description,
    }


#: Bundles of the checkpoints above: a name, the steps, and whether the exact file is in it.
BUNDLES = {
    "chain": ([140, 141], True),
    "history": ([110, 111, 112], False),
    "keyframe": ([110], False),
    "unfinished": ([140], True),  # the exact file is of a later step
    "last": ([2**53 - 1], False),
}


def write_bundle(name: str, directory: Path) -> dict[str, Any]:
    """Write a bundle of checkpoints in a directory, and what it holds; return its entry."""
    steps, exact = BUNDLES[name]
    path = directory / f"{name}.lcc"
    with tempfile.TemporaryDirectory() as own:
        for file in [f"{step:012d}.lcc.h5" for step in steps] + ["exact.lcc.h5"] * exact:
            shutil.copy(directory / file, own)
        lccodec.bundle(own, path)
    states = {}
    for step in [*steps, None]:
        with lccodec.open(path, step=step, exact=step is None) as file:
            states[str(step or "newest")] = expected_state(file.state(dtype="bits"))
    text = json.dumps(states, indent=1, ensure_ascii=False) + "\n"
    (directory / f"{name}.json").write_bytes(text.encode())
    what = f"a bundle of the steps {', '.join(map(str, steps))}" + (" and of the exact file" if exact else "")
    return {
        "name": name,
        "kind": "bundle",
        "file": f"valid/{name}.lcc",
        "expected": f"valid/{name}.json",
        "sha256": digest(text.encode()),
        "description": what,
    }


def write_newest(vector: Broken, states: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Write a bundle whose newest state is in question, and what it holds; return its entry."""
    folder = "invalid" if vector.rule else "valid"
    entry = write_broken_bundle(vector, directory / folder)
    states = {
        step: {"rule": state} if isinstance(state, str) else expected_state(state)
        for step, state in states.items()
    }
    text = json.dumps(states, indent=1, ensure_ascii=False) + "\n"
    expected = entry["file"].replace(".lcc", ".json")
    (directory / folder / Path(expected).name).write_bytes(text.encode())
    if vector.rule:
        return {**entry, "expected": expected}
    return {
        "name": vector.case,
        "kind": "bundle",
        "file": f"valid/{vector.file}",
        "expected": f"valid/{Path(expected).name}",
        "sha256": digest(text.encode()),
        "description": vector.why,
    }


#: Parity of the checkpoints above: the steps, and the redundancy.
PARITY: list[tuple[list[int], str | int]] = [([110, 111, 112], 2), ([140, 141], 1), ([110, 111, 112], "40%")]


#: Parity of checkpoints above, each as the file of a rank: the steps, and the redundancy.
PARITY_OF_RANKS: list[tuple[list[int], str | int]] = [([110, 140, 110], 2)]


def write_parity(
    steps: list[int], redundancy: str | int, directory: Path, of_ranks: bool = False
) -> list[dict[str, Any]]:
    """Write the parity files of checkpoints in a directory; return their entries."""
    names = [f"{step:012d}.lcc.h5" for step in steps]
    members = [f"rank-{rank}/{name}" for rank, name in enumerate(names)] if of_ranks else names
    entries = []
    with tempfile.TemporaryDirectory() as own:
        store, asked = DirectoryStore(Path(own)), parse_redundancy(redundancy)
        for name, member in zip(names, members, strict=True):
            Path(own, member).parent.mkdir(exist_ok=True)
            shutil.copy(directory / name, Path(own, member))
        if of_ranks:
            protect_ranks(store, asked, [members])
        else:
            protect(store, asked)
        for path in sorted(Path(own, ".parity").iterdir()):
            shutil.copy(path, directory)
            whose = "ranks with the steps" if of_ranks else "steps"
            what = f"parity of the {whose} {', '.join(map(str, steps))}: {redundancy}"
            entries.append(
                {
                    "name": path.name.removesuffix(".lcc.par"),
                    "kind": "parity",
                    "file": f"valid/{path.name}",
                    "files": [f"valid/{name}" for name in names],
                    "members": members,
                    "sha256": digest(path.read_bytes()),
                    "description": what,
                }
            )
    return entries


#: Names of as many files as a group may have, the last step and the exact file among them.
MOST_FILES = [f"{step:012d}.lcc.h5" for step in (*range(1, 63), 2**53 - 1)] + ["exact.lcc.h5"]

#: Files of two blocks, and of two and a byte.
TWO, MORE = "1024-bytes.lcc.h5", "1025-bytes.lcc.h5"

#: Parity of these: the names that files have in their group, and which files, which column, and
#: members of the description.
EDGES: list[tuple[list[str], list[str], int, dict[str, int], str]] = [
    (
        MOST_FILES[:1],
        [TWO],
        0,
        {"redundancy": 2**53 - 1},
        "parity of a file of exactly two blocks, and the largest redundancy",
    ),
    (
        [f"rank-0/{MOST_FILES[0]}", f"rank-123456789/{MOST_FILES[0]}"],
        [TWO, TWO],
        0,
        {},
        "parity of files of ranks, one of nine digits",
    ),
    (
        MOST_FILES,
        [TWO] * 64,
        63,
        {"parity": 64},
        "parity of as many files as there may be, the last of 64 columns",
    ),
    (
        MOST_FILES,
        [TWO] * 64,
        0,
        {"rows": 1, "aligned": False},
        "parity of 64 files end to end, in as many columns as there may be",
    ),
    (MOST_FILES[:2], [TWO, MORE], 0, {}, "parity of two files, of which one has a block more"),
    (MOST_FILES[:2], [TWO, MORE], 2, {"parity": 3}, "the third parity column of two files"),
    (MOST_FILES[:1], [TWO], 0, {"aligned": False}, "parity of a file that fills one column"),
    (
        MOST_FILES[:1],
        [MORE],
        0,
        {"rows": 2, "aligned": False},
        "parity of a file of which the second column has a byte",
    ),
]


def write_edge_parity(
    directory: Path, members: list[str], files: list[str], column: int, own: dict[str, int], description: str
) -> dict[str, Any]:
    """Write a parity file of files that have other names in their group; return its entry."""
    name, data = edge_parity([(directory / file).read_bytes() for file in files], members, column, **own)
    (directory / name).write_bytes(data)
    return {
        "name": name.removesuffix(".lcc.par"),
        "kind": "parity",
        "file": f"valid/{name}",
        "files": [f"valid/{file}" for file in files],
        "members": members,
        "sha256": digest(data),
        "description": description,
    }


def broken_files() -> Iterator[Broken]:
    """Yield every invalid checkpoint file."""
    yield from broken_checkpoints()
    yield from broken_manifests()
    yield from broken_values()
    yield from broken_parents()
    yield from broken_interpolations()
    yield from broken_copies()
    yield from broken_tables()
    yield from broken_edge_files()
    yield from broken_trap_files()


def make(directory: Path) -> None:
    """Write ``valid/``, ``invalid/`` and ``manifest.json`` into a directory."""
    valid, invalid = directory / "valid", directory / "invalid"
    valid.mkdir(parents=True, exist_ok=True)
    invalid.mkdir(exist_ok=True)
    entries = [write_frame(vector, valid) for vector in frames()]
    vectors = (
        *checkpoints(valid),
        *replaced_checkpoints(valid),
        *interpolated_checkpoints(valid),
        *copied_checkpoints(valid),
        *cut_checkpoints(valid),
    )
    entries += [write_expected(*vector, valid) for vector in vectors]
    entries += [write_bundle(name, valid) for name in BUNDLES]
    newest = list(newest_bundles())
    entries += [write_newest(*one, directory) for one in newest if not one[0].rule]
    entries += [entry for group in PARITY for entry in write_parity(*group, valid)]
    entries += [entry for group in PARITY_OF_RANKS for entry in write_parity(*group, valid, of_ranks=True)]
    entries += [write_edge_parity(valid, *one) for one in EDGES]
    (invalid / PARENT).write_bytes(SOUND)
    for step, data in {**HALVES, **LATE}.items():
        (invalid / f"{step:012d}.lcc.h5").write_bytes(data)
    for entry in entries:
        entry["level"] = level_of(entry["kind"], (directory / entry["file"]).read_bytes(), beside=valid)
    broken = [(write_broken_frame(vector, invalid), vector) for vector in broken_frames()]
    broken += [(write_broken_checkpoint(vector, PARENT, invalid), vector) for vector in broken_files()]
    broken += [(write_broken_bundle(vector, invalid), vector) for vector in broken_bundles()]
    broken += [(write_newest(*one, directory), one[0]) for one in newest if one[0].rule]
    broken += [(write_broken_parity(*vector, invalid), vector[0]) for vector in broken_parity()]
    for name, data in BESIDE.items():
        (invalid / name).write_bytes(data)
    for entry, vector in broken:
        entry["level"] = level_of(entry["kind"], vector.data, vector.sound, vector.rule)
        entries.append(entry)
    if len({entry["name"] for entry in entries}) != len(entries):
        raise ValueError("two vectors have one name")
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    (directory / "manifest.json").write_bytes(f"[\n{lines}\n]\n".encode())


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)

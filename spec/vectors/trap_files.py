"""Files that decoders misread or refuse which are wrong in one place (``fuzz/wrong.py``)."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from broken import Broken
from broken_checkpoints import (
    COUNTS,
    SOUND,
    WEIGHT,
    Document,
    base64_of,
    entry,
    exact_file,
    file_of,
    keyframe,
    raw_frame,
    text_of,
)
from broken_interpolations import interpolated
from pieces import CODEBOOK, KINDS, PLANES, RAW, SMOOTH, assembled, block, constant, little, packed, raw
from tables import cut, table_of
from traps import Field, bits_of, edge_patterns, values_of

from lccodec.element_types import Array, components, from_components

File = tuple[str, str, bytes, Any]


def trap_files() -> Iterator[File]:
    """Yield valid checkpoint files: name, description, file and state."""
    yield from _interpolated()
    yield from _texts()
    yield from _trees()
    yield from _names()
    yield from _tables()
    yield from _exact()


def _with(document: Document, **members: Any) -> Document:
    """Return a manifest with rare members in their places."""
    order = ("lccodec", "step", "parent", "later", "replaces", "exact", "policy", "figures", "metadata")
    order += ("tree", "scalars", "arrays", "copies", "frames")
    whole = {**document, **members}
    return {name: whole[name] for name in order if name in whole and whole[name] is not ...}


def _root(file: bytes) -> str:
    return base64_of(file[-32:])


# --- interpolation --------------------------------------------------------------------------------


def _between(kind: Any, low: Array, high: Array, weight: int) -> Array:
    """Return the reference of two arrays' components (LCC-INT-04), operation by operation."""
    number = np.float16 if kind.name == "float16" else values_of(low, kind).dtype.type
    l, h = values_of(low, kind), values_of(high, kind)  # noqa: E741

    def rounded(values: Array) -> Array:
        return values_of(bits_of(np.ascontiguousarray(values), kind), kind)

    with np.errstate(all="ignore"):
        r = rounded(l - rounded(rounded(l - h) * number(weight / 256)))
        bits = bits_of(np.ascontiguousarray(r), kind)
        return np.where(np.isfinite(r), bits, low).astype(kind.bits)


def _interpolated() -> Iterator[File]:
    """Yield two keyframes that replace others, and checkpoints between them."""
    early: dict[str, Array] = {}
    late: dict[str, Array] = {}
    kinds = [KINDS[name] for name in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")]
    pairs: dict[str, tuple[Array, Array]] = {}
    for kind in kinds:
        sign, infinity = 1 << (8 * kind.size - 1), (1 << (8 * kind.size - 1)) - (1 << kind.mantissa)
        edges = [*edge_patterns(kind), infinity, infinity | sign, infinity | 1 << kind.mantissa - 1 | 1]
        grid = np.array([(a, b) for a in edges for b in edges] + [(1, 0)], kind.bits)
        pairs[kind.name] = grid[:, 0].copy(), grid[:, 1].copy()
        whole = (grid.shape[0] // kind.components,)
        early[kind.name], late[kind.name] = (
            from_components(bits, kind, whole, "bits") for bits in pairs[kind.name]
        )
    six = np.arange(6, dtype="<f4")
    early |= {
        "another shape": six.reshape(2, 3),
        "another type": six,
        "another type of two bytes": np.arange(4, dtype="<f2"),
        "an integer": np.arange(6, dtype="<i4"),
        "a flag": np.array([0, 1, 1], np.bool_),
        "not there": six + 1,
        "of no elements": np.zeros((0, 2), "<f4"),
    }
    late |= {
        "another shape": six.reshape(3, 2) * 4,
        "another type": np.arange(6, dtype="<i4") * 5 + 7,
        "another type of two bytes": np.arange(4, dtype="<i2") + 9,
        "an integer": np.arange(6, dtype="<i4") * 3 + 1,
        "a flag": np.array([1, 1, 0], np.bool_),
        "late": six,
        "of no elements": np.zeros((0, 2), "<f4"),
    }

    def frame_of(array: Any) -> bytes:
        kind, bits = components(array)
        return assembled("", "", (RAW, kind.name, array.shape, 0), little(bits), bits).data

    def key(step: int, state: dict[str, Any], replaced: Sequence[str]) -> bytes:
        frames = [frame_of(array) for array in state.values()]
        document = keyframe(
            frames,
            step=step,
            tree={name: place for place, name in enumerate(state)},
            scalars=...,
            arrays=list(range(1, len(frames) + 1)),
            metadata=...,
        )
        return file_of(text_of(_with(document, replaces=list(replaced))), b"".join(frames))

    others = [base64_of(hashlib.sha256(text).digest()) for text in (b"first", b"second", b"third")]
    low, high = key(200, early, others[:2]), key(216, late, others)
    yield "000000000200", "a keyframe that took the place of two others", low, early
    yield "000000000216", "a keyframe that took the place of three others", high, late

    def between(
        step: int, before: tuple[int, str], behind: tuple[int, str], weight: int, **members: Any
    ) -> bytes:
        document = interpolated(step, (0, low), (1, high), tree=..., scalars=..., metadata=...)
        payload = members.pop("payload", ())
        entries = members.pop("entries", [entry(frame) for frame in payload])
        document |= {"parent": list(before), "later": [*behind, weight], "frames": entries}
        return file_of(text_of(_with(document, **members)), b"".join(payload))

    def mixed(first: dict[str, Any], second: dict[str, Any], weight: int) -> dict[str, Any]:
        state = dict(first)
        for name, array in first.items():
            kind, bits = components(array)
            if kind.is_float and name in second:
                other, after = components(second[name])
                if other == kind and second[name].shape == array.shape:
                    state[name] = from_components(
                        _between(kind, bits, after, weight), kind, array.shape, "bits"
                    )
        return state

    zeros = [0] * len(early)
    data = between(208, (200, others[1]), (216, others[2]), 100, arrays=zeros)
    middle = mixed(early, late, 100)
    yield (
        "000000000208",
        "interpolated: edges of each type, arrays of another shape, another type, or that are not there",
        data,
        middle,
    )
    # A tree of its own: an array more, which is a copy, and one with a frame against the reference.
    own = {name: place for place, name in enumerate(early)}
    own |= {"copy": len(own), "rounding": len(own) + 1, "text": None}
    expected = mixed(early, middle, 255)
    moved = expected["not there"] + np.float32(0.5)
    body = struct.pack("<Hf", 1, 0.5) + block(b"\0", packed(1, constant(0x3F)))
    frame = assembled("", "", (CODEBOOK, "float32", (6,), 10), body, moved, expected["not there"]).data
    table = table_of(cut(frame, [1]))
    entries = [[len(frame), base64_of(hashlib.sha256(table).digest()[:16]), len(table)]]
    numbers: list[int | None] = [1 if name == "not there" else 0 for name in early] + [None, None]
    index = list(early).index("not there")
    data = between(
        204,
        (200, others[0]),
        (208, _root(data)),
        255,
        tree=own,
        scalars=["own"],
        arrays=numbers,
        copies=[[index, 255], [index, 10]],
        payload=[frame + table],
        entries=entries,
    )
    kind = KINDS["bfloat16"]
    brain = from_components(bits_of(np.ascontiguousarray(moved), kind), kind, (6,), "bits")
    quarter = {**expected, "not there": moved, "copy": moved.copy(), "rounding": brain, "text": "own"}
    yield (
        "000000000204",
        "interpolated, with a tree of its own, a frame with a table, copies and a scalar",
        data,
        quarter,
    )
    middle_file = between(208, (200, others[1]), (216, others[2]), 100, arrays=zeros)
    inherited = {name: quarter[name] for name in quarter}
    arrays = [0] * (len(early) + 2)
    data206 = between(206, (204, _root(data)), (208, _root(middle_file)), 128, scalars=[7], arrays=arrays)
    state206 = {**mixed({k: v for k, v in inherited.items() if k != "text"}, middle, 128), "text": 7}
    yield "000000000206", "interpolated; its tree is that of an interpolated parent", data206, state206
    data205 = between(205, (204, _root(data)), (206, _root(data206)), 1, scalars=[None], arrays=arrays)
    first = {k: v for k, v in quarter.items() if k != "text"}
    second = {k: v for k, v in state206.items() if k != "text"}
    yield (
        "000000000205",
        "interpolated between two that are interpolated; its tree is inherited twice",
        data205,
        {**mixed(first, second, 1), "text": None},
    )
    data212 = between(212, (208, _root(middle_file)), (216, others[0]), 128, arrays=zeros)
    yield (
        "000000000212",
        "interpolated; the tree is that of the earlier parent, and the later has another",
        data212,
        mixed(middle, late, 128),
    )


# --- JSON, tree, scalars --------------------------------------------------------------------------


def _texts() -> Iterator[File]:
    """Yield scalars whose texts a decoder may write in another way, and metadata."""
    floats = [float("-inf"), float("inf"), float("nan"), 0.0, -0.0]
    for near in (1e-4, 1e-5, 1e15, 1e16, 1e17, 1e21, 1e22, 1e23, 1e-6, 1e-7, 1e100, 2.0**53, 2.0**63, 1.0):
        floats += [near, float(np.nextafter(near, 0)), float(np.nextafter(near, np.inf)), -near]
    floats += [5e-324, 1.7976931348623157e308, 2.2250738585072014e-308, -1.2345678901234567e-105]
    floats += [123456789012345680.0, 0.1, 0.30000000000000004, 9007199254740993.0, 1e-10, 3e-5, 12e-6]
    texts = [chr(code) for code in range(32)] + ['"', "\\", "/", "\x7f", "\x80", "\x85", "\u2028", "\u2029"]
    texts += ["\ufeff", "\uffff", "\ud7ff", "\ue000", "\U00010000", "\U0001f600", "\U0010ffff", "", "\\u001f"]
    texts += ["e\u0301", "\u00e9", "[[[", '{"a":[', '\\"]', "__proto__", "nan", "1.0", "null", "[" * 70]
    blobs = [b"", b"\0", b"\xff\xfe", b"\xfb\xef\xbe\xff", b"abc", b"abcd", bytes(range(256))]
    whole = [0, 1, -1, 2**31, -(2**31) - 1, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**30]
    plain = [None, True, False]
    for name, values, entries in (
        ("floats-near", floats, [{"f": repr(value)} for value in floats]),
        ("strings", texts, texts),
        ("bytes", blobs, [{"b": base64.b64encode(value).decode()} for value in blobs]),
        ("integers", whole + plain, whole + plain),
    ):
        tree = ["l", *[None] * len(values)]
        metadata = {"": "", "empty": "", "\x7f": "\u2028", "\U0001f600": "\t\b\f\r\x1f"}
        document = keyframe((), tree=tree, scalars=entries, arrays=[], metadata=metadata)
        yield name, f"scalars: {name.replace('-', ' ')}", file_of(text_of(document), b""), values
    policy = [1.5, 1e-5, 0.0001, 1e16, 123456789012345.6, -0.0, 1e15, 5e-324, [[[{}]]], {"": []}]
    document = keyframe(policy=policy)
    state = {"weight": np.array([1, 2, 3], "<f4"), "list": [np.array([7, 8], "<i2"), 0.1]}
    state["pair"] = (-7, state["weight"])
    yield (
        "policy",
        "numbers with a fraction and an exponent in the policy",
        file_of(text_of(document), WEIGHT + COUNTS),
        state,
    )


def _trees() -> Iterator[File]:
    """Yield trees of empty nodes, odd keys, and the deepest ones."""
    weight, counts = np.array([1, 2, 3], "<f4"), np.array([7, 8], "<i2")
    for name, why, tree, state in (
        ("empty-dict", "a state that is an empty dict", {}, {}),
        ("empty-list", "a state that is an empty list", ["l"], []),
        ("empty-tuple", "a state that is an empty tuple", ["t"], ()),
    ):
        document = keyframe((), tree=tree, scalars=..., arrays=[], metadata=...)
        yield name, why, file_of(text_of(document), b""), state
    keys = ["", "\x7f", "\u2028", "\U0001f600", "\ud7ff\ue000", "__proto__", "constructor", "0", "10", "-1"]
    keys += ["~", "/", "~1", "~0", "a/b~c", "\x1f", '"', "\\", "k" * 300, "l", "t", "length", "1e3"]
    tree: dict[str, Any] = dict.fromkeys(keys)
    tree |= {
        "": {"": {"": 0}},
        "/": ["l", ["l"], ["t"], {}, 1, 0],
        "twice": ["t", 0, 0],
        "0": {"2": 1, "1": None},
    }
    scalars = list(range(_nulls(tree)))
    left = iter(scalars)
    state = _state(tree, [weight, counts], left)
    document = keyframe(tree=tree, scalars=scalars)
    yield (
        "keys",
        "keys that are empty, numbers, escaped, or of rare characters",
        file_of(text_of(document), WEIGHT + COUNTS),
        state,
    )
    document = keyframe((WEIGHT,), tree={"": 0, "a": {"": None}}, scalars=[7], arrays=[1])
    why = "an array whose name is empty, as that of the root"
    yield "empty-key", why, file_of(text_of(document), WEIGHT), {"": weight, "a": {"": 7}}
    # Names that are one if they are escaped in another way.
    several = {
        "a": 0,
        "": {"a": 1, "": 2},
        "/": 3,
        "~1": 4,
        "~01": 5,
        "b": {"c": 6},
        "b/c": 7,
        "~0": 8,
        "~": 9,
    }
    arrays = [np.array([value], "<f4") for value in range(10)]
    frames = [raw_frame(array) for array in arrays]
    document = keyframe(frames, step=240, tree=several, scalars=..., arrays=list(range(1, 11)))
    first = file_of(text_of(document), b"".join(frames))
    state = _state(several, arrays, iter(()))
    yield "000000000240", "names that are alike but for what is escaped", first, state
    document = keyframe((), step=241, parent=[240, _root(first)], tree=..., scalars=..., arrays=[0] * 10)
    yield (
        "000000000241",
        "a delta against step 240 in which nothing changes",
        file_of(text_of(document), b""),
        state,
    )
    # An array, a scalar and an empty node at the depth of 64, and a policy that nests 65 deep.
    deepest: Any = ["l", 0, None, 1]
    for place in range(63):
        deepest = {"k": deepest} if place % 3 == 0 else ["lt"[place % 3 - 1], deepest]
    policy: Any = []
    for _ in range(63):
        policy = [policy]
    document = keyframe(tree=deepest, scalars=[5], policy=policy)
    state = _state(deepest, [weight, counts], iter([5]))
    yield (
        "deepest",
        "arrays 64 deep, and a policy of 64 lists",
        file_of(text_of(document), WEIGHT + COUNTS),
        state,
    )


def _nulls(node: Any) -> int:
    if node is None:
        return 1
    if isinstance(node, dict):
        return sum(map(_nulls, node.values()))
    return sum(map(_nulls, node[1:])) if isinstance(node, list) else 0


def _state(node: Any, arrays: Sequence[Array], scalars: Iterator[Any]) -> Any:
    """Return the state of a tree."""
    if node is None:
        return next(scalars)
    if isinstance(node, int):
        return arrays[node]
    if isinstance(node, dict):
        return {key: _state(child, arrays, scalars) for key, child in node.items()}
    items = [_state(child, arrays, scalars) for child in node[1:]]
    return items if node[0] == "l" else tuple(items)


def _long_names(unit: str, most: int) -> dict[str, Any]:
    """Return a tree whose names have as many characters together, most of a key of these units."""
    items = 2900
    below = sum(1 + len(str(place)) for place in range(items))
    size, rest = divmod(most - below - 4, items + 1)
    key, other = unit * ((size - 1) // len(unit)), size - 1 - (size - 1) // len(unit) * len(unit)
    return {"r" * (rest - 1): 0, key + "k" * other: ["l", *[1] * items], "a": None, "b": None}


_UNITS = (
    ("astral", "\U0001f601", "characters beyond U+FFFF"),
    ("two-bytes", "\u00e9", "characters of two bytes"),
    ("escaped", '"\\', "characters that JSON escapes"),
    ("slashes", "~/", "characters that names escape"),
)


def _names() -> Iterator[File]:
    """Yield trees whose names have as many characters as there may be, of several kinds."""
    weight, counts = np.array([1, 2, 3], "<f4"), np.array([7, 8], "<i2")
    for name, unit, what in _UNITS:
        tree = _long_names(unit, 1 << 24)
        file = file_of(text_of(keyframe(tree=tree)), WEIGHT + COUNTS)
        state = _state(tree, [weight, counts], iter([0.1, -7]))
        yield f"names-{name}", f"2^24 characters in the names of all nodes, most of them {what}", file, state


# --- tables and exact files -----------------------------------------------------------------------


def _tables() -> Iterator[File]:
    """Yield a file of frames with tables and without: runs, raw complex numbers, fields."""
    frames: list[bytes] = []
    entries: list[list[Any]] = []
    payload = b""
    state: dict[str, Any] = {}
    numbers: list[int] = []

    def add(frame: bytes, blocks: Sequence[int], arrays: dict[str, Any]) -> None:
        nonlocal payload
        table = table_of(cut(frame, blocks)) if blocks else b""
        digest = base64_of(hashlib.sha256(table or frame).digest()[:16])
        entries.append([len(frame), digest] + [len(table)] * bool(table))
        payload += frame + table
        frames.append(frame)
        state.update(arrays)
        numbers.extend([len(frames)] * len(arrays))

    shapes: list[tuple[int, ...]] = [(700,), (1, 800), (0,)]
    book = struct.pack("<3H4f", 2, 1, 1, 0.5, 1.5, 2.5, 9.0)
    symbols = [place % 3 for place in range(700)] + [place % 2 for place in range(800)]
    table = ([0, 0.5, 1.5], [0, 2.5])
    values = np.array([table[place >= 700][symbol] for place, symbol in enumerate(symbols)], "<f4")
    body = book + b"".join(block(b"\0", raw(part)) for part in (symbols[:1024], symbols[1024:]))
    run = assembled("", "", (CODEBOOK, "float32", shapes, 10), body, values).data
    add(run, [1, 1], {"a": values[:700], "b": values[700:].reshape(1, 800), "c": values[:0]})
    counts = np.arange(300, dtype="<i2")
    add(
        assembled("", "", (RAW, "int16", counts.shape, 0), little(counts), counts).data,
        [],
        {"counts": counts},
    )
    wide = np.zeros((1 << 15) + 9, "<c8")
    wide[::1000] = 3 - 2j
    bits = wide.view("<u4")
    add(assembled("", "", (RAW, "complex64", wide.shape, 0), little(wide), bits).data, [1, 1], {"wide": wide})
    pairs = np.arange(40, dtype="<f8")
    raws = assembled("", "", (RAW, "float64", [(30,), (2, 5)], 0), little(pairs), pairs).data
    add(raws, [1], {"d": pairs[:30], "e": pairs[30:].reshape(2, 5)})
    half = np.arange(9, dtype="<f2")
    add(assembled("", "", (RAW, "float16", half.shape, 0), little(half), half).data, [1], {"half": half})
    whole = np.arange(5, dtype="<c16")
    add(
        assembled("", "", (RAW, "complex128", whole.shape, 0), little(whole), whole).data,
        [1],
        {"whole": whole},
    )
    field = Field((9, 3), [1, 2])
    smooth = assembled("", "", (SMOOTH, "float64", (9, 3), 16), field.block(), field.y).data
    add(smooth, [], {"field": field.y})
    document = keyframe(
        (),
        step=230,
        tree={name: place for place, name in enumerate(state)},
        scalars=...,
        arrays=numbers,
        frames=entries,
    )
    first = file_of(text_of(document), payload)
    yield "000000000230", "tables of runs, of raw frames of several types; frames without", first, state
    frames, entries, payload, numbers = [], [], b"", []
    moved = dict(state)
    state = {}
    again = Field((9, 3), [2, 1], seed=5)
    total = again.y + moved["field"]
    add(
        assembled("", "", (SMOOTH, "float64", (9, 3), 16), again.block(), total, moved["field"]).data,
        [1],
        {"field": total},
    )
    after = counts + 1
    add(
        assembled(
            "", "", (PLANES, "int16", counts.shape, 10), block(constant(2), constant(0)), after, counts
        ).data,
        [1],
        {"counts": after},
    )
    both = {**moved, **state}
    arrays = [{"field": 2, "counts": 1}.get(name, 0) for name in moved]
    entries = [entries[1], entries[0]]
    smooth_size = len(frames[0]) + 56
    payload = payload[smooth_size:] + payload[:smooth_size]
    document = keyframe(
        (), step=231, parent=[230, _root(first)], tree=..., scalars=..., arrays=arrays, frames=entries
    )
    yield (
        "000000000231",
        "a delta against step 230: tables of planes and of a field",
        file_of(text_of(document), payload),
        both,
    )


def _exact() -> Iterator[File]:
    """Yield an exact file with copies."""
    weight = np.array([1, 2, 3], "<f4")
    tree = {"weight": 0, "copy": 1, "rounding": 2}
    document = exact_file((WEIGHT,), tree=tree, scalars=..., arrays=[1, None, None], step=7)
    frames = document.pop("frames")
    document |= {"copies": [[0, 255], [0, 10]], "frames": frames}
    brain = from_components(np.array([0x3F80, 0x4000, 0x4040], np.uint16), KINDS["bfloat16"], (3,), "bits")
    state = {"weight": weight, "copy": weight.copy(), "rounding": brain}
    yield "exact-copies", "an exact file with copies", file_of(text_of(document), WEIGHT), state
    # A Writer makes no such chain. A Reader reads it (LCC-EXA-01).
    own = {"tree": {"w": 0}, "scalars": ...}
    first = file_of(text_of(exact_file((WEIGHT,), step=235, arrays=[1], **own)), WEIGHT)
    yield (
        "000000000235",
        "a checkpoint of a chain that says of itself to be an exact file",
        first,
        {"w": weight},
    )
    document = keyframe((), step=236, parent=[235, _root(first)], tree=..., scalars=..., arrays=[0])
    yield "000000000236", "a delta against step 235", file_of(text_of(document), b""), {"w": weight}


# --- faults ---------------------------------------------------------------------------------------


def broken_trap_files() -> Iterator[Broken]:
    """Yield invalid checkpoint files."""
    payload, text = WEIGHT + COUNTS, text_of(keyframe())

    def case(
        rule: str, name: str, why: str, data: bytes, error: str = "FormatError", sound: bytes = SOUND
    ) -> Broken:
        return Broken(rule, name, error, why, data, sound)

    place = 445 + len(payload)
    for name, fields in (
        ("manifest-offset", {"manifest_offset": place + 1}),
        ("manifest-before", {"manifest_offset": 445}),
    ):
        yield case(
            "LCC-TRL-06",
            name,
            "the trailer has a wrong manifest offset alone",
            file_of(text, payload, **fields),
        )
    why = "there is a trailer, and nothing before it"
    yield case("LCC-TRL-06", "trailer-alone", why, SOUND[-88:])
    many, most = 2048, 2**53 - 1
    rest = -many * most % 2**64
    digest = base64_of(bytes(16))
    frames = [entry(WEIGHT)] + [[most, digest]] * many + [[rest, digest]]
    document = keyframe(
        (), tree=["l", *range(many + 2)], scalars=..., arrays=[*range(1, many + 3)], frames=frames
    )
    why = "the lengths of the frames sum to the payload modulo 2^64"
    yield case("LCC-MAN-05", "sum-modulo", why, file_of(text_of(document), WEIGHT))
    nothing = [0, base64_of(hashlib.sha256(b"").digest()[:16])]
    document = keyframe((), frames=[nothing, entry(COUNTS)])
    why = "a frame has no bytes, and its digest is right"
    yield case("LCC-MAN-05", "zero-length", why, file_of(text_of(document), COUNTS))

    values = np.repeat(np.array([0, 255, 1], np.uint8), 1024)[:2500]
    constants = b"".join(block(constant(value)) for value in (0, 1, 2))
    frame = assembled("", "", (PLANES, "uint8", values.shape, 10), constants, values).data

    def cut_file(table: bytes, digest: bytes) -> bytes:
        frames = [[len(frame), base64_of(hashlib.sha256(digest).digest()[:16]), len(table)]]
        return file_of(
            text_of(keyframe(tree={"w": 0}, scalars=..., arrays=[1], frames=frames)), frame + table
        )

    pieces = cut(frame, [1, 2])
    table = table_of(pieces)
    whole = cut_file(table, table)
    why = "the digest of an entry with a table is that of the frame"
    yield case("LCC-MAN-08", "frame-for-table", why, cut_file(table, frame), "ChecksumError", whole)
    why = "the digest of an entry with a table is that of both"
    yield case("LCC-MAN-08", "frame-and-table", why, cut_file(table, frame + table), "ChecksumError", whole)
    (zero, head), (one, first), (two, last) = pieces
    around = bytearray(table_of([(zero, head), (one, first), (two, last)]))
    struct.pack_into("<Q", around, 4, 2**64 - 100)
    struct.pack_into("<Q", around, 32, len(frame) - len(last) + 100)
    why = "the lengths of the pieces sum to that of the frame modulo 2^64"
    yield case("LCC-PCS-01", "sum-modulo", why, cut_file(bytes(around), bytes(around)), sound=whole)

    for name, unit, what in _UNITS:
        good, bad = (
            file_of(text_of(keyframe(tree=_long_names(unit, 1 << 24 | extra))), payload) for extra in (0, 1)
        )
        why = f"the names have 2^24 + 1 characters, most of them {what}"
        yield case("LCC-LIM-08", f"names-{name}", why, bad, "LimitError", good)

    for kind in ("float64", "float16", "complex64", "int32", "uint32", "bfloat16"):
        bits = np.array([0, 0], KINDS[kind].bits) if kind != "complex64" else np.zeros(4, "<u4")
        frame_of = assembled("", "", (RAW, kind, (2,), 0), little(bits), bits).data
        right = raw_frame(np.zeros(2, "<f4"))
        files = []
        for one_frame in (frame_of, right):
            document = keyframe((one_frame,), tree=["l", 0, 1], scalars=..., arrays=[1, None])
            frames = document.pop("frames")
            document |= {"copies": [[0, 10]], "frames": frames}
            files.append(file_of(text_of(document), one_frame))
        yield case("LCC-CPY-02", kind, f"the source of a rounding is {kind}", files[0], sound=files[1])
    yield from _broken_json()


def _broken_json() -> Iterator[Broken]:
    """Yield texts that parsers of JSON read, and that are not canonical."""
    payload, rule = WEIGHT + COUNTS, "LCC-MAN-01"

    def case(name: str, why: str, old: bytes, new: bytes, **members: Any) -> Broken:
        text = text_of(keyframe(**members))
        assert text.count(old) == 1, (old, text)
        sound, data = (file_of(one, payload) for one in (text, text.replace(old, new)))
        return Broken(rule, name, "FormatError", why, data, sound)

    seven = {"scalars": [{"f": "0.1"}, -7]}
    yield case("leading-zero", "an integer begins with 0", b"-7]", b"-07]", **seven)
    yield case("leading-zeros", "a step is written 01", b'"step":1', b'"step":01')
    yield case("minus-alone", "an integer is a lone minus", b"-7]", b"-]", **seven)
    yield case("plus", "an integer begins with a plus", b"-7]", b"+7]", **seven)
    yield case("comma-behind", "a comma follows the last item", b"-7]", b"-7,]", **seven)
    yield case("comma-in-object", "a comma follows the last member", b'\\n"}', b'\\n",}')
    yield case("tab", "a tab follows a colon", b'"step":1', b'"step":\t1')
    yield case("space-behind", "a space follows the manifest", b"]]}", b"]]} ")
    for name, plain, written, why in (
        ("delete", "\x7f", b"\\u007f", "DEL is escaped"),
        ("slash", "/", b"\\/", "a slash is escaped"),
        ("upper-case", "\x1f", b"\\u001F", "an escape has upper case"),
        ("raw-1f", "\x1f", b"\x1f", "U+001F stands for itself"),
        ("raw-tab", "\t", b"\t", "a tab stands for itself"),
        ("raw-00", "\0", b"\0", "U+0000 stands for itself"),
        ("pair", "\U0001f600", b"\\ud83d\\ude00", "an astral character is escaped"),
        ("line-separator", "\u2028", b"\\u2028", "U+2028 is escaped"),
        ("long-tab", "\t", b"\\u0009", "a tab is escaped as \\u0009"),
        ("long-quote", '"', b"\\u0022", "a quote is escaped as \\u0022"),
        ("long-backslash", "\\", b"\\u005c", "a backslash is escaped as \\u005c"),
    ):
        old = text_of(f"v{plain}w")
        members = {"metadata": {"vector": f"v{plain}w"}}
        yield case(f"escape-{name}", why, old, b'"v' + written + b'w"', **members)
    policy = {"policy": {"a": {"b": 1, "c": 2}}}
    yield case(
        "inner-member-twice", "an inner object has a member twice", b'"b":1,', b'"b":1,"b":1,', **policy
    )
    twice = {
        "tree": {"weight": 0, "list": ["l", 1, None], "pair": {"a": None, "b": None}},
        "scalars": [1, 2, 3],
    }
    yield case("key-twice", "a dict of the tree has a key twice", b'"b":null', b'"b":null,"b":null', **twice)
    for name, right, written in (
        ("short-exponent", 1e-5, b"1e-5"),
        ("no-sign", 1e16, b"1e16"),
        ("capital", 1e16, b"1E+16"),
        ("point-behind", 1.0, b"1."),
        ("point-before", 0.5, b".5"),
        ("small-fixed", 1e-5, b"0.00001"),
        ("large-fixed", 1e16, b"10000000000000000.0"),
        ("small-exponent", 1e-4, b"1e-04"),
        ("large-exponent", 1e15, b"1e+15"),
        ("long", 0.1, b"0.10000000000000001"),
    ):
        why = f"a number is written {written.decode()}"
        yield case(f"number-{name}", why, b'"policy":' + text_of(right), b'"policy":' + written, policy=right)
    rule = "LCC-STA-05"
    data = file_of(text_of(keyframe(scalars=[{"f": "1"}, {"x": "1.0"}])), payload)
    why = "the first scalar is no canonical float, and the second has no form"
    yield Broken(rule, "before-a-form", "FormatError", why, data, SOUND)
    for name, text in (
        ("minus-nan", "-nan"),
        ("plus-inf", "+inf"),
        ("small-infinity", "infinity"),
        ("nan-space", "nan "),
        ("space", " 1.0"),
        ("space-behind", "1.0 "),
        ("minus-inf-space", "-inf "),
        ("capital-nan", "NaN"),
        ("plus", "+1.0"),
        ("short-exponent", "1e-5"),
        ("small-exponent", "1e-04"),
        ("large-exponent", "1e+15"),
        ("small-fixed", "0.00001"),
        ("long", "0.10000000000000001"),
        ("minus-zero", "-0"),
        ("hexadecimal", "0x1p0"),
        ("empty", ""),
    ):
        data = file_of(text_of(keyframe(scalars=[{"f": text}, -7])), payload)
        why = f"a float is written {text_of(text).decode()}"
        yield Broken(rule, f"float-{name}", "FormatError", why, data, SOUND)

"""Checkpoint files with a broken part, trailer or link to their parent (SPEC 5.1, 8, 9 and 11)."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from broken import Broken
from pieces import CODEBOOK, PLANES, RAW, assembled, block, constant, little, raw

from lccodec.container.checkpoint import Trailer, skeleton

#: The sound parent of all deltas made here, step 1.
PARENT = "000000000001.lcc.h5"

#: Bytes before the payload.
HEAD = 445


Document = dict[str, Any]


# --- pieces ---------------------------------------------------------------------------------------


def text_of(document: Any) -> bytes:
    """Return JSON in the form of LCC-MAN-01."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def base64_of(data: bytes) -> str:
    """Return bytes as the text of LCC-MAN-08."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def entry(frame: bytes) -> list[Any]:
    """Return the entry of a frame in a manifest (LCC-MAN-05, LCC-MAN-08)."""
    return [len(frame), base64_of(hashlib.sha256(frame).digest()[:16])]


def file_of(
    manifest: bytes,
    payload: bytes,
    sizes: tuple[int, int] | None = None,
    **fields: int | bytes,
) -> bytes:
    """Return a checkpoint file of these parts; its root is right.

    `sizes` are the sizes that the HDF5 part is made for. `fields` replace those of the trailer.
    """
    head = skeleton(Trailer(*(sizes or (len(payload), len(manifest)))))
    place = HEAD + len(payload)
    right: dict[str, int | bytes] = {
        "magic": b"LCCODEC\x1a",
        "major": 1,
        "minor": 0,
        "layout": 1,
        "payload_offset": HEAD,
        "payload_length": len(payload),
        "manifest_offset": place,
        "manifest_length": len(manifest),
        "file_length": place + len(manifest) + 88,
    }
    trailer = struct.pack("<8sHHI5Q", *(right | fields).values())
    return rooted(head + payload + manifest + trailer + bytes(32), len(payload))


def rooted(file: bytes, payload: int) -> bytes:
    """Return a file with the root that its bytes have (LCC-TRL-05)."""
    return file[:-32] + hashlib.sha256(file[:HEAD] + file[HEAD + payload : -32]).digest()


def raw_frame(array: np.ndarray[Any, Any]) -> bytes:
    """Return an array as a raw frame."""
    return assembled("", "", (RAW, array.dtype.name, array.shape, 0), little(array), array).data


WEIGHT = raw_frame(np.array([1, 2, 3], "<f4"))
COUNTS = raw_frame(np.array([7, 8], "<i2"))


def keyframe(payload: Sequence[bytes] = (WEIGHT, COUNTS), **members: Any) -> Document:
    """Return the manifest of a keyframe.

    `members` replace its own, ``...`` leaves one out.
    """
    document = {
        "lccodec": [1, 0],
        "step": 1,
        "parent": None,
        "policy": "by hand",
        "metadata": {"vector": "π\n"},
        "tree": {"weight": 0, "list": ["l", 1, None], "pair": ["t", None, 0]},
        "scalars": [{"f": "0.1"}, -7],
        "arrays": [1, 2],
        "frames": [entry(frame) for frame in payload],
    } | members
    return {name: member for name, member in document.items() if member is not ...}


SOUND = file_of(text_of(keyframe()), WEIGHT + COUNTS)


def delta(payload: Sequence[bytes] = (), **members: Any) -> Document:
    """Return the manifest of a delta against `SOUND` that changes only what these frames hold."""
    parent = [1, base64_of(SOUND[-32:])]
    return keyframe(payload, **{"step": 2, "parent": parent, "tree": ..., "arrays": [0, 0], **members})


def _case(rule: str, case: str, why: str, data: bytes, error: str = "FormatError", **options: Any) -> Broken:
    """Return a vector that is `SOUND` with one fault."""
    return Broken(rule, case, error, why, data, **{"sound": SOUND, **options})


def broken_checkpoints() -> Iterator[Broken]:
    """Yield every invalid checkpoint file."""
    yield from _parts()
    yield from _trailers()
    yield from _metadata()
    yield from _links()
    yield from _references()
    yield from _replacing()
    yield from _exact_files()


# --- parts of the file ----------------------------------------------------------------------------


def _parts() -> Iterator[Broken]:
    """Yield files that end early or late, and files of another kind."""
    payload = len(WEIGHT) + len(COUNTS)
    for name, size in (
        ("signature", 5),
        ("superblock", 40),
        ("head", 300),
        ("payload", HEAD + payload // 2),
        ("manifest", len(SOUND) - 100),
        ("trailer", len(SOUND) - 88),
    ):
        why = f"the file ends in the {name}" if name != "trailer" else "the file ends before the trailer"
        yield _case("LCC-H5-01", f"ends-in-{name}", why, SOUND[:size], "TruncatedError")
    rule = "LCC-TRL-01"
    yield _case(rule, "nothing", "the file has no bytes", b"")
    yield _case(rule, "byte-behind", "a byte follows the trailer", SOUND + b"\0")
    magic = file_of(text_of(keyframe()), WEIGHT + COUNTS, magic=b"LCCODEC\x1b")
    yield _case(rule, "magic", "the last byte of the magic is 0x1b", magic)


def _trailers() -> Iterator[Broken]:
    """Yield trailers that do not fit the file, or are of another version."""
    text, payload = text_of(keyframe()), WEIGHT + COUNTS
    place, end = HEAD + len(payload), len(SOUND)
    newer = "UnsupportedError"
    for major in (0, 2):
        data = file_of(text, payload, major=major)
        yield _case("LCC-TRL-03", f"major-{major}", f"the major version is {major}", data, newer)
    for layout in (0, 2):
        data = file_of(text, payload, layout=layout)
        yield _case("LCC-TRL-04", f"layout-{layout}", f"the layout is {layout}", data, newer)
    rule, error = "LCC-TRL-05", "ChecksumError"
    yield _case(rule, "root", "a bit of the root is changed", SOUND[:-1] + bytes([SOUND[-1] ^ 1]), error)
    for name, offset in (("head", HEAD - 1), ("manifest", place + len(text) - 3)):
        data = SOUND[:offset] + bytes([SOUND[offset] ^ 1]) + SOUND[offset + 1 :]
        yield _case(rule, name, f"a bit of the {name} is not that of the root", data, error)
    rule, more = "LCC-TRL-06", len(payload) + 1
    for name, fields in (
        ("payload-offset", {"payload_offset": HEAD + 1}),
        ("payload-length", {"payload_length": more}),
        ("manifest-length", {"manifest_length": len(text) - 1}),
        ("file-length", {"file_length": end - 1}),
        (
            "around",
            {"payload_length": 2**64 - 1, "manifest_offset": HEAD - 1, "file_length": HEAD + 87 + len(text)},
        ),
    ):
        why = f"the trailer has a wrong {' and '.join(fields).replace('_', ' ')}"
        yield _case(rule, name, why, file_of(text, payload, **fields))
    most = {"manifest_length": 2**26, "file_length": place + 2**26 + 88}
    why = "the trailer declares a manifest of 2^26 bytes, as many as there may be"
    yield _case(rule, "largest-manifest", why, file_of(text, payload, **most))
    huge = 2**26 + 1
    fields = {"manifest_length": huge, "file_length": place + huge + 88}
    why = "the trailer declares a manifest of 2^26 + 1 bytes"
    yield _case("LCC-LIM-04", "manifest", why, file_of(text, payload, **fields), "LimitError")


def _metadata() -> Iterator[Broken]:
    """Yield files whose HDF5 metadata are not those that HDF5 writes; the root is right."""
    text, payload = text_of(keyframe()), WEIGHT + COUNTS
    nothing = text_of(keyframe((), tree=None, scalars=[None], arrays=[]))
    empty = file_of(nothing, b"")

    def case(name: str, why: str, data: bytes, sound: bytes = SOUND) -> Broken:
        return _case("LCC-H5-05", name, why, data, sound=sound, reported_by="validator")

    for name, offset, why in (
        ("dataset", 94, "the first dataset has another name than payload"),
        ("about", 230, "the attribute has another text"),
        ("checksum", HEAD - 1, "the last byte of a checksum of HDF5 is changed"),
    ):
        data = SOUND[:offset] + bytes([SOUND[offset] ^ 0x10]) + SOUND[offset + 1 :]
        yield case(name, why, rooted(data, len(payload)))
    sizes = (len(payload) - 1, len(text) + 1)
    why = "HDF5 has a payload that is a byte shorter, and a manifest that is a byte longer"
    yield case("other-sizes", why, file_of(text, payload, sizes))
    why = "an empty payload has an address"
    head = skeleton(Trailer(1, len(nothing)))
    yield case("empty-payload", why, rooted(head + empty[HEAD:], 0), empty)


# --- chains ---------------------------------------------------------------------------------------


def _links() -> Iterator[Broken]:
    """Yield deltas that name a wrong parent, and a file with the name of another step."""
    sound = file_of(text_of(delta()), b"")

    def case(rule: str, name: str, why: str, document: Document, error: str = "FormatError") -> Broken:
        data = file_of(text_of(document), b"")
        return _case(rule, name, why, data, error, sound=sound, of_the_chain=True)

    rule = "LCC-CHN-02"
    yield case(rule, "own-step", "a delta of step 1 has a parent of step 1", delta(step=1))
    yield case(rule, "no-step", "a delta has no step", delta(step=None))
    other = delta(parent=[1, base64_of(bytes([SOUND[-32] ^ 1]) + SOUND[-31:])])
    yield case(rule, "another-root", "the parent has another root", other, "ChainError")
    why = "the tree of the parent has two arrays, and the delta one"
    yield case("LCC-STA-02", "inherited", why, delta(arrays=[0]))
    why = "the tree of the parent has two scalars, and the delta one"
    yield case("LCC-STA-03", "inherited", why, delta(scalars=[None]))
    name = "LCC-CHN-01-another-step/000000000003.lcc.h5"
    why = "the file named for step 3 holds step 1"
    yield _case("LCC-CHN-01", "another-step", why, SOUND, file=name, reported_by="validator")


def _planes(
    dtype: str, shape: tuple[int, ...] | list[tuple[int, ...]], before: np.ndarray[Any, Any]
) -> bytes:
    """Return a frame in which nothing changes."""
    planes = block(*[constant(0)] * before.dtype.itemsize)
    return assembled("", "", (PLANES, dtype, shape, 10), planes, before, before).data


def _references() -> Iterator[Broken]:
    """Yield frames whose reference the parent does not have, and frames of other arrays."""
    rule, weight, counts = "LCC-CHN-03", np.array([1, 2, 3], "<f4"), np.array([7, 8], "<i2")
    same = _planes("float32", (3,), weight)
    sound = file_of(text_of(delta([same], arrays=[1, 0])), same)
    tree = {"weight": 0, "list": ["l", 1, None], "pair": ["t", None, 0], "new": 2}

    def case(name: str, why: str, frames: Sequence[bytes], **members: Any) -> Broken:
        data = file_of(text_of(delta(frames, **members)), b"".join(frames))
        return _case(rule, name, why, data, sound=sound, of_the_chain=True)

    document = text_of(keyframe((same, COUNTS)))
    why = "a frame of a keyframe has a reference"
    yield _case(rule, "keyframe", why, file_of(document, same + COUNTS))
    other = _planes("int32", (3,), weight.view("<i4"))
    yield case("type", "a frame of int32 has a reference of float32", [other], arrays=[1, 0])
    other = _planes("float32", (1, 3), weight)
    yield case("shape", "a frame of shape (1, 3) has a reference of shape (3,)", [other], arrays=[1, 0])
    one = _planes("int16", [(2,)], counts)
    yield case("one-of-two", "arrays gives two arrays to a run of one", [one], arrays=[1, 1])
    yield case("one-for-two", "arrays gives two arrays to a frame that is not a run", [same], arrays=[1, 1])
    run = assembled("", "", (RAW, "float32", [(3,), (3,)], 0), little(weight) * 2, np.tile(weight, 2)).data
    yield case("two-for-one", "arrays gives one array to a run of two", [run], arrays=[1, 0])
    half = _planes("float32", [(1,), (2,)], weight)
    yield case("two-for-one-relative", "a run of two is for one array", [half], arrays=[1, 0])
    why = "an array that the parent does not have is unchanged from it"
    yield case("unknown-array", why, [], tree=tree, arrays=[0, 0, 0])
    why = "an array that the parent does not have is in a frame with a reference"
    yield case("unknown-reference", why, [same], tree=tree, arrays=[0, 0, 1])


def exact_file(payload: Sequence[bytes] = (WEIGHT, COUNTS), **members: Any) -> Document:
    """Return the manifest of an exact file; members as in `keyframe`.

    With a root as `exact`, it is the manifest of a checkpoint whose exact file has that root.
    """
    document = keyframe(payload, **members)
    head = {name: document.pop(name) for name in ("lccodec", "step", "parent")}
    exact = document.pop("exact", True)
    return {**head, "exact": exact, **document}


def _replacing() -> Iterator[Broken]:
    """Yield checkpoints that say in a wrong form what they took the place of."""
    payload, root = WEIGHT + COUNTS, base64_of(bytes(range(32)))

    def data(roots: Any, **members: Any) -> bytes:
        document = keyframe((WEIGHT, COUNTS), **members)
        head = {name: document.pop(name) for name in ("lccodec", "step", "parent")}
        exact = {name: document.pop(name) for name in ("exact",) if name in document}
        return file_of(text_of({**head, "replaces": roots, **exact, **document}), payload)

    sound, rule = data([root]), "LCC-MAN-12"
    for name, why, roots in (
        ("empty", "a checkpoint replaces none, and says so", []),
        ("text", "the replaced root is not in a list", root),
        ("short", "a replaced root has 42 characters", [root[:-1]]),
        ("hexadecimal", "a replaced root is in hexadecimal", [bytes(range(32)).hex()]),
        ("null", "a replaced root is null", [root, None]),
        ("twice", "a replaced root is there twice", [root, root]),
    ):
        yield _case(rule, name, why, data(roots), sound=sound)
    for name, why, members in (
        ("no-step", "a checkpoint that replaces another has no step", {"step": None}),
        ("exact", "an exact file replaces a checkpoint", {"exact": True}),
    ):
        yield _case(rule, name, why, data([root], **members), sound=sound)


def _exact_files() -> Iterator[Broken]:
    """Yield faults of exact files, and of checkpoints that name one; another file of that name."""
    payload, root = WEIGHT + COUNTS, base64_of(SOUND[-32:])
    sound, naming = (file_of(text_of(exact_file(exact=value)), payload) for value in (True, root))
    rule, name = "LCC-EXA-01", "LCC-EXA-01-another-file/exact.lcc.h5"
    why = "a file with the name of the exact file does not have the member exact"
    yield _case(rule, "another-file", why, SOUND, file=name, reported_by="validator")
    rule = "LCC-EXA-02"
    for name, why, members in (
        ("hexadecimal", "the root of the exact file is in hexadecimal", {"exact": SOUND[-32:].hex()}),
        ("short", "the root of the exact file has 42 characters", {"exact": root[:-1]}),
        ("null", "the root of the exact file is null", {"exact": None}),
        ("false", "a file says that it is not an exact file", {"exact": False}),
        ("one", "a file has 1 for true", {"exact": 1}),
        ("named-no-step", "a checkpoint that names an exact file has no step", {"exact": root, "step": None}),
    ):
        yield _case(rule, name, why, file_of(text_of(exact_file(**members)), payload), sound=naming)
    for name, why, members in (
        ("no-step", "an exact file has no step", {"step": None}),
        ("parent", "an exact file has a parent", {"parent": [0, root]}),
    ):
        yield _case(rule, name, why, file_of(text_of(exact_file(**members)), payload), sound=sound)
    values = np.array([2, 0, 2], "<f4")
    lossy = _codebook(values)
    document = text_of(exact_file((lossy, COUNTS)))
    why = "an array of an exact file has representatives"
    data = file_of(document, lossy + COUNTS)
    yield _case("LCC-EXA-03", "codebook", why, data, sound=sound, reported_by="validator")


def _codebook(values: np.ndarray[Any, Any]) -> bytes:
    """Return a frame of values that are 0 or 2, with one representative."""
    symbols = raw([int(value != 0) for value in values])
    body = struct.pack("<H", 1) + little(np.array([2], "<f4")) + block(b"\0", symbols)
    return assembled("", "", (CODEBOOK, "float32", values.shape, 10), body, values).data

"""Bundles with a broken part, trailer, index or file (SPEC 9, "Bundle")."""

from __future__ import annotations

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
    base64_of,
    delta,
    exact_file,
    file_of,
    keyframe,
    raw_frame,
    text_of,
)
from broken_values import VALUES, words

MAGIC = b"LCCBNDL\x1a"

#: A delta of `SOUND`; an exact file, and a checkpoint that names it.
CHILD = file_of(text_of(delta()), b"")
EXACT = file_of(text_of(exact_file()), WEIGHT + COUNTS)
NAMING = file_of(text_of(exact_file(exact=base64_of(EXACT[-32:]))), WEIGHT + COUNTS)
FILES = [SOUND, CHILD]


def listed(step: int, file: bytes) -> list[Any]:
    """Return the entry of a checkpoint in the index (LCC-BUN-06)."""
    return [step, len(file), base64_of(file[-32:])]


def bundle_of(content: Sequence[bytes], document: Any, **fields: int | bytes) -> bytes:
    """Return a bundle of these files and this index; its root is right.

    The index is a document, or bytes. `fields` replace those of the trailer.
    """
    text = document if isinstance(document, bytes) else text_of(document)
    values = {"magic": MAGIC, "major": 1, "minor": 0, "reserved": 0}
    values |= {"files": sum(map(len, content)), "index": len(text)} | fields
    trailer = struct.pack("<8sHHI2Q", *values.values())
    root = hashlib.sha256(MAGIC + text + trailer).digest()
    return b"".join([MAGIC, *content, text, trailer, root])


INDEX = {"checkpoints": [listed(1, SOUND), listed(2, CHILD)]}
WHOLE = bundle_of(FILES, INDEX)
WITH_EXACT = bundle_of([NAMING, EXACT], {"checkpoints": [listed(1, NAMING)], "exact": listed(0, EXACT)[1:]})


def broken_bundles() -> Iterator[Broken]:
    """Yield every invalid bundle."""
    yield from _parts()
    yield from _indices()
    yield from _files()


def newest_bundles() -> Iterator[tuple[Broken, dict[str, Any]]]:
    """Yield bundles for each row of LCC-EXA-04, and the state of each step in them.

    Those without a rule are valid. Every file has another value. "newest" is the newest state, or
    the rule that refuses it.
    """

    def state(value: float | str) -> Any:
        return value if isinstance(value, str) else {"w": np.array([value], "<f4")}

    frames = [raw_frame(np.array([value], "<f4")) for value in (1, 2, 3, 4)]
    own = {"tree": {"w": 0}, "scalars": ..., "arrays": [1]}
    one, two = (
        file_of(text_of(exact_file((f,), step=s, **own)), f) for s, f in ((1, frames[0]), (2, frames[1]))
    )

    def checkpoint(exact: str) -> bytes:
        return file_of(text_of(exact_file((frames[2],), exact=exact, **own)), frames[2])

    naming, another = checkpoint(base64_of(one[-32:])), checkpoint(base64_of(bytes(32)))
    alone = file_of(text_of(keyframe((frames[2],), **own)), frames[2])
    later = file_of(text_of(keyframe((frames[3],), step=2, **own)), frames[3])
    member = file_of(text_of(keyframe((frames[0],), **own)), frames[0])
    of_member = checkpoint(base64_of(member[-32:]))
    root = base64_of(one[-32:])
    later_naming = file_of(text_of(exact_file((frames[3],), step=2, exact=root, **own)), frames[3])
    flipped = one[:470] + bytes([one[470] ^ 1]) + one[471:]
    head, lost, later_lost = (
        file[:20] + bytes([file[20] ^ 1]) + file[21:] for file in (one, naming, later_naming)
    )
    reader, validator, checksum = "reader", "validator", "ChecksumError"
    for rule, name, why, files, kept, value, error, by in (
        (
            "LCC-MAN-08",
            "damaged",
            "a frame of the exact file is changed",
            [naming],
            flipped,
            3,
            checksum,
            validator,
        ),
        (
            "LCC-TRL-05",
            "damaged-head",
            "the head of the exact file is changed",
            [naming],
            head,
            3,
            checksum,
            validator,
        ),
        (
            "LCC-EXA-01",
            "no-member",
            "the exact file has no member exact",
            [of_member],
            member,
            3,
            "FormatError",
            validator,
        ),
        ("", "older", "the exact file is of an older step", [naming, later], one, 4, "", ""),
        (
            "",
            "older-named",
            "the exact file is of an older step, and the newest checkpoint names it",
            [naming, later_naming],
            one,
            4,
            "",
            "",
        ),
        ("", "not-named", "the checkpoint of its step names no exact file", [alone], one, 3, "", ""),
        (
            "",
            "another-named",
            "the checkpoint of its step names another exact file",
            [another],
            one,
            3,
            "",
            "",
        ),
        (
            "LCC-TRL-05",
            "of-damaged",
            "the checkpoint of the newest step is damaged",
            [lost],
            one,
            1,
            checksum,
            reader,
        ),
        (
            "LCC-TRL-05",
            "older-of-damaged",
            "the newest checkpoint is damaged, and the exact file is of an older step",
            [naming, later_lost],
            one,
            "LCC-TRL-05",
            checksum,
            reader,
        ),
        ("", "newer", "the exact file is of a newer step than the history", [naming], two, 2, "", ""),
    ):
        entries = [listed(step, file) for step, file in enumerate(files, 1)]
        data = bundle_of([*files, kept], {"checkpoints": entries, "exact": listed(0, kept)[1:]})
        vector = Broken(
            rule,
            f"newest-{name}",
            error,
            why,
            data,
            bundle_of([naming, one], {"checkpoints": [listed(1, naming)], "exact": listed(0, one)[1:]}),
            file=f"{rule}-newest-{name}.lcc" if rule else f"newest-{name}.lcc",
            reported_by=by,
        )
        steps = {str(step): state(step + 2) for step in range(1, 1 + len(files))} if by != reader else {}
        yield vector, {**steps, "newest": state(value)}
    yield from _of_another_state(frames)
    entries = {"checkpoints": [listed(1, naming)], "exact": [len(one), base64_of(bytes(range(32)))]}
    why = "the index names another root of the exact file"
    sound = bundle_of([naming, one], {"checkpoints": [listed(1, naming)], "exact": listed(0, one)[1:]})
    data = bundle_of([naming, one], entries)
    rule = "LCC-BUN-07"
    file = f"{rule}-newest-root.lcc"
    vector = Broken(rule, "newest-root", "FormatError", why, data, sound, file=file, reported_by=validator)
    yield vector, {"1": state(3), "newest": state(3)}


def _of_another_state(frames: Sequence[bytes]) -> Iterator[tuple[Broken, dict[str, Any]]]:
    """Yield bundles whose exact file has another state than the checkpoint that names it.

    A Reader need not compare them (LCC-EXA-04), so what is newest is not asked for.
    """
    own = {"tree": {"w": 0, "n": None}, "scalars": [7], "arrays": [1]}

    def bundle(change: dict[str, Any], frame: bytes = frames[0]) -> bytes:
        exact = file_of(text_of(exact_file((frame,), **(own | change))), frame)
        naming = file_of(text_of(exact_file((frames[2],), exact=base64_of(exact[-32:]), **own)), frames[2])
        index = {"checkpoints": [listed(1, naming)], "exact": listed(0, exact)[1:]}
        return bundle_of([naming, exact], index)

    def raw_of(values: Any) -> bytes:
        return raw_frame(np.array(values))

    rule = "LCC-EXA-03"
    for name, why, change, frame in (
        ("scalar", "a scalar of the exact file is another", {"scalars": [8]}, frames[0]),
        ("scalar-type", "a scalar of the exact file is a float", {"scalars": [{"f": "7.0"}]}, frames[0]),
        ("metadata", "metadata of the exact file are others", {"metadata": {"vector": "v"}}, frames[0]),
        ("no-metadata", "the exact file has no metadata", {"metadata": ...}, frames[0]),
        ("order", "keys of the exact file have another order", {"tree": {"n": None, "w": 0}}, frames[0]),
        ("name", "an array of the exact file has another name", {"tree": {"v": 0, "n": None}}, frames[0]),
        ("tuple", "a dict is a tuple in the exact file", {"tree": ["t", 0, None]}, frames[0]),
        ("type", "an array of the exact file is float64", {}, raw_of(np.array([1], "<f8"))),
        ("bits", "an array of the exact file is int32, as wide", {}, raw_of(np.array([1], "<i4"))),
        ("shape", "an array of the exact file has two elements", {}, raw_of(np.array([1, 2], "<f4"))),
        ("dimensions", "an array has a dimension less in the exact file", {}, raw_of(np.float32(1))),
    ):
        file = f"{rule}-other-{name}.lcc"
        data, sound = bundle(change, frame), bundle({})
        options: dict[str, Any] = {"file": file, "reported_by": "validator"}
        state = {"w": np.array([3], "<f4"), "n": 7}
        yield Broken(rule, f"other-{name}", "FormatError", why, data, sound, **options), {"1": state}


def _case(rule: str, case: str, why: str, data: bytes, error: str = "FormatError", **options: Any) -> Broken:
    name = f"bundle-{case}"
    return Broken(rule, name, error, why, data, **{"sound": WHOLE, "file": f"{rule}-{name}.lcc", **options})


def _parts() -> Iterator[Broken]:
    """Yield bundles that end early, and trailers that do not fit."""
    rule, end = "LCC-BUN-01", len(WHOLE)
    yield _case(rule, "magic", "the last byte of the magic is 0x1b", MAGIC[:7] + b"\x1b" + WHOLE[8:])
    for name, size in (
        ("magic-alone", 8),
        ("64-bytes", 64),
        ("in-a-file", 700),
        ("in-the-index", end - 100),
        ("in-the-trailer", end - 1),
    ):
        why = "the bundle ends early" if name != "magic-alone" else "the bundle ends behind its magic"
        yield _case(rule, name, why, WHOLE[:size], "TruncatedError")
    yield _case(rule, "byte-behind", "a byte follows the trailer", WHOLE + b"\0", "TruncatedError")
    rule = "LCC-BUN-02"
    length = sum(map(len, FILES))
    for name, value in (("files-longer", length + 1), ("files-shorter", length - 1), ("around", 2**64 - 1)):
        why = "the trailer has a wrong length of the files"
        yield _case(rule, name, why, bundle_of(FILES, INDEX, files=value))
    size = len(text_of(INDEX))
    why = "the trailer has a wrong length of the index"
    yield _case(rule, "index-shorter", why, bundle_of(FILES, INDEX, index=size - 1))
    for name, fields in (("major-2", {"major": 2}), ("major-0", {"major": 0}), ("reserved", {"reserved": 1})):
        why = f"the {' '.join(fields)} field is {next(iter(fields.values()))}"
        yield _case("LCC-BUN-03", name, why, bundle_of(FILES, INDEX, **fields), "UnsupportedError")
    rule, error = "LCC-BUN-04", "ChecksumError"
    yield _case(rule, "root", "a bit of the root is changed", WHOLE[:-1] + bytes([WHOLE[-1] ^ 1]), error)
    place = end - 64 - size + 20
    changed = WHOLE[:place] + bytes([WHOLE[place] ^ 1]) + WHOLE[place + 1 :]
    yield _case(rule, "index", "a bit of the index is not that of the root", changed, error)
    why = "the trailer declares an index of 2^26 bytes, as many as there may be"
    yield _case("LCC-BUN-02", "largest-index", why, bundle_of(FILES, INDEX, index=2**26))
    why = "the trailer declares an index of 2^26 + 1 bytes"
    huge = bundle_of(FILES, INDEX, index=2**26 + 1)
    yield _case("LCC-LIM-04", "index", why, huge, "LimitError")


def _indices() -> Iterator[Broken]:
    """Yield indices of another form."""
    one, two = INDEX["checkpoints"]

    def case(rule: str, name: str, why: str, index: Any, error: str = "FormatError") -> Broken:
        return _case(rule, name, why, bundle_of(FILES, index), error)

    spaced = text_of(INDEX).replace(b",", b", ", 1)
    yield case("LCC-MAN-01", "space", "the index has a space", spaced)
    yield case("LCC-MAN-01", "not-json", "the index is not JSON", b"checkpoints")
    nested = b"[" * 66 + b"]" * 66
    why = "the index has no bytes"
    yield _case("LCC-MAN-01", "empty-index", why, bundle_of([], b""))
    yield case("LCC-LIM-05", "index", "the index nests 66 deep", nested, "LimitError")
    digits = b'{"checkpoints":' + b"1" * 4097 + b"}"
    yield case("LCC-LIM-07", "index", "an integer of the index has 4,097 digits", digits, "LimitError")
    rule = "LCC-BUN-05"
    yield case(rule, "list", "the index is a list", [one, two])
    yield case(rule, "names", "the index is a list of the name of a member", ["checkpoints"])
    yield case(rule, "nothing", "the index has no checkpoints", {})
    yield case(rule, "number", "the index is a number", 7)
    whole = {"exact": listed(0, EXACT)[1:], "checkpoints": [listed(1, NAMING)]}
    data = bundle_of([NAMING, EXACT], whole)
    yield _case(rule, "order", "the exact file stands before the checkpoints", data, sound=WITH_EXACT)
    why = "the index has a member that is not known"
    yield case(rule, "unknown", why, {**INDEX, "name": "run"}, "UnsupportedError")
    rule = "LCC-BUN-06"
    for name, why, entries in (
        ("no-checkpoint", "the list of checkpoints is empty", []),
        ("object", "the checkpoints are an object", {"1": one}),
        ("two-items", "an entry has two items", [one[:2], two]),
        ("four-items", "an entry has four items", [[*one, 0], two]),
        ("step-as-text", "a step is a text", [["1", *one[1:]], two]),
        ("negative-step", "a step is negative", [[-1, *one[1:]], two]),
        ("large-step", "a step is 2^53", [one, [2**53, *two[1:]]]),
        ("same-step", "two checkpoints have one step", [one, [1, *two[1:]]]),
        ("falling-steps", "the steps fall", [[3, *one[1:]], two]),
        ("no-length", "a file has no bytes", [[1, 0, one[2]], two]),
        ("length-as-float", "a length has a fraction", [[1, len(SOUND) + 0.5, one[2]], two]),
        ("hexadecimal", "a root is in hexadecimal", [[1, one[1], SOUND[-32:].hex()], two]),
        ("short-root", "a root has 42 characters", [[1, one[1], one[2][:-1]], two]),
        ("sum-too-small", "the lengths sum to less than the files", [[1, one[1] - 1, one[2]], two]),
        ("sum-too-large", "the lengths sum to more than the files", [[1, one[1] + 1, one[2]], two]),
    ):
        yield case(rule, name, why, {"checkpoints": entries})
    why = "the list of checkpoints is empty, and there are none"
    yield _case(rule, "nothing-at-all", why, bundle_of([], {"checkpoints": []}))
    longer = [2, two[1] + 5, two[2]]
    for name, why, entries in (
        ("empty-file", "a third file has no bytes", [one, two, [3, 0, two[2]]]),
        ("negative-length", "a third file has -5 bytes; the sum is right", [one, longer, [3, -5, two[2]]]),
    ):
        yield case(rule, name, why, {"checkpoints": entries})
    why = "the entry of the exact file has a step"
    yield case(rule, "exact-with-step", why, {"checkpoints": [one], "exact": two})
    exact = [*listed(0, EXACT)[1:], 0]
    data = bundle_of([NAMING, EXACT], {"checkpoints": [listed(1, NAMING)], "exact": exact})
    why = "the entry of the exact file has three items"
    yield _case(rule, "exact-three-items", why, data, sound=WITH_EXACT)
    for name, value in VALUES.items():
        if name not in ("list", "object"):
            why = f"the checkpoints are {words(name)}"
            yield case(rule, f"checkpoints-{name}", why, {"checkpoints": value})
        yield case(rule, f"entry-{name}", f"an entry is {words(name)}", {"checkpoints": [one, value]})
        index = {"checkpoints": [one, two], "exact": value}
        yield case(rule, f"exact-{name}", f"the entry of the exact file is {words(name)}", index)
        for place, what in enumerate(("step", "length", "root")):
            if (what, name) not in (
                ("step", "number"),
                ("step", "text"),
                ("length", "number"),
                ("root", "text"),
            ):
                entry = [*two[:place], value, *two[place + 1 :]]
                why = f"the {what} of an entry is {words(name)}"
                yield case(rule, f"{what}-{name}", why, {"checkpoints": [one, entry]})


def _files() -> Iterator[Broken]:
    """Yield bundles with a file that is not that of the index, or is broken itself."""
    one, two = INDEX["checkpoints"]
    rule = "LCC-BUN-07"
    other = [1, one[1], base64_of(bytes(32))]
    why = "the index names another root than the file has"
    yield _case(rule, "another-root", why, bundle_of(FILES, {"checkpoints": [other, two]}))
    why = "the index gives step 1 the number 0"
    yield _case(rule, "another-step", why, bundle_of([SOUND], {"checkpoints": [listed(0, SOUND)]}))
    why = "the parent of a delta is not in the bundle"
    orphan = bundle_of([CHILD], {"checkpoints": [two]})
    yield _case("LCC-CHN-02", "orphan", why, orphan, "ChainError")
    why = "a file has one byte"
    index = {"checkpoints": [one, [2, 1, two[2]]]}
    yield _case("LCC-TRL-01", "one-byte", why, bundle_of([SOUND, b"x"], index))
    place = 8 + 445 + 20
    damaged = WHOLE[:place] + bytes([WHOLE[place] ^ 1]) + WHOLE[place + 1 :]
    why = "a byte of a frame is changed"
    yield _case("LCC-MAN-08", "frame", why, damaged, "ChecksumError")
    place = 8 + 20
    damaged = WHOLE[:place] + bytes([WHOLE[place] ^ 1]) + WHOLE[place + 1 :]
    why = "a byte of the head of a file is changed"
    yield _case("LCC-TRL-05", "head", why, damaged, "ChecksumError")
    index = {"checkpoints": [one], "exact": listed(0, SOUND)[1:]}
    why = "the exact file is a checkpoint"
    data = bundle_of([SOUND, SOUND], index)
    yield _case("LCC-EXA-01", "another-file", why, data, sound=WITH_EXACT, reported_by="validator")

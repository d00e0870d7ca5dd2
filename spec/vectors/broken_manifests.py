"""Checkpoint files whose manifest, tree, scalars or entries break a rule (SPEC 5.1, 8 and 11)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from broken import Broken
from broken_checkpoints import COUNTS, SOUND, WEIGHT, base64_of, file_of, keyframe, raw_frame, text_of

_PAYLOAD = WEIGHT + COUNTS
_TEXT = text_of(keyframe())
_ENTRIES: list[Any] = keyframe()["frames"]
_ROOT = base64_of(bytes([0x5A] * 32))


def _case(rule: str, case: str, why: str, manifest: bytes, error: str = "FormatError") -> Broken:
    """Return the vector of a manifest."""
    return Broken(rule, case, error, why, file_of(manifest, _PAYLOAD), SOUND)


def _text(rule: str, case: str, why: str, old: str | bytes, new: str | bytes, **options: str) -> Broken:
    """Return the vector of a sound manifest with a text replaced."""
    before, after = (part.encode() if isinstance(part, str) else part for part in (old, new))
    if _TEXT.count(before) != 1:
        raise ValueError(f"{before!r} is there {_TEXT.count(before)} times")
    return _case(rule, case, why, _TEXT.replace(before, after), **options)


def _members(rule: str, case: str, why: str, error: str = "FormatError", **members: Any) -> Broken:
    """Return the vector of a sound manifest with members replaced or left out."""
    return _case(rule, case, why, text_of(keyframe(**members)), error)


def broken_manifests() -> Iterator[Broken]:
    """Yield every file made here."""
    yield from _json()
    yield from _numbers()
    yield from _document()
    yield from _fields()
    yield from _parents()
    yield from _arrays()
    yield from _frames()
    yield from _figures()
    yield from _trees()
    yield from _scalars()
    yield from _canonical_texts()
    yield from _limits()


# --- JSON -----------------------------------------------------------------------------------------


def _json() -> Iterator[Broken]:
    """Yield texts that are not JSON, or not the canonical form of their value."""
    rule = "LCC-MAN-01"
    yield _text(rule, "space", "a space follows a comma", ',"step"', ', "step"')
    yield _case(rule, "line-feed", "a line feed ends the manifest", _TEXT + b"\n")
    yield _case(
        rule, "byte-order-mark", "the manifest begins with a byte order mark", b"\xef\xbb\xbf" + _TEXT
    )
    yield _text(rule, "member-twice", "the manifest has a member twice", '"step":1', '"step":1,"step":1')
    yield _text(rule, "escaped-letter", "a letter is escaped", '"vector"', '"\\u0076ector"')
    yield _text(rule, "long-escape", "a line feed is escaped as \\u000a", "π\\n", "π\\u000a")
    yield _text(rule, "control", "a string holds a line feed as it is", "π\\n", "π\n")
    yield _text(rule, "not-utf-8", "a string holds a byte that is not UTF-8", "π", b"\xff")
    yield _text(rule, "escaped-surrogate", "a string holds a lone surrogate, escaped", "π", "\\ud800")


def _numbers() -> Iterator[Broken]:
    """Yield numbers in a wrong form; those with a fraction are in the policy, which allows them."""
    rule = "LCC-MAN-01"
    for name, number in (
        ("minus-zero", "-0"),
        ("fraction-zeros", "1.50"),
        ("no-fraction", "1e2"),
        ("too-large", "1e+400"),
        ("nan", "NaN"),
        ("long-fraction", "0." + "1" * 4097),
        ("long-whole", "1" * 4097 + ".5"),
        ("long-exponent", "1e" + "1" * 4097),
        ("long-signed-exponent", "1e-" + "1" * 4097),
    ):
        shown = number if len(number) < 10 else f"as {number[:6]}... with more than 4,096 digits"
        yield _text(rule, f"number-{name}", f"a number is written {shown}", '"by hand"', number)


# --- members --------------------------------------------------------------------------------------


def _document() -> Iterator[Broken]:
    """Yield manifests with wrong members, or in a wrong order."""
    rule, newer = "LCC-MAN-03", "UnsupportedError"
    yield _members(rule, "no-arrays", "the member arrays is missing", arrays=...)
    yield _members(rule, "no-policy", "the member policy is missing", policy=...)
    first, second, *others = keyframe().items()
    exchanged = text_of(dict([second, first, *others]))
    yield _case(rule, "order", "the members lccodec and step are exchanged", exchanged)
    yield _members(rule, "unknown", "there is a member that is not defined", newer, more=None)
    rule = "LCC-MAN-09"
    yield _members(rule, "one-number", "the version is [1]", lccodec=[1])
    yield _members(rule, "three-numbers", "the version is [1,0,0]", lccodec=[1, 0, 0])
    data = file_of(_TEXT, _PAYLOAD, minor=1)
    yield Broken(rule, "minor", "FormatError", "the version is 1.0, and 1.1 in the trailer", data, SOUND)
    yield _members(rule, "minor-1", "the version is 1.1, and 1.0 in the trailer", lccodec=[1, 1])
    yield _members(rule, "major-2", "the major version of the manifest is 2", newer, lccodec=[2, 1])


def _fields() -> Iterator[Broken]:
    """Yield values that are not a step, not metadata, or not a tree."""
    rule = "LCC-MAN-02"
    for name, step in (("negative", -1), ("too-large", 2**53), ("fraction", 1.0)):
        yield _members(rule, name, f"the step is {text_of(step).decode()}", step=step)
    rule = "LCC-MAN-06"
    yield _members(rule, "empty", "the metadata are empty, and not left out", metadata={})
    yield _members(rule, "number", "a value of the metadata is a number", metadata={"vector": 1})
    yield _members("LCC-MAN-07", "keyframe", "a keyframe has no tree", tree=...)


def _parents() -> Iterator[Broken]:
    """Yield values that are not a parent; a reader does not look the parent up."""
    rule = "LCC-MAN-04"
    for name, why, parent in (
        ("number", "the parent is a number", 0),
        ("two-characters", "the parent is a text of two characters", "01"),
        ("object", "the parent is an object of step and root", {"step": 0, "root": _ROOT}),
        ("three-items", "the parent has three items", [0, _ROOT, 0]),
        ("42-characters", "the root of the parent has 42 characters", [0, _ROOT[1:]]),
        ("hexadecimal", "the root of the parent is hexadecimal", [0, "5a" * 32]),
        ("padding", "the root of the parent has padding", [0, f"{_ROOT}="]),
        ("unused-bits", "the unused bits of the root are not 0", [0, f"{_ROOT[:-1]}p"]),
        ("root-null", "the root of the parent is null", [0, None]),
        ("root-number", "the root of the parent is a number", [0, 7]),
    ):
        yield _members(rule, name, why, parent=parent)
    why = "the step of the parent is null"
    yield _members("LCC-MAN-02", "parent-null", why, parent=[None, _ROOT])
    tree = {"weight": 0, "list": ["l", 1]}
    why = "there are no scalars, and the member is not left out"
    yield _members("LCC-MAN-11", "empty", why, tree=tree, scalars=[])


def _arrays() -> Iterator[Broken]:
    """Yield numbers of frames out of turn."""
    rule = "LCC-MAN-10"
    for name, why, arrays in (
        ("zero", "an array of a keyframe is unchanged from its parent", [0, 1]),
        ("out-of-turn", "the first array is in the second frame", [2, 1]),
        ("frame-left-out", "the second frame has no array", [1, 1]),
    ):
        yield _members(rule, name, why, arrays=arrays)


def _frames() -> Iterator[Broken]:
    """Yield values that are not the entry of a frame, and entries of other frames."""
    (length, digest), second = _ENTRIES
    rule = "LCC-MAN-05"
    for name, why, first in (
        ("length-only", "an entry is a length", length),
        ("three-items", "an entry has three items", [length, digest, 0]),
        ("negative-length", "the length of a frame is negative", [-length, digest]),
        ("too-large", "the length of a frame is 2^53", [2**53, digest]),
        ("sum-too-large", "the lengths sum to a byte more than the payload has", [length + 1, digest]),
        ("sum-too-small", "the lengths sum to a byte less than the payload has", [length - 1, digest]),
    ):
        yield _members(rule, name, why, frames=[first, second])
    rule = "LCC-MAN-08"
    unused = digest[:-1] + chr(ord(digest[-1]) + 1)
    for name, why, other in (
        ("padding", "the digest has padding", f"{digest}=="),
        ("unused-bits", "the unused bits of the digest are not 0", unused),
        ("base64", "the digest has characters of base64 that base64url does not have", "+/" * 10 + "+A"),
    ):
        yield _members(rule, name, why, frames=[[length, other], second])
    why = "the first frame, sound in itself, is not the one of its digest"
    other = raw_frame(np.array([1, 2, 4], "<f4")) + COUNTS
    yield Broken(rule, "another-frame", "ChecksumError", why, file_of(_TEXT, other), SOUND)


def _figures() -> Iterator[Broken]:
    """Yield figures with wrong members, forms and numbers."""

    def text_with(figures: Any, **members: Any) -> bytes:
        document = keyframe(**members)
        head = {name: document.pop(name) for name in ("lccodec", "step", "parent")}
        exact = {name: document.pop(name) for name in ("exact",) if name in document}
        policy = {"policy": document.pop("policy")}
        return text_of({**head, **exact, **policy, "figures": figures, **document})

    def data(figures: Any, **members: Any) -> bytes:
        return file_of(text_with(figures, **members), _PAYLOAD)

    def case(
        rule: str, name: str, why: str, figures: Any, error: str = "FormatError", **members: Any
    ) -> Broken:
        return Broken(rule, name, error, why, data(figures, **members), sound)

    def text(*numbers: int) -> str:
        return base64_of(np.array(numbers, "<u2").tobytes())

    one, unknown = text(0x3F80, 0x7FC0), text(0x7FC0, 0x7FC0)
    signed, quantiles = text(0xBF80, 0x7FC0), text(*range(0xBF80, 0xBF87), *[0x7FC0] * 7)
    both = text(0x3F80, 0x3F80)  # both arrays lost something
    early = {"since": 0, "spread": one, "movement": one, "error": both, "lag": signed}
    late = {"rms": one, "minimum": signed, "maximum": signed, "zeros": one, "not_finite": one}
    sound = data({**early, **late, "quantiles": quantiles})
    rule, unsupported = "LCC-FIG-01", "UnsupportedError"
    yield case(rule, "list", "the figures are a list", [one])
    yield case(rule, "empty", "there are no figures, and the member is not left out", {})
    yield case(rule, "unknown", "there is a figure that is not defined", {"size": one}, unsupported)
    yield case(rule, "order", "the error stands before the spread", {"error": one, "spread": one})
    yield case(
        rule,
        "late-order",
        "the maximum stands before the minimum",
        {"error": both, "maximum": one, "minimum": one},
    )
    yield case(rule, "since-behind", "the step stands behind its figure", {"movement": one, "since": 0})
    yield case(rule, "no-since", "a movement has no step that it begins at", {"movement": one})
    yield case(rule, "lag-no-since", "a lag has no step that it begins at", {"error": one, "lag": one})
    yield case(rule, "since", "a step is there, and no figure of a movement", {"since": 0, "error": one})
    yield case(rule, "since-alone", "a step is there, and no figure", {"since": 0})
    for name, why, members in (
        ("no-step", "a file without a step has figures", {"step": None}),
        ("exact", "an exact file has figures", {"exact": True}),
    ):
        yield case(rule, name, why, {"error": one}, **members)
    rule = "LCC-FIG-02"
    for name, since in (("same", 1), ("negative", -1), ("text", "0"), ("true", True), ("null", None)):
        why = f"the save before step 1 is {text_of(since).decode()}"
        yield case(rule, name, why, {"since": since, "movement": one})
    rule = "LCC-FIG-03"
    for name, why, figure in (
        ("list", "a figure is a list", [1, None]),
        ("short", "a figure has one number for two arrays", text(0x3F80)),
        ("long", "a figure has three numbers for two arrays", text(0x3F80, 0x3F80, 0x3F80)),
        ("padding", "a figure has padding", f"{one}=="),
        ("unused-bits", "the unused bits of a figure are not 0", one[:-1] + chr(ord(one[-1]) + 1)),
        ("base64", "a figure has characters of base64 that base64url does not have", "gD/+/w"),
        ("null", "a figure is null", None),
        ("other-character", "a figure has a character of no base64", f"{one[:-1]}!"),
        ("beyond-ascii", "a figure has a character beyond ASCII", f"{one[:-1]}é"),
    ):
        yield case(rule, name, why, {"error": figure})
    for name, why, figures in (
        ("quantiles", "quantiles have one number for each array", {"error": both, "quantiles": one}),
        ("no-error-one", "there is an rms of one array, and no error", {"rms": text(0x3F80)}),
        ("lost-nothing", "an array lost nothing, and has an rms", {"error": text(0x3F80, 0), "rms": both}),
        ("loss-unknown", "what an array lost is not known; it has an rms", {"error": one, "rms": both}),
        ("no-error", "there is an rms, and no error", {"rms": both}),
    ):
        yield case(rule, name, why, figures)
    three = [text(0x3F80, 0x7FC0, 0x7FC0) + more for more in ("", "A")]
    frames = [*_ENTRIES, _ENTRIES[0]]
    own = {"tree": {"weight": 0, "list": ["l", 1, None], "pair": ["t", None, 2]}, "arrays": [1, 2, 3]}
    files = [
        file_of(rewritten, _PAYLOAD + WEIGHT)
        for rewritten in (text_with({"error": figure}, **own, frames=frames) for figure in three)
    ]
    why = "a figure of three numbers has nine characters"
    yield Broken(rule, "character-alone", "FormatError", why, files[1], files[0])
    rule = "LCC-FIG-04"
    for name, why, figure in (
        ("nothing", "a figure knows nothing, and is not left out", unknown),
        ("nan", "a number is another NaN than 0x7fc0", text(0x3F80, 0x7FC1)),
        ("negative-nan", "a number is 0xffc0", text(0x3F80, 0xFFC0)),
        ("infinite", "a number is infinite", text(0x7F80, 0x7FC0)),
        ("negative", "an error is -1", text(0xBF80, 0x7FC0)),
        ("minus-zero", "an error is -0", text(0x8000, 0x7FC0)),
    ):
        yield case(rule, name, why, {"error": figure})
    for name in ("rms", "zeros", "not_finite"):
        yield case(rule, f"negative-{name}", f"a number of {name} is -1", {"error": both, name: signed})
    for name in ("minimum", "maximum"):
        yield case(rule, f"{name}-minus-zero", f"a {name} is -0", {"error": both, name: text(0x8000, 0x7FC0)})
    nothing = {"error": both, "quantiles": text(*[0x7FC0] * 14)}
    yield case(rule, "quantiles-nothing", "quantiles know nothing", nothing)
    yield case(
        rule, "rms-of-none", "nothing was lost, and there is an empty rms", {"error": text(0, 0), "rms": ""}
    )
    for name, why, figure in (
        ("lag-minus-zero", "a lag is -0", text(0x8000, 0x7FC0)),
        ("lag-infinite", "a lag is infinite", text(0xFF80, 0x7FC0)),
        ("lag-infinite-above", "a lag is infinite, above 0", text(0x7F80, 0x7FC0)),
        ("lag-all-infinite", "all lags are infinite", text(0xFF80, 0xFF80)),
        ("lag-nothing", "a lag knows nothing, and is not left out", unknown),
    ):
        yield case(rule, name, why, {"since": 0, "lag": figure})


# --- tree and scalars -----------------------------------------------------------------------------


def _trees() -> Iterator[Broken]:
    """Yield trees with unknown nodes, or with wrong numbers of arrays and scalars."""
    rule = "LCC-STA-01"
    for name, why, node in (
        ("text", "a node is a string", "1"),
        ("empty-list", "a node is a list without items", []),
        ("kind", "a node is a list that does not begin with l or t", ["x", 1]),
        ("text-of-a-kind", "a node is the text t", "t"),
        ("kind-in-a-list", "a node is a list that begins with a list of l", [["l"], 1]),
    ):
        yield _members(rule, name, why, tree={"weight": 0, "list": node, "pair": ["t", None, 1, None]})
    rule = "LCC-STA-02"
    for name, why, nodes in (
        ("gap", "the indices are 0, 2 and 1", [0, 2, 1]),
        ("left-out", "the second array does not appear", [0, 0]),
        ("negative", "an index is -1", [0, 1, -1]),
        ("large", "an index is 2^53", [0, 1, 2**53]),
        ("beyond-and-form", "an index is that of no array, and a later node has no form", [0, 1, 2, True]),
    ):
        yield _members(rule, name, why, tree=["l", *nodes, None, None])
    yield _members("LCC-STA-03", "one-more", "there are three scalars for two places", scalars=[1, 2, 3])


def _scalars() -> Iterator[Broken]:
    """Yield scalars in forms that do not exist."""
    rule = "LCC-STA-04"
    for name, why, scalar in (
        ("fraction", "a scalar is 1.5", 1.5),
        ("unknown", "a scalar is an object of a member that is not defined", {"x": "1.0"}),
        ("two", "a scalar is a float and a byte string", {"f": "1.0", "b": ""}),
        ("float-number", "the float of a scalar is a number", {"f": 1}),
        ("bytes-number", "the byte string of a scalar is a number", {"b": 1}),
    ):
        yield _members(rule, name, why, scalars=[scalar, -7])


def _canonical_texts() -> Iterator[Broken]:
    """Yield texts of floats and byte strings that are not canonical."""
    rule = "LCC-STA-05"
    for kind, name, text in (
        ("f", "float-no-point", "1"),
        ("f", "float-zeros", "1.50"),
        ("f", "float-exponent", "1e5"),
        ("f", "float-no-exponent", "10000000000000000.0"),
        ("f", "float-underscore", "1_0.0"),
        ("f", "float-infinity", "Infinity"),
        ("b", "bytes-no-padding", "AQ"),
        ("b", "bytes-unused-bits", "AR=="),
        ("b", "bytes-line-feed", "AQID\n"),
    ):
        why = f"a {'float' if kind == 'f' else 'byte string'} is written {text_of(text).decode()}"
        yield _members(rule, name, why, scalars=[{kind: text}, -7])


# --- limits ---------------------------------------------------------------------------------------


def _limits() -> Iterator[Broken]:
    """Yield manifests just beyond a limit, and what is just within it."""

    def case(rule: str, name: str, why: str, most: Any, more: Any) -> Broken:
        data, sound = (file_of(text_of(keyframe(**members)), _PAYLOAD) for members in (more, most))
        return Broken(rule, name, "LimitError", why, data, sound)

    trees = [{"tree": _nested({"weight": 0, "list": ["l", 1, None, None]}, depth)} for depth in (62, 63)]
    yield case("LCC-LIM-05", "tree", "the state nests 65 deep", *trees)
    policies = [{"policy": _nested([], depth)} for depth in (63, 64)]
    yield case("LCC-LIM-05", "policy", "the manifest nests 66 deep, in the policy", *policies)
    policies = [{"policy": {"a": [{}] * 5, "b": _nested([], depth)}} for depth in (62, 63)]
    yield case("LCC-LIM-05", "after-objects", "five objects, and then the policy nests 66 deep", *policies)
    unclosed = b'{"a":' * 65
    why = "65 objects are not closed, as many as may lie one in the other"
    yield Broken("LCC-MAN-01", "unclosed", "FormatError", why, file_of(unclosed, _PAYLOAD), SOUND)
    integers = [{"scalars": [None, 10**4096 - 1]}, {"scalars": [None, -(10**4096)]}]
    yield case("LCC-LIM-07", "digits", "a scalar has a sign and 4,097 digits", *integers)
    integers = [{"scalars": [10**digits - 1, None]} for digits in (4096, 4097)]
    yield case("LCC-LIM-07", "nines", "a scalar, not the last, has 4,097 digits 9", *integers)
    names = [{"tree": named(characters)} for characters in (1 << 24, (1 << 24) + 1)]
    yield case("LCC-LIM-08", "names", "the names of all nodes have 2^24 + 1 characters", *names)


def _nested(inner: Any, depth: int) -> Any:
    """Return a node inside as many lists."""
    for _ in range(depth):
        inner = ["l", inner]
    return inner


def named(characters: int, items: int = 2900) -> Any:
    """Return a tree whose names have as many characters together (LCC-LIM-08)."""
    # Characters in the names of the items, after the key.
    below = sum(1 + len(str(place)) for place in range(items))
    size, rest = divmod(characters - below - len("a/b/"), items + 1)
    return {"r" * (rest - 1): 0, "k" * (size - 1): ["l", *[1] * items], "a": None, "b": None}

"""Checkpoint files in which a member of the manifest has a wrong type of JSON (SPEC 8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broken import Broken
from broken_checkpoints import COUNTS, SOUND, WEIGHT, file_of, keyframe, text_of

#: One value of each type of JSON. Numbers with a fraction break LCC-MAN-01 first.
VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "number": 7,
    "text": "7",
    "list": [],
    "object": {},
}
#: For each member: the rule, and what it may be.
_MEMBERS = {
    "lccodec": ("LCC-MAN-09", ()),
    "step": ("LCC-MAN-02", ("null", "number")),
    "parent": ("LCC-MAN-04", ("null",)),
    "metadata": ("LCC-MAN-06", ()),
    "scalars": ("LCC-STA-04", ("list",)),
    "arrays": ("LCC-MAN-10", ("list",)),
    "frames": ("LCC-MAN-05", ("list",)),
}


def broken_values() -> Iterator[Broken]:
    """Yield every file made here."""
    yield from _members()
    yield from _rare_members()
    yield from _entries()
    yield from _edges()


def _members() -> Iterator[Broken]:
    """Yield members that most manifests have."""
    for member, (rule, allowed) in _MEMBERS.items():
        for name, value in VALUES.items():
            if name not in allowed:
                why = f"the member {member} is {words(name)}"
                yield _case(rule, f"{member}-{name}", why, {member: value})


def _rare_members() -> Iterator[Broken]:
    """Yield members of exact and replaced files, and figures; some types are tried elsewhere."""
    for member, rule, elsewhere in (
        ("exact", "LCC-EXA-02", ("true", "null")),
        ("replaces", "LCC-MAN-12", ("list", "text")),
        ("figures", "LCC-FIG-01", ("list", "object")),
    ):
        for name, value in VALUES.items():
            if name not in elsewhere:
                document = keyframe()
                before = ("lccodec", "step", "parent", *["policy"] * (member == "figures"))
                head = {key: document.pop(key) for key in before}
                data = file_of(text_of({**head, member: value, **document}), WEIGHT + COUNTS)
                why = f"the member {member} is {words(name)}"
                yield Broken(rule, f"{member}-{name}", "FormatError", why, data, SOUND)


def _entries() -> Iterator[Broken]:
    """Yield items of lists and objects."""
    (length, digest), second = keyframe()["frames"]
    tree = {"weight": 0, "list": ["l", 1, None], "pair": ["t", None, 0]}
    for rule, case, what, allowed, make in (
        ("LCC-MAN-10", "item", "a number of arrays", ("null", "number"), lambda it: {"arrays": [1, it]}),
        ("LCC-MAN-05", "entry", "an entry of a frame", (), lambda it: {"frames": [[length, digest], it]}),
        (
            "LCC-MAN-05",
            "length",
            "the length of a frame",
            ("number",),
            lambda it: {"frames": [[it, digest], second]},
        ),
        (
            "LCC-MAN-08",
            "digest",
            "the digest of a frame",
            ("text",),
            lambda it: {"frames": [[length, it], second]},
        ),
        (
            "LCC-MAN-06",
            "value",
            "a value of the metadata",
            ("text",),
            lambda it: {"metadata": {"vector": it}},
        ),
        (
            "LCC-STA-01",
            "node",
            "a node",
            ("null", "number", "list", "object"),
            lambda it: {"tree": {**tree, "pair": ["t", None, it]}},
        ),
        (
            "LCC-STA-04",
            "scalar",
            "a scalar",
            ("null", "true", "number", "text"),
            lambda it: {"scalars": [it, 1]},
        ),
    ):
        for name, value in VALUES.items():
            if name not in allowed:
                yield _case(rule, f"{case}-{name}", f"{what} is {words(name)}", make(value))


def _edges() -> Iterator[Broken]:
    """Yield what mutation testing has found: faults that a slightly weaker check would let pass."""
    (length, digest), second = keyframe()["frames"]
    why, tree = "the indices are 1, 0 and 1", ["l", 1, 0, 1, None, None]
    yield _case("LCC-STA-02", "falling", why, {"tree": tree})
    half = f"{digest[:-2]}{'A' if digest[-2] != 'A' else 'B'}{digest[-1]}"
    why = "the second half of a digest is another"
    yield _case("LCC-MAN-08", "second-half", why, {"frames": [[length, half], second]}, "ChecksumError")
    why = "the file has 48 bytes, and begins with the magic of the trailer"
    yield Broken("LCC-TRL-01", "short", "FormatError", why, SOUND[-88:-40], SOUND)
    yield Broken("LCC-TRL-01", "87-bytes", "FormatError", "the file has 87 bytes", SOUND[-88:-1], SOUND)


def words(name: str) -> str:
    """Return a type of JSON in words."""
    return name if name in ("null", "true") else f"an {name}" if name == "object" else f"a {name}"


def _case(rule: str, case: str, why: str, members: dict[str, Any], error: str = "FormatError") -> Broken:
    return Broken(rule, case, error, why, file_of(text_of(keyframe(**members)), WEIGHT + COUNTS), SOUND)

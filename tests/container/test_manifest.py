"""The figures of a manifest: bfloat16 numbers as text (LCC-FIG).

Manifests are written in one way; what breaks a rule, also of copies, is refused.
"""

import base64
import hashlib
import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.chain.save.measurement import rounded_figures
from lccodec.constants import MAX_ARRAYS, MAX_STEP, PAYLOAD_OFFSET, ROOT_SIZE
from lccodec.container.checkpoint import Trailer, open_bytes, to_bytes
from lccodec.container.manifest import (
    COPY_TYPES,
    FIGURES,
    Copy,
    StoredFigures,
    parse_copies,
    parse_figures,
    parse_manifest,
)
from lccodec.container.tree import write_base64
from lccodec.errors import DataError, FormatError, UnsupportedError

from ..support.checkpoints import DELTA, FILE, FRAMES, KEYFRAME

NUMBERS = st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=3, max_size=3)
LARGEST = 255 * 2.0**120


def stored(**columns: Any) -> StoredFigures | None:
    return rounded_figures(5, {name: np.array(numbers) for name, numbers in columns.items()})


@given(NUMBERS)
def test_numbers_are_rounded_once_and_read_again(numbers: list[float]) -> None:
    figures = stored(lag=numbers)
    if np.isnan(numbers).all():
        assert figures is None
        return
    assert figures is not None and figures.since == 5
    data = replace(KEYFRAME, figures=figures).to_bytes()
    assert parse_manifest(data, "manifest").figures == figures
    for number, found in zip(numbers, figures.read("lag", 3).tolist(), strict=True):
        if np.isnan(number):
            assert np.isnan(found)
            continue
        assert abs(found) <= LARGEST and not (found == 0 and np.signbit(found))
        near = float(np.clip(number, -LARGEST, LARGEST))
        assert abs(found - near) <= abs(near) * 2.0**-8 + 2.0**-133  # half a digit, or a subnormal one


def test_ties_go_to_even() -> None:
    figures = stored(error=[1 + 2**-8, 1 + 3 * 2**-8, np.nan])
    assert figures is not None
    np.testing.assert_array_equal(figures.read("error", 3), np.float32([1, 1 + 2**-6, np.nan]))


def test_what_is_not_known_is_left_out() -> None:
    nothing, some = [np.nan] * 3, [1.0, np.nan, 2.0]
    figures = stored(spread=some, movement=nothing, error=some, lag=nothing)
    assert figures is not None
    assert figures.since is None and list(figures.numbers) == ["spread", "error"]
    assert np.isnan(figures.read("lag", 3)).all()
    assert stored(**dict.fromkeys(FIGURES, nothing)) is None
    figures = stored(lag=some)
    assert figures is not None and figures.since == 5 and list(figures.numbers) == ["lag"]


def test_only_of_what_lost_something_is_it_said_how_values_lie() -> None:
    figures = stored(
        error=[0.0, 2.0, np.nan], rms=[1.0, 2.0, 3.0], quantiles=[[1.0] * 7, [2.0] * 7, [3.0] * 7]
    )
    assert figures is not None and len(figures.numbers["rms"]) == 2
    np.testing.assert_array_equal(figures.read("rms", 3), np.float32([np.nan, 2, np.nan]))
    np.testing.assert_array_equal(figures.read("quantiles", 3)[:, 0], np.float32([np.nan, 2, np.nan]))
    data = replace(KEYFRAME, figures=figures).to_bytes()
    assert parse_manifest(data, "manifest").figures == figures
    exact = stored(error=[0.0, 0.0, 0.0], rms=[1.0, 2.0, 3.0])
    assert exact is not None and list(exact.numbers) == ["error"]
    assert stored(rms=[1.0, 2.0, 3.0]) is None


@pytest.mark.parametrize("figures", [[], {}, {"size": ""}, {"since": 7, "lag": ""}, {"error": "AAAA"}])
def test_hostile_figures_name_their_place(figures: object) -> None:
    document = json.loads(KEYFRAME.to_bytes())
    members = {"lccodec", "step", "parent", "policy"}
    head = {name: document.pop(name) for name in list(document) if name in members}
    data = json.dumps({**head, "figures": figures, **document}, ensure_ascii=False, separators=(",", ":"))
    with pytest.raises(DataError, match=r"manifest: figures.*LCC-FIG-0\d"):
        parse_manifest(data.encode(), "manifest")


@pytest.mark.parametrize("name", ["error", "lag"])
def test_each_number_may_be_or_not(name: str) -> None:
    """All patterns beside one that is known: finite, not -0, and negative only where a sign is."""
    for pattern in range(1 << 16):
        finite = pattern & 0x7F80 != 0x7F80 and pattern != 0x8000
        fits = pattern == 0x7FC0 or (finite and (name == "lag" or pattern < 0x8000))
        text = write_base64(pattern.to_bytes(2, "little") + b"\x80\x3f")
        try:
            parse_figures({"since": 0, name: text} if name == "lag" else {name: text}, 2, 1, "here")
        except FormatError as error:
            assert not fits and error.rule == "LCC-FIG-04"
        else:
            assert fits
    with pytest.raises(FormatError, match="nothing is known"):
        parse_figures({"error": write_base64(b"\xc0\x7f" * 2)}, 2, 1, "here")


def test_figures_never_make_a_manifest_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = stored(error=[1.0, 2.0, 3.0])
    plain, measured = KEYFRAME, replace(KEYFRAME, figures=figures)
    monkeypatch.setattr("lccodec.container.checkpoint.MAX_MANIFEST_BYTES", len(plain.to_bytes()))
    assert to_bytes(FRAMES, measured) == to_bytes(FRAMES, plain)
    monkeypatch.undo()
    assert to_bytes(FRAMES, measured) != to_bytes(FRAMES, plain)


def with_manifest(data: bytes, payload: bytes = b"".join(FRAMES)) -> bytes:
    """A file around a hostile manifest, with lengths and a root that fit."""
    head = FILE[:PAYLOAD_OFFSET]
    trailer = Trailer(len(payload), len(data)).to_bytes()[:-ROOT_SIZE]
    tail = data + trailer
    return head + payload + tail + hashlib.sha256(head + tail).digest()


def test_manifest_bytes() -> None:
    digests = [base64.urlsafe_b64encode(hashlib.sha256(f).digest()[:16]).decode().rstrip("=") for f in FRAMES]
    assert KEYFRAME.to_bytes().decode() == (
        '{"lccodec":[1,1],"step":7,"parent":null,"policy":"lc-3","metadata":{"run":"é"},'
        '"tree":{"a":0,"b":["l",1,null],"c":["t",2,0]},"scalars":[{"f":"0.1"}],'
        f'"arrays":[1,2,3],"frames":[[11,"{digests[0]}"],[1,"{digests[1]}"],[15,"{digests[2]}"]]}}'
    )
    assert DELTA.to_bytes().decode() == (
        '{"lccodec":[1,1],"step":8,"parent":[7,"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"],"policy":"lc-3",'
        f'"scalars":[{{"f":"0.1"}}],"arrays":[0,1,0],"frames":[[1,"{digests[1]}"]]}}'
    )


def test_an_inherited_tree_is_checked() -> None:
    assert DELTA.inherit(KEYFRAME.tree, "here").tree == KEYFRAME.tree
    assert KEYFRAME.inherit({}, "here") is KEYFRAME
    with pytest.raises(FormatError, match=r"here: tree.*LCC-STA-02"):
        DELTA.inherit({"a": 0}, "here")


def changed(**fields: Any) -> bytes:
    """The keyframe's manifest with other JSON values; ... leaves a key out."""
    document = json.loads(KEYFRAME.to_bytes()) | fields
    document = {key: value for key, value in document.items() if value is not ...}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def text(old: str, new: str) -> bytes:
    return KEYFRAME.to_bytes().replace(old.encode(), new.encode("utf-8", "surrogatepass"), 1)


ROOT = "A" * 43
DIGEST = json.loads(KEYFRAME.to_bytes())["frames"][0][1]
HOSTILE_MANIFESTS: list[tuple[bytes, str]] = [
    (b"NaN", "LCC-MAN-01"),
    (text("7", "7 "), "LCC-MAN-01"),
    (text('"step"', '"\\u0073tep"'), "LCC-MAN-01"),
    (text("é", "\\u00e9"), "LCC-MAN-01"),
    (text("é", "\\ud800"), "LCC-MAN-01"),
    (text("é", "\ud800"), "LCC-MAN-01"),
    (text("é", "\n"), "LCC-MAN-01"),
    (text('"step":7', '"step":7,"step":7'), "LCC-MAN-01"),
    (text('"a":0', '"a":0,"a":0'), "LCC-MAN-01"),
    (text('"lc-3"', "NaN"), "LCC-MAN-01"),
    (text('"lc-3"', "-Infinity"), "LCC-MAN-01"),
    (text('"lc-3"', "1e999"), "LCC-MAN-01"),
    (text('"lc-3"', "1e2"), "LCC-MAN-01"),
    (text('"lc-3"', "-0"), "LCC-MAN-01"),
    (KEYFRAME.to_bytes() + b"\n", "LCC-MAN-01"),
    (changed(step=-1), "LCC-MAN-02"),
    (changed(step=True), "LCC-MAN-02"),
    (changed(step=7.0), "LCC-MAN-02"),
    (changed(step=MAX_STEP + 1), "LCC-MAN-02"),
    (b"7", "LCC-MAN-03"),
    (b"[]", "LCC-MAN-03"),
    (b"{}", "LCC-MAN-03"),
    (changed(more=1), "LCC-MAN-03"),
    (changed(step=...), "LCC-MAN-03"),
    (changed(policy=...), "LCC-MAN-03"),
    (text('"step":7,"parent":null', '"parent":null,"step":7'), "LCC-MAN-03"),
    (changed(parent=7), "LCC-MAN-04"),
    (changed(parent={}), "LCC-MAN-04"),
    (changed(parent=[]), "LCC-MAN-04"),
    (changed(parent=[1]), "LCC-MAN-04"),
    (changed(parent=[1, ROOT, 1]), "LCC-MAN-04"),
    (changed(parent={"step": 1, "root": ROOT}), "LCC-MAN-04"),
    (changed(parent=[None, ROOT]), "LCC-MAN-02"),
    (changed(parent=[True, ROOT]), "LCC-MAN-02"),
    (changed(parent=[1, 7]), "LCC-MAN-04"),
    (changed(parent=[1, ROOT[1:]]), "LCC-MAN-04"),
    (changed(parent=[1, ROOT + "="]), "LCC-MAN-04"),
    (changed(parent=[1, ROOT[1:] + "\n"]), "LCC-MAN-04"),
    (changed(parent=[1, ROOT[1:] + "B"]), "LCC-MAN-04"),
    (changed(parent=[1, "00" * 32]), "LCC-MAN-04"),
    (changed(frames=None), "LCC-MAN-05"),
    (changed(frames=[0]), "LCC-MAN-05"),
    (changed(frames=[None]), "LCC-MAN-05"),
    (changed(frames=[False]), "LCC-MAN-05"),
    (changed(frames=[1]), "LCC-MAN-05"),
    (changed(arrays=None), "LCC-MAN-10"),
    (changed(arrays=[1, 2]), "LCC-MAN-10"),
    (changed(arrays=[1, 3, 2]), "LCC-MAN-10"),
    (changed(arrays=[1, 2, 4]), "LCC-MAN-10"),
    (changed(arrays=[0, 1, 2]), "LCC-MAN-10"),
    (changed(arrays=[1, 1, 1]), "LCC-MAN-10"),
    (changed(arrays=[True, 2, 3]), "LCC-MAN-10"),
    (changed(arrays=[1.0, 2, 3]), "LCC-MAN-10"),
    (changed(arrays=[1, 2, 3, 3]), "LCC-STA-02"),
    (changed(frames=[[1]]), "LCC-MAN-05"),
    (changed(frames=[[0, DIGEST]]), "LCC-MAN-05"),
    (changed(frames=[[-1, DIGEST]]), "LCC-MAN-05"),
    (changed(frames=[[True, DIGEST]]), "LCC-MAN-05"),
    (changed(frames=[[1.0, DIGEST]]), "LCC-MAN-05"),
    (changed(frames=[[1 << 53, DIGEST]]), "LCC-MAN-05"),
    (changed(frames=[[26, DIGEST], [1, DIGEST], [1, DIGEST]]), "LCC-MAN-05"),
    (changed(metadata={}), "LCC-MAN-06"),
    (changed(metadata=None), "LCC-MAN-06"),
    (changed(metadata={"a": 1}), "LCC-MAN-06"),
    (changed(tree=...), "LCC-MAN-07"),
    (changed(frames=[[1, 7]]), "LCC-MAN-08"),
    (changed(frames=[[1, DIGEST + "=="]]), "LCC-MAN-08"),
    (changed(frames=[[1, DIGEST[1:]]]), "LCC-MAN-08"),
    (changed(frames=[[1, "+" * 22]]), "LCC-MAN-08"),
    (changed(frames=[[1, "é" * 22]]), "LCC-MAN-08"),
    (changed(frames=[[1, "A" * 21 + "B"]]), "LCC-MAN-08"),
    (changed(lccodec=[2, 0]), "LCC-MAN-09"),
    (changed(lccodec=[1, 0]), "LCC-MAN-09"),
    (changed(lccodec=[1, 65_535]), "LCC-MAN-09"),
    (changed(lccodec=[1]), "LCC-MAN-09"),
    (changed(lccodec=[True, 0]), "LCC-MAN-09"),
    (changed(lccodec="1.0"), "LCC-MAN-09"),
    (changed(tree=7), "LCC-STA-02"),
    (changed(tree={"a": 0.0}), "LCC-STA-01"),
    (changed(scalars=[]), "LCC-MAN-11"),
    (changed(scalars=...), "LCC-STA-03"),
    (changed(scalars=[1.5]), "LCC-STA-04"),
    (changed(scalars=[{"f": "1"}]), "LCC-STA-05"),
    (text('"lc-3"', "[" * 65 + "]" * 65), "LCC-LIM-05"),
    (text('"lc-3"', "[" * 100_000 + "]" * 100_000), "LCC-LIM-05"),
    (text('"lc-3"', '{"a":' * 100_000), "LCC-LIM-05"),
    (changed(arrays=[1] * (MAX_ARRAYS + 1)), "LCC-LIM-06"),
    (changed(arrays=[1] * MAX_ARRAYS), "LCC-MAN-10"),
    (text('"step":7', '"step":' + "7" * 5000), "LCC-LIM-07"),
    (text('"lc-3"', "-" + "7" * 10**6), "LCC-LIM-07"),
]


@pytest.mark.parametrize(("data", "rule"), HOSTILE_MANIFESTS, ids=itertools.count())
def test_hostile_manifests(data: bytes, rule: str) -> None:
    with pytest.raises(DataError) as caught:
        open_bytes(with_manifest(data), "file")
    assert caught.value.rule == rule
    assert caught.value.where.startswith("file: manifest")


def test_of_several_broken_rules_the_first_is_named() -> None:
    """The order of SPEC 8, Precedence."""
    members: list[tuple[str, dict[str, Any]]] = [
        ("LCC-MAN-03", {"more": 1}),
        ("LCC-MAN-09", {"lccodec": [1]}),
        ("LCC-MAN-02", {"step": -1}),
        ("LCC-MAN-06", {"metadata": {}}),
        ("LCC-MAN-04", {"parent": 7}),
        ("LCC-STA-04", {"scalars": [1.5]}),
        ("LCC-MAN-05", {"frames": [[0, DIGEST]]}),
        ("LCC-MAN-10", {"arrays": [0]}),
        ("LCC-STA-01", {"tree": True}),
    ]
    for number, (rule, _) in enumerate(members):
        broken = {name: value for _, member in members[number:] for name, value in member.items()}
        with pytest.raises(DataError) as caught:
            parse_manifest(changed(**broken), "here")
        assert caught.value.rule == rule


def test_unknown_keys_and_versions_are_unsupported() -> None:
    for data in (changed(more=1), changed(lccodec=[2, 0])):
        with pytest.raises(UnsupportedError):
            parse_manifest(data, "here")


def test_a_newer_minor_version_without_anything_new_is_read() -> None:
    manifest = replace(KEYFRAME, minor=2)
    trailer = Trailer(KEYFRAME.payload_length, len(manifest.to_bytes()), minor=2).to_bytes()[:-ROOT_SIZE]
    middle = PAYLOAD_OFFSET + KEYFRAME.payload_length
    tail = manifest.to_bytes() + trailer
    root = hashlib.sha256(FILE[:PAYLOAD_OFFSET] + tail).digest()
    assert open_bytes(FILE[:middle] + tail + root).manifest == manifest


@given(st.data())
def test_mutated_manifests_are_refused_or_canonical(data: st.DataObject) -> None:
    original = bytearray(KEYFRAME.to_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(original) - 1))
        original[position : position + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    try:
        manifest = parse_manifest(bytes(original), "here")
    except DataError:
        return
    assert manifest.to_bytes() == original


HALF, BRAIN = COPY_TYPES[9], COPY_TYPES[10]


def test_there_and_back() -> None:
    copies = (Copy(3, BRAIN), Copy(1, HALF))
    arrays = (None, 1, None, 0)
    document = {"copies": [copy.to_json() for copy in copies]}
    assert document == {"copies": [[3, 10], [1, 9]]}
    assert parse_copies(document, arrays, "here") == copies
    assert parse_copies({}, (1, 2), "here") == ()


@pytest.mark.parametrize(
    ("copies", "message"),
    [
        ([], "not the sources of 1 copies"),
        ([[0]], "0: not the index"),
        ([[0, True]], "0: not the index"),
        ([[5, 9]], "0: 5 is no array"),
    ],
)
def test_what_is_refused(copies: list[object], message: str) -> None:
    with pytest.raises(FormatError, match=f"^here.*{message}") as caught:
        parse_copies({"copies": copies}, (1, None), "here")
    assert caught.value.rule == "LCC-CPY-01"


def test_other_types_are_not_known() -> None:
    for code in range(-1, 20):
        if code not in (9, 10):
            with pytest.raises(UnsupportedError, match=f"element type {code}"):
                parse_copies({"copies": [[0, code]]}, (1, None), "here")

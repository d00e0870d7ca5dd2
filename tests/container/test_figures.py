"""The figures of a manifest: bfloat16 numbers as text (LCC-FIG)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.chain.save.measurement import rounded_figures
from lccodec.container.checkpoint import to_bytes
from lccodec.container.figures import FIGURES, StoredFigures, parse_figures
from lccodec.container.manifest import parse_manifest
from lccodec.container.scalars import write_base64
from lccodec.errors import DataError, FormatError

from ..support.checkpoints import FRAMES, KEYFRAME

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
    assert list(figures.to_json()) == ["spread", "error"]
    assert np.isnan(figures.read("lag", 3)).all()
    assert stored(**dict.fromkeys(FIGURES, nothing)) is None
    figures = stored(lag=some)
    assert figures is not None and list(figures.to_json()) == ["since", "lag"]


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

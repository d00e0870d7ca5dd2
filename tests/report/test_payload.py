import base64
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.report.page import Planes, pack, rounded

from ..support.documents import fields, hostile, one_run


def unpack(data: bytes) -> tuple[dict, bytes]:
    length = int.from_bytes(data[:4], "little")
    return json.loads(data[4 : 4 + length]), data[4 + length :]


def numbers_of(place: dict, planes: bytes) -> list[list[float | None]]:
    count = place["rows"] * place["columns"]
    part = np.frombuffer(planes, np.uint8, 4 * count, place["at"]).reshape(4, count)
    wide = np.zeros((count, 8), np.uint8)
    wide[:, :4] = part.T
    table = wide.view(">f8").reshape(place["rows"], place["columns"])
    return [[None if math.isnan(x) else float(f"{x:.5g}") for x in row] for row in table]


def test_figures_come_back_digit_by_digit() -> None:
    document = one_run()
    small, planes = unpack(pack(document))
    run, packed = document["runs"][0], small["runs"][0]
    for name, rows in run["figures"].items():
        assert numbers_of(packed["figures"][name], planes) == rows
    for name in ("error", "bias", "largest"):
        assert numbers_of(packed["loss"][name], planes) == run["loss"][name]
    assert [None if place is None else numbers_of(place, planes) for place in packed["quantiles"]] == [
        None if rows is None else [row or [None] * 9 for row in rows] for rows in run["quantiles"]
    ]
    assert [rows is None for rows in run["quantiles"][:3]] == [True, False, False]
    told = {"figures": 0, "histograms": 0, "quantiles": 0, "loss": 0}
    assert {**packed, **told} == {**run, **told}


def test_pictures_come_back() -> None:
    document = fields()
    small, planes = unpack(pack(document))
    for before, picture in zip(document["runs"][0]["pictures"], small["runs"][0]["pictures"], strict=True):
        for name in ("values", "error"):
            if before[name] is None:
                assert picture[name] is None
                continue
            place, shape = picture[name].pop("pixels"), (before[name]["rows"], before[name]["columns"])
            apart = np.frombuffer(planes, np.uint8, math.prod(shape), place["at"]).reshape(shape)
            pixels = np.cumsum(apart, axis=1, dtype=np.uint8).tobytes()
            assert {**picture[name], "pixels": base64.b64encode(pixels).decode()} == before[name]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_five_digits_survive(value: float) -> None:
    value = float(f"{value:.5g}")
    back = rounded(np.array([value]))[0]
    assert np.array([back]).view(np.int64)[0] & 0xFFFFFFFF == 0
    if abs(value) >= np.finfo(np.float64).smallest_normal and math.isfinite(value):
        assert float(f"{back:.5g}") == value


def test_what_is_not_finite_is_null() -> None:
    planes = Planes()
    place = planes.numbers([[math.inf, None], [math.nan, 1.0]])
    assert numbers_of(place, planes.join()) == [[None, None], [None, 1.0]]


def test_bars_keep_what_is_small() -> None:
    planes = Planes()
    counts = np.array([[0, 1, 10**6, 250_000], [0, 0, 0, 0]])
    assert planes.bars(counts) == {"at": 0, "rows": 2, "columns": 4, "form": "bars"}
    assert list(planes.join()) == [0, 1, 255, 128, 0, 0, 0, 0]


@given(st.lists(st.integers(0, 10**9), min_size=1))
def test_no_bar_is_off_by_more_than_is_said(counts: list[int]) -> None:
    planes = Planes()
    planes.bars(np.array([counts]))
    peak = max(counts)
    for bar, count in zip(planes.join(), counts, strict=True):
        assert abs((bar / 255) ** 2 * peak - count) <= 0.004 * peak
        assert (bar > 0) == (count > 0)


def test_a_step_without_values_has_no_bars() -> None:
    document = one_run(steps=2)
    document["runs"][0]["histograms"][0]["counts"] = [[], [1, 2]]
    document["runs"][0]["histograms"][1] = None
    histograms = unpack(pack(document))[0]["runs"][0]["histograms"]
    assert histograms[0]["peaks"] == [0, 2]
    assert histograms[0]["counts"]["columns"] == 2
    assert histograms[1] is None


@pytest.mark.parametrize("make", [one_run, hostile])
def test_the_same_document_gives_the_same_bytes(make) -> None:
    assert pack(make()) == pack(make())

"""The page of a report: written whole, small, and with nothing of a document as markup.

Its payload: what of the figures survives the packing.
"""

import base64
import hashlib
import json
import math
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
import vl_convert  # noqa: F401 - it draws the page
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from benchmarks.pages.large import large
from lccodec.report import Planes, drawing_library, pack, page, rounded, write_page

from ..support.documents import fields, hostile, one_run
from ..support.programs import run_program

MISSING = """
import sys
sys.modules["vl_convert"] = None
from lccodec.report import write_page
try:
    write_page({"runs": []}, sys.argv[1])
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_a_page_is_written_whole(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    size = write_page(one_run(), file)
    assert size == file.stat().st_size
    assert file.read_text(encoding="utf-8").endswith("</html>\n")
    assert list(tmp_path.iterdir()) == [file]


def test_the_bytes_are_those_of_the_document() -> None:
    assert page(one_run(), "x") == page(one_run(), "x")


@pytest.mark.slow
def test_it_is_small_enough(library: str) -> None:
    assert len(page(large(), library).encode()) < 6_000_000


def test_nothing_of_a_document_is_markup() -> None:
    plain, harmed = page(one_run(), "x"), page(hostile(), "x")
    data = re.compile(r'(<script type="text/plain" id="data">)([A-Za-z0-9+/=]+)(</script>)')
    assert data.sub(r"\1\3", plain) == data.sub(r"\1\3", harmed)


def test_only_its_own_scripts_may_run() -> None:
    html = page(one_run(), "let x = '</script><!--';")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    packed = re.search(r'<script type="text/plain" id="library">([^<]*)</script>', html)
    assert packed is not None
    unpacked = zlib.decompress(base64.b64decode(packed[1])).decode()
    assert unpacked == "let x = '</script><!--';"
    scripts = [unpacked, *re.findall(r"<script>(.*?)</script>", html, re.DOTALL)]
    assert len(scripts) == 2
    allowed = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert re.findall(r"'sha256-([^']*)'", policy[1]) == allowed
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")


@pytest.mark.slow
def test_a_missing_library_is_named_with_its_extra(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    done = run_program(MISSING, file)
    assert done.stdout.startswith("DependencyError ")
    assert "lccodec[report]" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_nothing_of_the_working_directory_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vl_convert.py").write_text("raise SystemExit('harm')")
    monkeypatch.chdir(tmp_path)
    assert drawing_library().endswith(";")


def test_what_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lccodec.report.drawing_library", lambda: "")
    for place in (tmp_path / "missing" / "report.html", tmp_path):
        with pytest.raises(lccodec.StorageError):
            write_page(one_run(), place)
    assert list(tmp_path.iterdir()) == []


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

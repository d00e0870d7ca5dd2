import base64
import hashlib
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import vl_convert  # noqa: F401 - it draws the page

import lccodec
from benchmarks.pages.large import large
from lccodec.report import write_page
from lccodec.report.page import drawing_library, page

from ..support.documents import hostile, one_run

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


@pytest.mark.slow
def test_the_bytes_are_those_of_the_document(library: str) -> None:
    assert page(one_run(), library) == page(one_run(), library)


@pytest.mark.slow
def test_it_is_small_enough(library: str) -> None:
    assert len(page(large(), library).encode()) < 6_000_000


@pytest.mark.slow
def test_nothing_of_a_document_is_markup(library: str) -> None:
    plain, harmed = page(one_run(), library), page(hostile(), library)
    data = re.compile(r'(<script type="text/plain" id="data">)([A-Za-z0-9+/=]+)(</script>)')
    assert data.sub(r"\1\3", plain) == data.sub(r"\1\3", harmed)


def test_only_its_own_scripts_may_run(library: str) -> None:
    html = page(one_run(), "let x = '</script><!--';" + library)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    packed = re.search(r'<script type="text/plain" id="library">([^<]*)</script>', html)
    assert packed is not None
    unpacked = zlib.decompress(base64.b64decode(packed[1])).decode()
    assert unpacked.startswith("let x = '</script><!--';")
    scripts = [unpacked, *re.findall(r"<script>(.*?)</script>", html, re.DOTALL)]
    assert len(scripts) == 2
    allowed = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert re.findall(r"'sha256-([^']*)'", policy[1]) == allowed
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")


@pytest.mark.slow
def test_a_missing_library_is_named_with_its_extra(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    command = [sys.executable, "-c", MISSING, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("DependencyError ")
    assert "lccodec[report]" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_nothing_of_the_working_directory_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vl_convert.py").write_text("raise SystemExit('harm')")
    monkeypatch.chdir(tmp_path)
    assert drawing_library().endswith(";")


def test_what_cannot_be_written_is_said(
    tmp_path: Path, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lccodec.report.page.drawing_library", lambda: library)
    for place in (tmp_path / "missing" / "report.html", tmp_path):
        with pytest.raises(lccodec.StorageError):
            write_page(one_run(), place)
    assert list(tmp_path.iterdir()) == []

"""The wheel has room below its bound, and the sdist has what its tests read; see `.ci/release`."""

import io
import re
import tomllib
import zipfile
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from .support.requirements import ROOT

BOUND_BYTES = 5 << 18  # as in .ci/release
RECORD_BYTES_PER_FILE = 48  # a path and a hash, compressed
METADATA_BYTES = 9_000  # README, license and entry points


def build_targets() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    targets: dict[str, Any] = project["tool"]["hatch"]["build"]["targets"]
    return targets


def test_the_package_fits_in_a_wheel() -> None:
    target = build_targets()["wheel"]
    left_out = {ROOT / path.removeprefix("/") for path in target["exclude"]}
    assert target["packages"] == ["lccodec"]
    assert all(path.is_file() for path in left_out)
    files = {path for path in (ROOT / "lccodec").rglob("*") if path.is_file()}
    files -= {path for path in files if path.parent.name == "__pycache__"}
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files - left_out:
            archive.write(path, path.relative_to(ROOT))
    expected = len(whole.getvalue()) + RECORD_BYTES_PER_FILE * len(files) + METADATA_BYTES
    assert expected < BOUND_BYTES, f"the wheel would have about {expected} bytes"


def test_the_sdist_has_what_tests_read() -> None:
    """What a test takes from the root of the repository; `.ci/release --tests` runs them there."""
    taken = {
        name.split("/")[0]
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r'(?:ROOT|parents\[\d\]) / "([^"]+)"', path.read_text())
        if (ROOT / name).exists()
    }
    patterns = [pattern.removeprefix("/") for pattern in build_targets()["sdist"]["include"]]
    given = {name for name in taken if any(map(partial(fnmatchcase, name), patterns))}
    assert taken - given - {"pyproject.toml"} == set()  # which hatch puts there
    assert taken >= {".ci", "CITATION.cff", "CONTRIBUTING.md", "lccodec", "spec"}

"""The wheel has room below its bound; `.ci/release` weighs the wheel itself."""

from __future__ import annotations

import io
import tomllib
import zipfile

from .support.requirements import ROOT

BOUND_BYTES = 1 << 20  # as in .ci/release
RECORD_BYTES_PER_FILE = 48  # a path and a hash, compressed
METADATA_BYTES = 9_000  # README, license and entry points


def test_the_package_fits_in_a_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    target = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    left_out = {ROOT / path.removeprefix("/") for path in target["exclude"]}
    assert target["packages"] == ["lccodec"]
    assert all(path.is_file() for path in left_out)
    files = {path for path in (ROOT / "lccodec").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files - left_out:
            archive.write(path, path.relative_to(ROOT))
    expected = len(whole.getvalue()) + RECORD_BYTES_PER_FILE * len(files) + METADATA_BYTES
    assert expected < BOUND_BYTES, f"the wheel would have about {expected} bytes"

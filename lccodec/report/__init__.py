"""The report as one HTML page: from its document to a file that needs no network.

The document is made in ``inspect``; nothing here reads a checkpoint. The template of the page is
filled with the styles and scripts of ``web/``, Vega and the data, and written. Its pictures are
drawn by Vega in the browser of whoever opens it.

Nothing of the document or the library becomes markup: they are deflated, and base64 has no ``<``.
The page's policy forbids all requests, and every script but these by their hashes.

The document becomes bytes that a browser unpacks quickly: JSON, and its matrices in planes of
bytes. ``length of the JSON (4 bytes, little-endian) | JSON | planes``. In the JSON, a matrix is
replaced by ``{"at", "rows", "columns", "form"}``; `at` counts from the first plane. Its forms:

- ``number``: the upper four bytes of float64 in big-endian order, rounded to `MANTISSA_BITS`. All
  first bytes come first, then all second ones: so they deflate better. NaN stands for null. A
  document has five significant digits, and these are what a reader gets by rounding to five.
- ``bars``: one byte each, the square root of its share of the highest bar of its row, in 255ths.
  So no bar is off by more than 0.4 % of the highest one, and none that holds a value is empty.
- ``pixels``: one byte each, those of a `Raster`, less the byte on its left.

``web/payload.js`` reads it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..container.folder import replacing
from ..element_types import Array, stored_bytes, stored_view
from ..errors import DependencyError

_WEB: Final = Path(__file__).parent / "web"

#: Our own scripts, in the order in which they use each other.
_SCRIPTS: Final = (
    "payload", "text", "elements", "drawing", "charts", "links",
    "scalars", "chain", "findings", "movement", "tree", "measured", "loss", "pictures", "array",
    "comparison", "together", "page",
)  # fmt: skip

#: A process of its own: the library has a JavaScript engine, which would keep 130 MB.
_BUNDLE_PROGRAM: Final = """
import sys, vl_convert
sys.stdout.buffer.write(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").encode())
"""


def write_page(document: Mapping[str, Any], path: str | os.PathLike[str]) -> int:
    """Write the report of a document as one HTML file; return its size in bytes.

    The document is what :func:`lccodec.inspect.report.document` returns, and ``lccodec report
    --json`` prints. The file is replaced when the whole page is written. A ``DependencyError`` says
    that the extra ``report`` is not installed.
    """
    html = page(document, drawing_library()).encode()
    with replacing(path) as temporary:
        return temporary.write_bytes(html)


def drawing_library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    try:
        import vl_convert  # noqa: F401  # only whether it is there
    except ImportError:
        raise DependencyError("a report needs vl-convert: pip install 'lccodec[report]'") from None
    if not sys.executable:  # of a program that embeds Python
        raise DependencyError("a report needs a second process, and sys.executable names no interpreter")
    command = [sys.executable, "-P", "-c", _BUNDLE_PROGRAM]  # -P: nothing of the working directory
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, check=False, env=environment)  # noqa: S603
    if done.returncode:
        raise DependencyError(f"vl-convert failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode()


def page(document: Mapping[str, Any], library: str) -> str:
    """Return the HTML of a document's report."""
    own = "\n".join((_WEB / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS)
    script = f'"use strict";\n(() => {{\n{own}}})();\n'
    parts = {
        "STYLE": (_WEB / "page.css").read_text(encoding="utf-8"),
        "HASHES": " ".join(f"'sha256-{_digest(code)}'" for code in (library, script)),
        "DATA": _deflated(pack(document)),
        "LIBRARY": _deflated(library.encode()),
        "SCRIPT": script,
    }
    head, *rest = (_WEB / "page.html").read_text(encoding="utf-8").split("{{")
    pieces = [head]
    for piece in rest:
        name, after = piece.split("}}", 1)
        pieces += [parts[name], after]
    return "".join(pieces)


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _deflated(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 9)).decode()


MANTISSA_BITS: Final = 17  # relative error at most 2**-18, less than half a unit of five digits
_DROPPED_BITS: Final = 52 - MANTISSA_BITS
_FULL_BAR: Final = 255


class Planes:
    """Matrices as bytes, one behind the other."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def numbers(self, rows: Sequence[Sequence[float | None]]) -> dict[str, Any]:
        """Add a matrix of floats; return what replaces it in the JSON."""
        table = np.array([[math.nan if x is None else x for x in row] for row in rows], np.float64)
        table = table.reshape(len(rows), -1) if rows else np.empty((0, 0))
        table[~np.isfinite(table)] = math.nan
        planes = stored_view(rounded(table)).reshape(-1, 8)[:, :3:-1]  # stored is little-endian
        return self._add(planes.T, table.shape, "number")

    def bars(self, rows: Array) -> dict[str, Any]:
        """Add histograms, a row each; return what replaces them in the JSON."""
        peaks = rows.max(axis=1, keepdims=True, initial=1)
        heights = np.rint(np.sqrt(rows / peaks) * _FULL_BAR)
        return self._add(np.maximum(heights, rows > 0).astype(np.uint8), rows.shape, "bars")

    def pixels(self, raster: Mapping[str, Any]) -> dict[str, Any]:
        """Add the pixels of a raster; return what replaces it in the JSON."""
        shape = raster["rows"], raster["columns"]
        pixels = np.frombuffer(base64.b64decode(raster["pixels"]), np.uint8).reshape(shape)
        apart = np.diff(pixels, axis=1, prepend=np.uint8(0))  # deflates better than they do
        return {**raster, "pixels": self._add(apart, shape, "pixels")}

    def _add(self, data: Array, shape: tuple[int, ...], form: str) -> dict[str, Any]:
        place = {"at": self._size, "rows": shape[0], "columns": shape[1], "form": form}
        self._parts.append(stored_bytes(data))
        self._size += data.size
        return place

    def join(self) -> bytes:
        """Return all planes."""
        return b"".join(self._parts)


def rounded(values: Array) -> Array:
    """Return float64 values rounded to `MANTISSA_BITS`: their lower four bytes become zero.

    >>> rounded(np.array([1.0, 0.1, np.nan])).tolist()
    [1.0, 0.09999990463256836, nan]
    """
    bits = values.view(np.int64)
    half = np.int64(1) << (_DROPPED_BITS - 1)
    result = ((bits + half) >> _DROPPED_BITS) << _DROPPED_BITS
    # Rounding up the largest finite values makes them infinite.
    whole = result.view(np.float64)
    return np.where(np.isfinite(whole), whole, (bits >> _DROPPED_BITS << _DROPPED_BITS).view(np.float64))


def pack(document: Mapping[str, Any]) -> bytes:
    """Return the bytes of a document; the same document gives the same bytes."""
    planes = Planes()
    small = {**document, "runs": [_pack_run(run, planes) for run in document["runs"]]}
    text = json.dumps(small, allow_nan=False, separators=(",", ":")).encode()
    return len(text).to_bytes(4, "little") + text + planes.join()


def _pack_run(run: Mapping[str, Any], planes: Planes) -> dict[str, Any]:
    result = dict(run)
    result["figures"] = {name: planes.numbers(rows) for name, rows in run["figures"].items()}
    result["histograms"] = [_pack_histogram(histogram, planes) for histogram in run["histograms"]]
    result["quantiles"] = [_pack_quantiles(series, planes) for series in run.get("quantiles", ())]
    result["pictures"] = [
        {**picture, **{k: planes.pixels(picture[k]) for k in ("values", "error") if picture[k] is not None}}
        for picture in run.get("pictures", ())
    ]
    if (loss := run.get("loss")) is not None:
        matrices = {key: planes.numbers(loss[key]) for key in ("error", "bias", "largest")}
        result["loss"] = {**loss, **matrices}
    return result


def _pack_quantiles(series: Sequence[Sequence[float]] | None, planes: Planes) -> dict[str, Any] | None:
    """Return quantiles packed, a row for each step; a step without them has no numbers."""
    if series is None:
        return None
    count = max(map(len, series))
    return planes.numbers([row or [None] * count for row in series])


def _pack_histogram(histogram: Mapping[str, Any] | None, planes: Planes) -> dict[str, Any] | None:
    """Return a histogram with its bars packed; a step without one has bars of height 0."""
    if histogram is None:
        return None
    bins = max((len(counts) for counts in histogram["counts"] if counts), default=0)
    table = np.array([counts or [0] * bins for counts in histogram["counts"]], np.float64)
    table = table.reshape(len(histogram["counts"]), bins)
    peaks = [int(peak) for peak in table.max(axis=1, initial=0)]
    return {**histogram, "counts": planes.bars(table), "peaks": peaks}

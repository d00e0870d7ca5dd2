"""The page: its template filled with styles, scripts, Vega and the data, and written.

Nothing of the document or the library becomes markup: they are deflated, and base64 has no ``<``.
The page's policy forbids all requests, and every script but these by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..adapters.files.disk import replacing
from ..errors import DependencyError
from .payload import pack

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

    Parameters
    ----------
    document
        What :func:`lccodec.inspect.report.document` returns, and ``lccodec report --json`` prints.
    path
        The file. It is replaced when the whole page is written.

    Raises
    ------
    DependencyError
        If the extra ``report`` is not installed.
    ArgumentError
        If no file can have this name.
    StorageError
        If the operating system refuses to write. An existing file is unchanged.
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

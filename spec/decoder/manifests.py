"""Manifests (8): canonical JSON, members in the order of their checks, tree and scalars."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections import Counter
from typing import Any, NoReturn

from .streams import Refused

MEMBERS = ["lccodec", "step", "parent", "later", "replaces", "exact", "policy", "figures"]
MEMBERS += ["metadata", "tree", "scalars", "arrays", "copies", "frames"]
OPTIONAL = {"later", "replaces", "exact", "figures", "metadata", "tree", "scalars", "copies"}
FIGURES = ["since", "spread", "movement", "error", "lag"]
FIGURES += ["rms", "minimum", "maximum", "zeros", "not_finite", "quantiles"]
QUANTILES = 7  # numbers of each array
MAY_BE_NEGATIVE = ["lag", "minimum", "maximum", "quantiles"]
MAX_STEP = 2**53 - 1
ROOT = "[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]"  # the last of 43 characters holds four bits, and two that are 0


def is_integer(value: Any, low: int, high: int) -> bool:
    """Whether a JSON value is an integer in a range; a boolean is not an integer."""
    return type(value) is int and low <= value <= high


def parse_json(data: bytes) -> Any:
    """The value of canonical JSON; written again it must give the same bytes (LCC-MAN-01)."""
    depth = 0
    for token in re.finditer(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', data, re.DOTALL):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(token[0][:1], 0)
        if depth > 65:
            raise Refused("LCC-LIM-05", "the manifest nests more than 65 deep")

    def integer(text: str) -> int:
        if len(text.lstrip("-")) > 4096:
            raise Refused("LCC-LIM-07", "an integer of more than 4096 digits")
        return int(text)

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(value := dict(pairs)) != len(pairs):
            raise ValueError("a member name twice")
        return value

    def constant(text: str) -> NoReturn:
        raise ValueError(f"{text} is not JSON")

    try:
        value = json.loads(
            data.decode("utf-8"), parse_int=integer, parse_constant=constant, object_pairs_hook=members
        )
        again = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8")
    except ValueError as error:
        raise Refused("LCC-MAN-01", f"not canonical JSON: {error}") from error
    if again != data:
        raise Refused("LCC-MAN-01", "the JSON is not canonical")
    return value


def scalar(entry: Any) -> Any:
    """The value of a scalar (LCC-STA-04, LCC-STA-05)."""
    if entry is None or type(entry) in (bool, str, int):
        return entry
    if not isinstance(entry, dict) or list(entry) not in (["f"], ["b"]):
        raise Refused("LCC-STA-04", "an entry is not a scalar")
    [(form, text)] = entry.items()
    if not isinstance(text, str):
        raise Refused("LCC-STA-04", "a float or byte string is not given by a text")
    try:
        value = float(text) if form == "f" else base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Refused("LCC-STA-05", "a text that is not that of a value") from error
    if (repr(value) if isinstance(value, float) else base64.b64encode(value).decode()) != text:
        raise Refused("LCC-STA-05", "another text than the canonical one")
    return value


def check_parent(parent: Any) -> tuple[int, bytes]:
    """Check what a delta says of its parent; return the parent's step and root."""
    if not isinstance(parent, list) or len(parent) != 2:
        raise Refused("LCC-MAN-04", "the parent is not a step and a root")
    step, root = parent
    if not is_integer(step, 0, MAX_STEP):
        raise Refused("LCC-MAN-02", "the parent's step is not an integer in 0..2^53-1")
    if not isinstance(root, str) or not re.fullmatch(ROOT, root):
        raise Refused("LCC-MAN-04", "the parent's root has another form")
    return step, base64.urlsafe_b64decode(root + "=")


def check_later(manifest: dict[str, Any]) -> tuple[int, bytes]:
    """Check what an interpolated checkpoint says of its later parent; return its step and root."""
    step, parent, later = manifest["step"], manifest["parent"], manifest["later"]
    if not isinstance(later, list) or len(later) != 3 or not is_integer(later[0], 0, MAX_STEP):
        raise Refused("LCC-INT-01", "the later parent is not a step, a root and a weight")
    if not is_integer(later[2], 0, 255):
        raise Refused("LCC-INT-01", "the weight of the later parent is not an integer in 0..255")
    if not isinstance(later[1], str) or not re.fullmatch(ROOT, later[1]):
        raise Refused("LCC-INT-01", "the later parent's root has another form")
    if step is None or parent is None or not parent[0] < step < later[0]:
        raise Refused("LCC-INT-01", "the step is not between those of two parents")
    return later[0], base64.urlsafe_b64decode(later[1] + "=")


def check_frames(frames: Any) -> None:
    """Check the entries of the frames."""
    if not isinstance(frames, list):
        raise Refused("LCC-MAN-05", "the frames are not a list")
    for entry in frames:
        if not isinstance(entry, list) or len(entry) not in (2, 3):
            raise Refused("LCC-MAN-05", "a frame entry is not a length and a digest, and maybe a length")
        if not all(is_integer(length, 1, MAX_STEP) for length in entry[::2]):
            raise Refused("LCC-MAN-05", "the length of a frame or of its table is out of range")
        # The last of 22 characters holds two bits of the digest, and four that are 0.
        if not isinstance(entry[1], str) or not re.fullmatch("[A-Za-z0-9_-]{21}[AQgw]", entry[1]):
            raise Refused("LCC-MAN-08", "a digest is not 22 characters of base64url")
        if len(entry) == 3 and entry[2] > 28 * (3 + entry[0] // 1024):
            raise Refused("LCC-LIM-13", "a table of pieces is too long for its frame")


def check_arrays(arrays: Any, frames: int, least: int) -> None:
    """Check the numbers of the arrays' frames, which are `least` or more."""
    if not isinstance(arrays, list):
        raise Refused("LCC-MAN-10", "the arrays are not a list")
    if len(arrays) > 2**20:
        raise Refused("LCC-LIM-06", "more than 2^20 arrays")
    last = 0
    for number in arrays:
        if number is None:
            continue
        if not is_integer(number, least, last + 1):
            raise Refused("LCC-MAN-10", "an array has no frame, or one before its turn")
        last = max(last, number)
    if last != frames:
        raise Refused("LCC-MAN-10", "a frame has no array")


def check_copies(manifest: dict[str, Any]) -> None:
    """Check what the arrays without a number are copies of."""
    arrays, copies = manifest["arrays"], manifest.get("copies", [])
    if "copies" in manifest and not copies:
        raise Refused("LCC-CPY-01", "no copies, which is not said")
    if not isinstance(copies, list) or len(copies) != arrays.count(None):
        raise Refused("LCC-CPY-01", "not one entry for each array without a number")
    used: Counter[Any] = Counter()
    for entry in copies:
        if not isinstance(entry, list) or [type(item) for item in entry] != [int, int]:
            raise Refused("LCC-CPY-01", "an entry is not two integers")
        source, code = entry
        if code not in (9, 10, 255):
            raise Refused("LCC-CPY-01", "neither a rounding to float16 or bfloat16 nor an equal copy")
        if not is_integer(source, 0, len(arrays) - 1) or arrays[source] is None:
            raise Refused("LCC-CPY-01", "a source that is not there, or is a copy")
        used[source, code == 255] += 1
        if used[source, code == 255] > 1:
            raise Refused("LCC-CPY-01", "a source of two roundings, or of two equal copies")


def check_links(manifest: dict[str, Any]) -> None:
    """Check what a file says of the checkpoints that it replaces, and of an exact file."""
    step, roots, root = manifest["step"], manifest.get("replaces"), manifest.get("exact")
    if "replaces" in manifest:
        if step is None or root is True:
            raise Refused("LCC-MAN-12", "it has no step, or is an exact file")
        if not isinstance(roots, list) or not roots or not all(isinstance(text, str) for text in roots):
            raise Refused("LCC-MAN-12", "the replaced roots are not a list of texts")
        if len(set(roots)) < len(roots) or not all(re.fullmatch(ROOT, text) for text in roots):
            raise Refused("LCC-MAN-12", "a replaced root is there twice, or not 43 characters of base64url")
    if "exact" in manifest:
        if step is None:
            raise Refused("LCC-EXA-02", "it is or names an exact file, without a step")
        if root is True and manifest["parent"] is not None:
            raise Refused("LCC-EXA-02", "an exact file has a parent")
        if root is not True and not (isinstance(root, str) and re.fullmatch(ROOT, root)):
            raise Refused("LCC-EXA-02", "neither true nor a root of 43 characters of base64url")


def check_figures(manifest: dict[str, Any]) -> None:
    """Check what the save measured of each array."""
    figures, step = manifest["figures"], manifest["step"]
    if not isinstance(figures, dict) or list(figures) != [name for name in FIGURES if name in figures]:
        raise Refused("LCC-FIG-01", "the figures are unknown or in another order")
    if ("since" in figures) != ("movement" in figures or "lag" in figures) or not figures:
        raise Refused("LCC-FIG-01", "no figures, or a step of the save before without need, or none")
    if step is None or manifest.get("exact") is True:
        raise Refused("LCC-FIG-01", "figures without a step, or of an exact file")
    if "since" in figures and not is_integer(figures["since"], 0, step - 1):
        raise Refused("LCC-FIG-02", "the save before is not an earlier step")
    arrays, lost = len(manifest["arrays"]), 0
    for name, text in figures.items():
        if name == "since":
            continue
        count = lost if FIGURES.index(name) >= FIGURES.index("rms") else arrays
        size = 2 * (QUANTILES if name == "quantiles" else 1) * count
        if not isinstance(text, str) or not re.fullmatch("[A-Za-z0-9_-]*", text):
            raise Refused("LCC-FIG-03", "a figure is not a text of base64url")
        if len(text) != -(-size * 4 // 3):
            raise Refused("LCC-FIG-03", "a figure is not two bytes for each number of an array")
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        if base64.urlsafe_b64encode(data).rstrip(b"=").decode() != text:
            raise Refused("LCC-FIG-03", "the unused bits of a figure are not 0")
        known = [n for (n,) in struct.iter_unpack("<H", data) if n != 0x7FC0]
        if name == "error":
            lost = len(known) - known.count(0)
        if not known or any(number & 0x7F80 == 0x7F80 or number == 0x8000 for number in known):
            raise Refused("LCC-FIG-04", "a number is not finite or is -0, or none is known")
        if name not in MAY_BE_NEGATIVE and any(number & 0x8000 for number in known):
            raise Refused("LCC-FIG-04", "a number is negative that may not be")


def check_manifest(manifest: Any) -> tuple[int | None, list[tuple[int, bytes]]]:
    """Check a manifest without its tree, in the order of "Precedence"; return step and parents."""
    if not isinstance(manifest, dict):
        raise Refused("LCC-MAN-03", "the manifest is not an object")
    if list(manifest) != [m for m in MEMBERS if m in manifest or m not in OPTIONAL]:
        raise Refused("LCC-MAN-03", "members are unknown, missing or in another order")
    version, step, parent = manifest["lccodec"], manifest["step"], manifest["parent"]
    numbers = version if isinstance(version, list) else []
    if len(numbers) != 2 or not all(is_integer(number, 0, 65535) for number in numbers):
        raise Refused("LCC-MAN-09", "the version is not two integers")
    if step is not None and not is_integer(step, 0, MAX_STEP):
        raise Refused("LCC-MAN-02", "the step is not an integer in 0..2^53-1")
    metadata = manifest.get("metadata", {"": ""})
    texts = list(metadata.values()) if isinstance(metadata, dict) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise Refused("LCC-MAN-06", "metadata are empty or not strings")
    if parent is None and "tree" not in manifest:
        raise Refused("LCC-MAN-07", "a keyframe has no tree")
    parents = [] if parent is None else [check_parent(parent)]
    if "later" in manifest:
        parents.append(check_later(manifest))
    check_links(manifest)
    if manifest.get("scalars") == []:
        raise Refused("LCC-MAN-11", "the list of scalars is empty")
    scalars = manifest.setdefault("scalars", [])
    if not isinstance(scalars, list):
        raise Refused("LCC-STA-04", "the scalars are not a list")
    for entry in scalars:
        scalar(entry)
    check_frames(manifest["frames"])
    check_arrays(manifest["arrays"], len(manifest["frames"]), 1 if parent is None else 0)
    check_copies(manifest)
    if "figures" in manifest:
        check_figures(manifest)
    return step, parents


def check_tree(manifest: dict[str, Any], tree: Any) -> list[str]:
    """Check a tree against its manifest; return the arrays' names (LCC-STA-01, -02, -03, -07)."""
    names: list[str] = []
    nulls = characters = 0

    def walk(node: Any, path: str | None, length: int, depth: int) -> None:
        nonlocal nulls, characters
        characters += length
        if characters > 2**24:
            raise Refused("LCC-LIM-08", "the names of the nodes have more than 2^24 characters")
        if node is None:
            nulls += 1
        elif is_integer(node, 0, min(len(names), len(manifest["arrays"]) - 1)):
            if node == len(names):
                names.append(path or "")
        elif type(node) is int:
            raise Refused("LCC-STA-02", "an array appears before its turn, or there is no such array")
        elif not isinstance(node, dict) and not (isinstance(node, list) and node and node[0] in ("l", "t")):
            raise Refused("LCC-STA-01", "not a node of a tree")
        elif depth == 64:
            raise Refused("LCC-LIM-05", "the tree nests more than 64 deep")
        else:
            prefix = "" if path is None else path + "/"
            items = node.items() if isinstance(node, dict) else ((str(i), v) for i, v in enumerate(node[1:]))
            for key, child in items:
                name = prefix + key.replace("~", "~0").replace("/", "~1")
                walk(child, name, length + len(key) + 1, depth + 1)

    walk(tree, None, 0, 0)
    if len(names) != len(manifest["arrays"]):
        raise Refused("LCC-STA-02", "not every array appears")
    if nulls != len(manifest["scalars"]):
        raise Refused("LCC-STA-03", "the numbers of scalars and of nulls differ")
    return names

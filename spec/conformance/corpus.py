"""The vectors as questions to a Reader, and what a right answer to each is."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

SPEC = Path(__file__).parents[1]
VECTORS = SPEC / "vectors"

#: What a Reader of a level reads (SPEC 4).
LEVELS = {1: "file", 2: "chain", 3: "full", 4: "mend"}

_SECTIONS = {"raw": "6.2", "planes": "6.2", "codebook": "6.3", "smooth": "6.4"}

#: SHA-256 of files that are made: with an array too many, and with as many as there may be.
_TOO_MANY = "b5899354cd57aeed7b4858895386c20babb57712539c480a30d370c5f24608f4"
_MOST = "fced1d131c4aa319348583d06c237e0f80b8acc06089547a0ec32f7b9c58c1ec"

_EXACT = "exact.lcc.h5"

Answer = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A question about a vector.

    Parameters
    ----------
    name
        Of the vector; and of the step, for a bundle.
    level
        The least level of a Reader that must know the answer.
    section
        Of the specification.
    group
        The rule that the vector breaks, or what a valid one is.
    question
        What a Reader is asked, without its id.
    rule
        The rule that it must name; None for a valid vector.
    expected
        The members of the right answer, for a valid vector.
    may_read
        Whether a Reader may read what only a Validator refuses.
    stored
        The components of a frame, if they have a file.
    """

    name: str
    level: int
    section: str
    group: str
    question: dict[str, Any]
    rule: str | None = None
    expected: Answer | None = None
    may_read: bool = False
    stored: Path | None = None

    def problem(self, answer: Answer, level: int) -> str | None:
        """Return what is wrong with the answer of a Reader of a level; None if it is right."""
        if "unsupported" in answer and self.level > level:
            return None
        if "unsupported" in answer:
            return f"of level {self.level}, and said to be unsupported: {answer['unsupported']}"
        if "rule" in answer:
            if answer["rule"] == self.rule or (self.level > level and self.rule is not None):
                return None
            return f"refused by {answer['rule']}; " + (
                f"it breaks {self.rule}" if self.rule else "it is valid"
            )
        if self.rule is not None:
            return None if self.may_read else f"read, but it breaks {self.rule}"
        for member, right in (self.expected or {}).items():
            # As JSON, so that the order of keys counts, and booleans are no integers.
            if json.dumps(answer.get(member)) != json.dumps(right):
                return self._difference(member, answer, right)
        return None

    def _difference(self, member: str, answer: Answer, right: Any) -> str:
        found = answer.get(member)
        if member == "sha256" and self.stored is not None and "values" in answer:
            stored, values = self.stored.read_bytes(), bytes.fromhex(answer["values"])
            place = next((i for i, (a, b) in enumerate(zip(stored, values, strict=False)) if a != b), None)
            where = f"differ from byte {place} on" if place is not None else "are as far as they go"
            return f"the values ({len(values)} bytes of {len(stored)}) {where}"
        if isinstance(found, list) and isinstance(right, list) and len(found) == len(right):
            found, right = next((a, b) for a, b in zip(found, right, strict=True) if a != b)
        return f"{member} is {_short(found)}, not {_short(right)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 160 else f"{text[:160]}..."


def rules() -> dict[str, dict[str, Any]]:
    """Return the table of rules."""
    found: dict[str, dict[str, Any]] = json.loads((SPEC / "tables" / "rules.json").read_bytes())
    return found


def cases(scratch: Path) -> Iterator[Case]:
    """Yield the questions about all vectors.

    Damaged copies, and files of 2 MiB that are too large to store, are made in an empty directory.

    Raises
    ------
    ValueError
        If such a file is not the one that it was when its digest was written down.
    """
    sections = {name: rule["section"] for name, rule in rules().items()}
    entries = json.loads((VECTORS / "manifest.json").read_bytes())
    for frozen in ("frozen", "frozen-1.1"):
        for entry in json.loads((VECTORS / frozen / "manifest.json").read_bytes()):
            entries.append({**entry, "name": f"{frozen}/{entry['name']}"})
    for entry in entries:
        for question, expected in _questions(entry):
            name = entry["name"] + (f"@{question['step'] or 'newest'}" if "step" in question else "")
            if "rule" in entry and ("step" not in question or "rule" in expected):
                rule = expected.get("rule", entry["rule"])
                may_read = entry["reported_by"] == "validator"
                yield Case(name, entry["level"], sections[rule], rule, question, rule, None, may_read)
            else:
                group, section = _group(entry)
                stored = VECTORS / entry["expected"] if "frame" in question and entry["expected"] else None
                yield Case(name, entry["level"], section, group, question, None, expected, False, stored)
    yield from _mended(
        [entry for entry in entries if entry["kind"] == "parity" and "rule" not in entry], scratch
    )
    yield from _directories([entry for entry in entries if entry["kind"] == "bundle"], scratch)
    yield from _many_arrays(scratch)


def _group(entry: dict[str, Any]) -> tuple[str, str]:
    """Return what a valid vector is, and its section."""
    if entry["kind"] == "frame":
        return f"valid {entry['method']} frames", _SECTIONS[entry["method"]]
    if entry["kind"] == "checkpoint":
        alone = entry["level"] == 1
        return ("valid files", "8") if alone else ("valid files of chains", "9")
    return f"valid {entry['kind']} files", "9"


def _questions(entry: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Answer]]:
    """Yield the questions about a vector, each with the right answer if it is valid."""
    path, valid = str(VECTORS / entry["file"]), "rule" not in entry
    if entry["kind"] == "frame":
        reference = entry["reference"] and str(VECTORS / entry["reference"])
        right = {member: entry.get(member) for member in ("dtype", "shapes", "sha256")}
        yield {"frame": path, "reference": reference}, right
    elif entry["kind"] == "parity":
        named = entry.get("named", Path(path).name)
        yield {"parity": path, "named": named}, {"files": entry.get("members")}
    elif entry["kind"] == "checkpoint":
        yield {"file": path}, _expected(entry) if valid else {}
    else:
        if not valid:
            yield {"bundle": path}, {}
        # Of a bundle with a fault, some states may be sound.
        for step, state in _expected(entry).items() if entry.get("expected") else ():
            yield {"bundle": path, "step": None if step == "newest" else int(step)}, state


def _expected(entry: dict[str, Any]) -> Answer:
    found: Answer = json.loads((VECTORS / entry["expected"]).read_bytes())
    return found


def _directories(entries: list[dict[str, Any]], scratch: Path) -> Iterator[Case]:
    """Yield questions about directories: the files of bundles whose newest state is known.

    The newest state of a directory is found as that of a bundle is (LCC-EXA-04). A fault of the
    index is none of the files'.
    """
    for entry in entries:
        right = _expected(entry).get("newest") if entry.get("expected") else None
        if right is None or entry.get("rule", "").startswith("LCC-BUN"):
            continue
        files = _files_of((VECTORS / entry["file"]).read_bytes())
        rule = right.get("rule")
        expected = None if rule else right
        yield _newest(f"{entry['name']}@directory", files, rule, expected, scratch)
        if entry["name"] == "newest-newer":  # a chain whose first checkpoint is still to come
            files = {_EXACT: files[_EXACT]}
            yield _newest("exact-alone@directory", files, None, right, scratch)
            files = {_EXACT: _flipped(files[_EXACT], -1)}
            yield _newest("exact-damaged@directory", files, "LCC-TRL-06", None, scratch)


def _files_of(bundle: bytes) -> dict[str, bytes]:
    """Return the files of a bundle by their names in a directory."""
    files, length = struct.unpack_from("<2Q", bundle, len(bundle) - 48)
    index = json.loads(bundle[8 + files : 8 + files + length])
    sizes = [(f"{step:012d}.lcc.h5", size) for step, size, _ in index["checkpoints"]]
    sizes += [(_EXACT, index["exact"][0])] if "exact" in index else []
    ends = [*accumulate((size for _, size in sizes), initial=8)]
    return {name: bundle[a:b] for (name, _), (a, b) in zip(sizes, pairwise(ends), strict=True)}


def _newest(
    name: str, files: dict[str, bytes], rule: str | None, expected: Answer | None, scratch: Path
) -> Case:
    """Return the question about the newest state of a directory."""
    place = scratch / name.replace("/", "-")
    place.mkdir()
    for own, data in files.items():
        (place / own).write_bytes(data)
    group = rule or "newest states of chains"
    return Case(name, 2, "9", group, {"chain": str(place)}, rule, expected)


def _mended(entries: list[dict[str, Any]], scratch: Path) -> Iterator[Case]:
    """Yield questions about damaged groups: each parity file alone, and all of a group together."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in entries:
        groups[entry["name"].partition("-")[0]].append(entry)
        yield _damaged(f"{entry['name']}@mended", [entry], scratch)
    for name, group in groups.items():
        if len(group) > 1:
            yield _damaged(f"{name}@mended", group, scratch)
    # One group of each layout is enough: of a chain, with two parity files. Frozen ones follow.
    aligned, joined, *_ = (
        group for group in groups.values() if len(group) == 2 and "/" not in group[0]["members"][0]
    )
    yield from _mended_in_part(aligned, scratch)
    yield from _mended_end_to_end(joined, scratch)


def _damaged(name: str, parity: list[dict[str, Any]], scratch: Path) -> Case:
    """Return the question about a group with a damaged block for each of some parity files."""
    entry, place = parity[0], scratch / name
    files = [(VECTORS / file).read_bytes() for file in entry["files"]]
    stored = (VECTORS / entry["file"]).read_bytes()
    description = json.loads(stored[64 : 64 + int.from_bytes(stored[16:24], "little")])
    whole, begins = bytearray(b"".join(files)), [0, *accumulate(map(len, files))]
    for column in range(len(parity)):
        size = description["rows"] * description["block"]
        whole[7 + (begins[column] if description["aligned"] else column * size)] ^= 1
    for member, (begin, end) in zip(entry["members"], pairwise(begins), strict=True):
        path = place / member
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(whole[begin:end])
    for each in parity:
        shutil.copy(VECTORS / each["file"], place)
    right = {"files": dict(zip(entry["members"], map(digest, files), strict=True))}
    return Case(name, entry["level"], "9", "damage mended", {"mend": str(place)}, None, right)


def _mended_in_part(parity: list[dict[str, Any]], scratch: Path) -> Iterator[Case]:
    """Yield questions about a group of aligned files with two parity files, damaged in other ways.

    What cannot be mended is as it was (LCC-PAR-07).
    """
    sound, stored = _read(parity)
    first, second, third = sound
    one, two = stored
    index = int.from_bytes(stored[one][24:32], "little")
    flipped = {name: data[:500] + bytes([data[500] ^ 1]) + data[501:] for name, data in sound.items()}
    other = dict(zip(sound, [*list(sound.values())[1:], b""], strict=True))[first]
    without = {name: data for name, data in sound.items() if name != third}
    head = {one: _flipped(stored[one], 40)}
    for what, files, damaged, right in (
        ("missing", without, {}, sound),
        ("short", {**sound, first: sound[first][:-600]}, {}, sound),
        ("long", {**sound, first: sound[first] + bytes(9)}, {}, sound),
        ("damaged-parity", without, {one: _flipped(stored[one], 64 + index + 5)}, sound),
        ("long-and-two", {**flipped, first: sound[first] + bytes(9)}, {}, sound),
        ("damaged-head", without, head, sound),
        ("second-heads", without, {name: _flipped(stored[name], -20) for name in stored}, sound),
        ("two-heads", without, {**head, two: _flipped(stored[two], 40)}, sound),
        ("head-and-parity", without, {**head, two: _flipped(stored[two], 64 + index + 5)}, sound),
        ("too-many", flipped, {}, flipped),
        ("another-root", {first: other, second: sound[second]}, {}, {first: other, second: sound[second]}),
        (
            "another-root-damaged",
            {**flipped, first: other, second: sound[second]},
            {},
            {**sound, first: other},
        ),
        ("nothing-lost", sound, {}, sound),
    ):
        name = f"{parity[0]['name'].partition('-')[0]}@{what}"
        yield _asked(name, files, {**stored, **damaged}, right, scratch)
    file = sound[first]
    broken = _flipped(file, 500)
    for what, data, root in (("unsound", broken, broken[-32:]), ("another-file", file, bytes(32))):
        name, made = _copied(first, data, root)
        yield _asked(f"mended-{what}", {}, {name: made}, {}, scratch)
    name, made = _copied(first, file, file[-32:])  # whose second block is damaged, and the file in the first
    second_block = 64 + int.from_bytes(made[24:32], "little") + 512
    yield _asked(
        "mended-other-row", {first: broken}, {name: _flipped(made, second_block)}, {first: file}, scratch
    )


def _mended_end_to_end(parity: list[dict[str, Any]], scratch: Path) -> Iterator[Case]:
    """Yield questions about files end to end of which the first has another length, or is missing.

    Those behind it begin where they did (LCC-PAR-03): so the last one is mended, too.
    """
    sound, stored = _read(parity)
    first, second, third = sound
    behind = {second: sound[second], third: _flipped(sound[third], 900)}
    for what, files in (
        ("long", {**behind, first: sound[first] + bytes(9)}),
        ("short", {**behind, first: sound[first][:-600]}),
        ("missing", {second: sound[second], third: sound[third]}),
    ):
        name = f"{parity[0]['name'].partition('-')[0]}@{what}"
        yield _asked(name, files, stored, sound, scratch)


def _read(parity: list[dict[str, Any]]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the files of a group, and its parity files, by their names."""
    pairs = zip(parity[0]["members"], parity[0]["files"], strict=True)
    sound = {name: (VECTORS / file).read_bytes() for name, file in pairs}
    return sound, {Path(each["file"]).name: (VECTORS / each["file"]).read_bytes() for each in parity}


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def _asked(
    name: str, files: dict[str, bytes], parity: dict[str, bytes], right: dict[str, bytes], scratch: Path
) -> Case:
    """Return the question about a directory of files and parity; `right` are the files then."""
    place = scratch / name
    place.mkdir()
    for own, data in {**files, **parity}.items():
        (place / own).write_bytes(data)
    answer = {"files": {own: digest(right[own]) for own in sorted(right)}}
    return Case(name, 4, "9", "damage mended", {"mend": str(place)}, None, answer)


def _copied(name: str, data: bytes, root: bytes) -> tuple[str, bytes]:
    """Return the name and bytes of a parity file of one file: its one parity block is the file."""
    blocks = [data[at : at + 512].ljust(512, b"\0") for at in range(0, len(data), 512)]
    text = base64.urlsafe_b64encode(root).decode().rstrip("=")
    described = {"block": 512, "rows": len(blocks), "parity": 1, "redundancy": 1, "aligned": True}
    description = json.dumps(
        {**described, "files": [[name, len(data), text]]}, separators=(",", ":")
    ).encode()
    index = description + b"".join(hashlib.sha256(block).digest()[:8] for block in blocks) * 2
    head = struct.pack("<8sHHIQQ", b"LCCPRTY\x1a", 1, 0, 0, len(description), len(index))
    head += hashlib.sha256(head + index).digest()
    whole = b"".join([head, index, *blocks, index, head])
    return f"{hashlib.sha256(description).hexdigest()[:16]}-00.lcc.par", whole


def _many_arrays(scratch: Path) -> Iterator[Case]:
    """Yield questions about a file with an array too many, and one with as many as there may be.

    An array takes two bytes of a manifest, which nothing packs: no file with so many is small.
    """
    for name, section, rule, arrays, right in (
        ("arrays", "11", "LCC-LIM-06", (1 << 20) + 1, _TOO_MANY),
        ("most-arrays", "5.1", "LCC-STA-02", 1 << 20, _MOST),
    ):
        path = scratch / f"large.{name}.lcc.h5"
        write_made(path, _file_of(arrays), right)
        yield Case(f"large.{name}", 1, section, rule, {"file": str(path)}, rule)


def write_made(path: Path, data: bytes, right: str) -> None:
    """Write a file that is made; raise `ValueError` if its SHA-256 is not the right one."""
    if digest(data) != right:
        raise ValueError(f"{path.name} is made with the digest {digest(data)}")
    path.write_bytes(data)


def _file_of(arrays: int) -> bytes:
    """Return a sound checkpoint whose list of arrays was replaced by one of so many."""
    sound = (VECTORS / "invalid" / "000000000001.lcc.h5").read_bytes()
    start, payload, place, length, _ = struct.unpack_from("<5Q", sound, len(sound) - 72)
    manifest = json.loads(sound[place : place + length])
    manifest["arrays"] = [1, 2] + [2] * (arrays - 2)
    text = json.dumps(manifest, ensure_ascii=False, separators=(",", ":")).encode()
    trailer = sound[place + length :][:16] + struct.pack(
        "<5Q", start, payload, place, len(text), place + len(text) + 88
    )
    root = hashlib.sha256(sound[:start] + text + trailer).digest()
    return sound[:place] + text + trailer + root


def digest(data: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal."""
    return hashlib.sha256(data).hexdigest()

"""Parity files with a broken head, description, hash or block (SPEC 9, "Parity").

They protect one file, so that parity block 0 is the block of that file. Nothing is computed.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from broken import Broken
from broken_checkpoints import SOUND, base64_of, text_of
from broken_values import VALUES, words

MAGIC = b"LCCPRTY\x1a"
BLOCK = 512
BLOCKS = [SOUND[i : i + BLOCK].ljust(BLOCK, b"\0") for i in range(0, len(SOUND), BLOCK)]
FILE = ["000000000001.lcc.h5", len(SOUND), base64_of(SOUND[-32:])]
SMALL_ROWS = -(-len(SOUND) // 256)
DESCRIPTION = {
    "block": BLOCK,
    "rows": len(BLOCKS),
    "parity": 1,
    "redundancy": 1,
    "aligned": True,
    "files": [FILE],
}


def parity_of(
    document: Any = DESCRIPTION,
    blocks: Sequence[bytes] = BLOCKS,
    hashes: bytes | None = None,
    end: bytes | None = None,
    **fields: int | bytes,
) -> bytes:
    """Return a parity file of this description; its digest is right.

    The description is a document, or bytes. `fields` replace those of the head, `end` the copy of
    the index at the end.
    """
    text = document if isinstance(document, bytes) else text_of(document)
    own = b"".join(hashlib.sha256(block).digest()[:8] for block in BLOCKS)
    index = text + (own * 2 if hashes is None else hashes)
    values = {"magic": MAGIC, "major": 1, "minor": 0, "column": 0}
    values |= {"description": len(text), "index": len(index)} | fields
    head = struct.pack("<8sHHIQQ", *values.values())
    head += hashlib.sha256(head + index).digest()
    return b"".join([head, index, *blocks, index if end is None else end, head])


def name_of(document: Any = DESCRIPTION, column: int = 0) -> str:
    """Return the name of a parity file (LCC-PAR-01)."""
    text = document if isinstance(document, bytes) else text_of(document)
    return f"{hashlib.sha256(text).hexdigest()[:16]}-{column:02d}.lcc.par"


WHOLE = parity_of()


def broken_parity() -> Iterator[tuple[Broken, str]]:
    """Yield every invalid parity file, and the name under which it is to be read."""
    yield from _names()
    yield from _heads()
    yield from _descriptions()
    yield from _files()
    yield from _blocks()


def _case(
    rule: str, case: str, why: str, data: bytes, error: str = "FormatError", named: str = ""
) -> tuple[Broken, str]:
    name = f"parity-{case}"
    broken = Broken(rule, name, error, why, data, sound=WHOLE, file=f"{rule}-{name}.lcc.par")
    return broken, named or name_of()


def _names() -> Iterator[tuple[Broken, str]]:
    rule = "LCC-PAR-01"
    yield _case(rule, "group", "the name has another group", WHOLE, named=f"{'0' * 16}-00.lcc.par")
    yield _case(rule, "column", "the name has another column", WHOLE, named=name_of(column=1))


def _heads() -> Iterator[tuple[Broken, str]]:
    rule, size = "LCC-PAR-02", len(WHOLE)
    yield _case(rule, "short", "the file has 127 bytes", WHOLE[:127], "TruncatedError")
    yield _case(rule, "31-bytes", "the file has 31 bytes", WHOLE[:31], "TruncatedError")
    yield _case(rule, "magic", "the last byte of the magic is 0x1b", parity_of(magic=MAGIC[:7] + b"\x1b"))
    yield _case(rule, "version", "the major version is 2", parity_of(major=2), "UnsupportedError")
    why = "the description is longer than the index"
    yield _case(rule, "description-length", why, parity_of(description=10_000))
    why = "the index is longer than the file"
    yield _case(rule, "index-length", why, parity_of(index=size), "TruncatedError")
    why = "a byte of the index is changed"
    yield _case(rule, "digest", why, WHOLE[:80] + b"\xff" + WHOLE[81:], "ChecksumError")
    yield _case(rule, "column", "it is of column 1 of 1", parity_of(column=1), named=name_of(column=1))
    yield _case(rule, "long", "there is a byte behind the end", WHOLE + b"\0")
    cut = WHOLE[:-64] + WHOLE[-63:]
    yield _case(rule, "cut", "a byte of the copy of the index is missing", cut)
    other = WHOLE[:-70] + bytes([WHOLE[-70] ^ 1]) + WHOLE[-69:]
    yield _case(rule, "copy", "the copy of the index is another", other, "ChecksumError")
    head = WHOLE[:-10] + bytes([WHOLE[-10] ^ 1]) + WHOLE[-9:]
    why = "the copy of the head is another, that of the index is right"
    yield _case(rule, "copy-of-the-head", why, head, "ChecksumError")
    why = "the index has 2^26 bytes, as many as there may be"
    yield _case(rule, "largest-index", why, parity_of(index=2**26), "TruncatedError")
    why = "the index has 2^26 + 1 bytes"
    yield _case("LCC-LIM-04", "index", why, parity_of(index=2**26 + 1), "LimitError")


def _descriptions() -> Iterator[tuple[Broken, str]]:
    def case(rule: str, name: str, why: str, document: Any, error: str = "FormatError") -> tuple[Broken, str]:
        return _case(rule, name, why, parity_of(document), error, name_of(document))

    def changed(**members: Any) -> dict[str, Any]:
        return {**DESCRIPTION, **members}

    empty = parity_of(b"", (), b"")
    yield _case("LCC-MAN-01", "empty", "there is nothing but two heads", empty, named=name_of(b""))
    spaced = text_of(DESCRIPTION).replace(b":", b": ", 1)
    yield case("LCC-MAN-01", "space", "the description has a space", spaced)
    nested = b"[" * 66 + b"]" * 66
    yield case("LCC-LIM-05", "description", "the description nests 66 deep", nested, "LimitError")
    digits = b'{"block":' + b"1" * 4097 + b"}"
    yield case("LCC-LIM-07", "description", "an integer has 4,097 digits", digits, "LimitError")
    rule = "LCC-PAR-03"
    yield case(rule, "list", "the description is a list", [512, 1])
    yield case(rule, "number", "the description is a number", 7)
    fewer = {key: value for key, value in DESCRIPTION.items() if key != "rows"}
    yield case(rule, "missing", "the description has no rows", fewer)
    why = "the description has a member that is not known"
    yield case(rule, "unknown", why, changed(code="xor"), "UnsupportedError")
    for name, why, members in (
        ("no-rows", "there are 0 rows", {"rows": 0}),
        ("fraction", "there is a fraction of a row", {"rows": 1.5}),
        ("boolean", "`parity` is a boolean", {"parity": True}),
        ("no-redundancy", "the redundancy is 0", {"redundancy": 0}),
        ("odd-block", "a block has 513 bytes", {"block": 513}),
        ("small-block", "a block has 256 bytes", {"block": 256}),
        ("small-block-alone", "a block has 256 bytes, and the rows fit", {"block": 256, "rows": SMALL_ROWS}),
        ("large-redundancy", "the redundancy is 2^53", {"redundancy": 2**53}),
        ("aligned", "`aligned` is a number", {"aligned": 1}),
        ("no-files", "there are no files", {"files": []}),
        ("more-rows", "there are more rows than blocks", {"rows": len(BLOCKS) + 1}),
        ("fewer-rows", "there are fewer rows than blocks", {"rows": len(BLOCKS) - 1}),
        ("rows-end-to-end", "end to end: more rows than blocks", {"rows": 9, "aligned": False}),
        (
            "one-row-more",
            "end to end: a row more than there are blocks",
            {"rows": len(BLOCKS) + 1, "aligned": False},
        ),
    ):
        yield case(rule, name, why, changed(**members))
    allowed = {"redundancy": ("number", "text"), "aligned": ("true",), "files": ("list",)}
    for member in DESCRIPTION:
        for name, value in VALUES.items():
            if name not in allowed.get(member, ("number",)) and (member, name) != ("parity", "true"):
                why = f"`{member}` is {words(name)}"
                yield case(rule, f"{member}-{name}", why, changed(**{member: value}))
    rule = "LCC-LIM-11"
    files = [[f"{step:012d}.lcc.h5", *FILE[1:]] for step in range(65)]
    for name, why, members in (
        ("files", "there are 65 files", {"files": files}),
        ("parity", "there are 65 parity columns", {"parity": 65}),
        ("block", "a block has 2^19 bytes", {"block": 2**19}),
        (
            "columns",
            "there are 129 data columns",
            {"aligned": False, "rows": 1, "files": [[FILE[0], 128 * BLOCK + 1, FILE[2]]]},
        ),
        (
            "most-columns",
            "there are 2^44 data columns",
            {"aligned": False, "rows": 1, "files": [[FILE[0], 2**53 - 1, FILE[2]]]},
        ),
    ):
        yield case(rule, name, why, changed(**members), "LimitError")


def _files() -> Iterator[tuple[Broken, str]]:
    name, length, root = FILE
    for case, why, entries in (
        ("two-items", "an entry has two items", [FILE[:2]]),
        ("four-items", "an entry has four items", [[*FILE, 0]]),
        ("path", "a name is a path", [["../" + name, length, root]]),
        ("other-folder", "a file lies in a folder of no rank", [["ranks-0/" + name, length, root]]),
        ("rank-digits", "the number of a rank begins with 0", [["rank-01/" + name, length, root]]),
        ("ten-digits", "the number of a rank has ten digits", [["rank-1234567890/" + name, length, root]]),
        ("rank-in-rank", "a rank lies in a rank", [["rank-0/rank-1/" + name, length, root]]),
        ("mixed", "one file is of a rank, the other is not", [FILE, ["rank-0/" + name, length, root]]),
        ("other-name", "a name is that of no file of a chain", [["model.lcc.h5", length, root]]),
        ("no-suffix", "a name has no suffix", [[name.removesuffix(".lcc.h5"), length, root]]),
        ("few-digits", "a name has 11 digits", [[name[1:], length, root]]),
        ("many-digits", "a name has 13 digits, the first of them 0", [["0" + name, length, root]]),
        ("large-step", "a name has the step 2^53", [[f"{2**53}.lcc.h5", length, root]]),
        ("no-bytes", "a file has no bytes", [[name, 0, root]]),
        ("short-root", "a root has 42 characters", [[name, length, root[:-1]]]),
        ("twice", "a file is named twice", [FILE, FILE]),
    ):
        document = {**DESCRIPTION, "files": entries}
        yield _case("LCC-PAR-03", case, why, parity_of(document), named=name_of(document))
    second = "000000000002.lcc.h5"
    for case, why, members in (
        ("second-no-bytes", "a second file has no bytes", {"files": [FILE, [second, 0, root]]}),
        ("second-negative", "a second file has -5 bytes", {"files": [FILE, [second, -5, root]]}),
        ("large-length", "a file has 2^53 bytes", {"rows": 2**44, "files": [[name, 2**53, root]]}),
    ):
        document = {**DESCRIPTION, **members}
        yield _case("LCC-PAR-03", case, why, parity_of(document), named=name_of(document))
    for kind, value in VALUES.items():
        entries = {"entry": value, **{what: [*FILE] for what in ("name", "length", "root")}}
        for place, what in enumerate(("name", "length", "root")):
            entries[what][place] = value
        for what, entry in entries.items():
            if (what, kind) not in (("name", "text"), ("length", "number"), ("root", "text")):
                document, why = {**DESCRIPTION, "files": [entry]}, f"the {what} of a file is {words(kind)}"
                data = parity_of(document)
                yield _case("LCC-PAR-03", f"{what}-{kind}", why, data, named=name_of(document))


def _blocks() -> Iterator[tuple[Broken, str]]:
    rule = "LCC-PAR-04"
    few = b"".join(hashlib.sha256(block).digest()[:8] for block in BLOCKS)
    name, _, root = FILE
    for case, why, members in (
        ("largest-block", "a block has 2^18 bytes, and no hash", {"block": 2**18, "rows": 1}),
        ("one-byte", "a file has one byte, and no hash", {"rows": 1, "files": [[name, 1, root]]}),
        (
            "largest-length",
            "a file has 2^53 - 1 bytes, and no hash",
            {"rows": 2**44, "files": [[name, 2**53 - 1, root]]},
        ),
    ):
        document = {**DESCRIPTION, **members}
        yield _case(rule, case, why, parity_of(document, hashes=b""), named=name_of(document))
    yield _case(rule, "few-hashes", "the parity blocks have no hashes", parity_of(hashes=few))
    yield _case(rule, "no-hashes", "there are no hashes", parity_of(hashes=b""))
    yield _case(rule, "many-hashes", "there is a hash too many", parity_of(hashes=few * 2 + few[:8]))
    other = [*BLOCKS[:-1], bytes([BLOCKS[-1][0] ^ 1]) + BLOCKS[-1][1:]]
    yield _case(rule, "block", "a byte of a block is changed", parity_of(blocks=other), "ChecksumError")

"""The text of a seal is read back as it was written; none leads out, and damage is noticed."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ArgumentError, ChecksumError, DataError, FormatError, LimitError, UnsupportedError
from lccodec.adapters import seals
from lccodec.adapters.seals import Entry, Listing, SealedPart, format_listing

HEX = "0123456789abcdef" * 4
ZERO = "0" * 64

COMPONENTS = st.text(
    st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=9
).filter(lambda text: text not in (".", ".."))
NAMES = st.lists(COMPONENTS, min_size=1, max_size=3).map("/".join)
DIGESTS = st.sampled_from([HEX, ZERO])


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    places = sorted(draw(st.sets(st.integers(0, 10**14), max_size=6)))
    pairs = list(zip(places[::2], places[1::2], strict=False))
    return Entry(
        draw(DIGESTS),
        tuple(SealedPart(draw(st.text(max_size=5)), start, end, draw(DIGESTS)) for start, end in pairs),
    )


LISTINGS = st.dictionaries(NAMES, entries(), min_size=1, max_size=4)


@given(LISTINGS)
def test_what_is_written_is_read_back(files: dict[str, Entry]) -> None:
    text = format_listing(files)
    assert dict(Listing(text, "x")) == files
    assert format_listing(dict(reversed(files.items()))) == text


@given(LISTINGS, st.data())
def test_a_damaged_seal_is_noticed(files: dict[str, Entry], data: st.DataObject) -> None:
    """Where the first line no longer says what it is, the rest is read as sha256sum's."""
    text = bytearray(format_listing(files))
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] ^= data.draw(st.integers(1, 255))
    try:
        found = Listing(bytes(text), "x")
    except DataError:
        return
    assert place < len("# lccodec seal ")
    assert dict(found) == files


@given(LISTINGS, st.data())
def test_a_seal_that_is_cut_off_is_noticed(files: dict[str, Entry], data: st.DataObject) -> None:
    text = format_listing(files)
    with pytest.raises(DataError):
        Listing(text[: data.draw(st.integers(len("# lccodec seal 1"), len(text) - 1))], "x")


def test_the_text_is_that_of_the_page() -> None:
    text = format_listing({"b\\\n": Entry(HEX), "a": Entry(ZERO, (SealedPart('w"é', 8, 12, HEX),))})
    lines = text.decode().splitlines()
    assert lines[:-1] == [
        "# lccodec seal 1",
        f"{ZERO}  a",
        f'# tensor {HEX} 8 12 "w\\"\\u00e9"',
        f"\\{HEX}  b\\\\\\n",
    ]
    assert lines[-1].startswith("# end ")


def test_a_text_of_sha256sum_is_read() -> None:
    text = f"{HEX}  a b\n{ZERO} *./sub/c\n# a comment\n\\{HEX}  x\\\\n\\n\\r".encode()
    found = Listing(text, "x")
    assert {name: entry.digest for name, entry in found.items()} == {
        "a b": HEX,
        "sub/c": ZERO,
        "x\\n\n\r": HEX,
    }


@pytest.mark.parametrize(
    "name",
    ["/a", "..", "../a", "a/../b", "a/..", ".", "a/./b", "a//b", "a/", "././a", ".//a", "a\0b", ""],
)
def test_a_name_that_is_no_path_below_is_refused(name: str) -> None:
    with pytest.raises(FormatError, match="line 2: "):
        Listing(f"{HEX}  ok\n{HEX}  {name}\n".encode(), "x")


@pytest.mark.parametrize(
    "line",
    [
        "",
        HEX,
        f"{HEX} a",
        f"{HEX[:-1]}  a",
        f"{HEX.upper()}  a",
        f" {HEX}  a",
        f"\\{HEX}  a\\b",
        f"\\{HEX}  a\\",
        f"SHA256 (a) = {HEX}",
        f"{HEX}  ok",
        f"{HEX}  ./ok",
    ],
)
def test_a_line_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(FormatError, match="x: line 2: "):
        Listing(f"{HEX}  ok\n{line}\n".encode(), "x")


@pytest.mark.parametrize(
    "lines",
    [
        [f'# tensor {HEX} 0 0 "w"'],
        [f'# tensor {HEX} 2 1 "w"'],
        [f'# tensor {HEX} 0 2 "w"', f'# tensor {HEX} 1 3 "v"'],
        [f'# tensor {HEX} 0 1234567890123456 "w"'],
        [f"# tensor {HEX} 0 1 w"],
        [f'# tensor {HEX} 0 1 "\\x"'],
        [f'# tensor {HEX[1:]} 0 1 "w"'],
        ["# tensor "],
    ],
)
def test_a_tensor_that_cannot_be_is_refused(lines: list[str]) -> None:
    found = Listing("\n".join([f"{HEX}  other", f"{HEX}  a", *lines, ""]).encode(), "x")
    assert found["other"] == Entry(HEX)
    with pytest.raises(FormatError, match="'a'"):
        found["a"]


def test_a_newer_version_is_refused_as_that() -> None:
    with pytest.raises(UnsupportedError, match="version 2"):
        Listing(b"# lccodec seal 2\nwhatever", "x")
    for word in ("", "1.", "one"):
        with pytest.raises(ChecksumError):
            Listing(f"# lccodec seal {word}\n".encode(), "x")


def repeated(line: bytes, count: int) -> bytes:
    """A line with a number in it, so many times."""
    return b"".join(line % number for number in range(count))


_DIGEST = HEX.encode()
#: As many lines as a text of some size has; made when they are asked for.
HOSTILE: dict[str, Callable[[int], bytes]] = {
    "files": lambda size: repeated(_DIGEST + b"  %07x\n", size // 74),
    "tensors": lambda size: (
        _DIGEST
        + b"  a\n"
        + b"".join(b'# tensor %s %d %d ""\n' % (_DIGEST, i, i + 1) for i in range(size // 97))
    ),
    "comments": lambda size: b"#\n" * (size // 64 - 1),
    "folders": lambda size: repeated(_DIGEST + b"  " + b"a/" * 8000 + b"%d\n", size // 16700),
    "escapes": lambda size: repeated(b"\\" + _DIGEST + b"  " + b"\\n" * 8000 + b"%d\n", size // 16700),
    "backslashes": lambda size: repeated(b"\\" + _DIGEST + b"  " + b"\\" * 16000 + b"%d\n", size // 16700),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_seal_takes_bounded_time_and_memory(kind: str) -> None:
    text = HOSTILE[kind](seals.MAX_BYTES)
    assert len(text) <= seals.MAX_BYTES
    start = time.process_time()
    found = Listing(text, "x")
    assert all(entry.digest == HEX for entry in found.values())
    assert time.process_time() - start < 10  # a second or less; the machine may be busy
    assert len(found) in (0, 1, 1004, seals.MAX_BYTES // 74)
    part = HOSTILE[kind](seals.MAX_BYTES // 16)  # to look at each piece of memory takes long
    tracemalloc.start()
    Listing(part, "x")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 512 << 20 >> 4


@pytest.mark.parametrize(
    "text",
    [
        b"#" * (seals.MAX_BYTES + 1),
        b"\n" * (seals.MAX_LINES + 1),
        b"#" * (seals.MAX_LINE_BYTES + 1),
        f"{HEX}  {'a' * seals.MAX_LINE_BYTES}".encode(),
    ],
)
def test_more_than_a_seal_may_have_is_refused(text: bytes) -> None:
    with pytest.raises(LimitError):
        Listing(text, "x")


def test_lines_of_tensors_are_left_out_before_files_are(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {str(i): Entry(HEX, (SealedPart("w", 0, 1, HEX),)) for i in range(9)}
    monkeypatch.setattr(seals, "MAX_LINES", 15)
    assert dict(Listing(format_listing(files), "x")) == {name: Entry(HEX) for name in files}
    monkeypatch.setattr(seals, "MAX_LINES", 9)
    with pytest.raises(ArgumentError, match="too many for one seal"):
        format_listing(files)


def test_a_name_that_is_too_long_for_a_line() -> None:
    long = "a" * seals.MAX_LINE_BYTES
    found = Listing(
        format_listing({"a": Entry(HEX, (SealedPart(long, 0, 1, HEX), SealedPart("b", 1, 2, HEX)))}), "x"
    )
    assert found["a"].parts == (SealedPart("b", 1, 2, HEX),)
    with pytest.raises(ArgumentError, match="too long"):
        format_listing({long: Entry(HEX)})

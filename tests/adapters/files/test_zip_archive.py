"""An archive is read if all that it says twice agrees, and if it can hold what it declares."""

import io
import zipfile
import zlib

import pytest

from lccodec.adapters.files.zip_archive import member_names, read_members
from lccodec.errors import FormatError, LimitError, UnsupportedError

from ...support.zips import DEFLATED, SIZES_BEHIND, UTF8, Part, archive, deflated, wide

HUGE = 0xFFFFFFFF
TEXT = b"text" * 100


@pytest.fixture
def stored(tmp_path):
    """Return a function that writes an archive and opens it."""
    path, files = tmp_path / "a.zip", []

    def write(data):
        path.write_bytes(data)
        files.append(path.open("rb"))
        return files[-1]

    yield write
    for file in files:
        file.close()


def contents(file):
    members = read_members(file, "rule", "place")
    return {member.name: b"".join(member.read(file, "rule", "place")) for member in members}


class Unseekable(io.RawIOBase):
    """A stream that can only be written on: an archive in it has its sizes behind the members."""

    def __init__(self):
        self.data = b""

    def writable(self):
        return True

    def write(self, data):
        self.data += bytes(data)
        return len(data)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("wide_sizes", [False, True])
def test_what_zipfile_writes_is_read(stored, method, streamed, wide_sizes):
    # Sizes about those of the pieces that are read.
    sizes = [0, 1, 65_535, 65_536, 65_537, 131_072, 200_000]
    members = {f"dir/{size}.ü": b"abcd" * (size // 4) + b"x" * (size % 4) for size in sizes}
    target = Unseekable() if streamed else io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as file:
        for name, data in members.items():
            with file.open(name, "w", force_zip64=wide_sizes) as member:
                member.write(data)
    file = stored(target.data if streamed else target.getvalue())
    assert contents(file) == members
    assert member_names(file) == list(members)


@pytest.mark.parametrize("end", [{}, {"count": 0xFFFF}, {"start": HUGE, "nbytes": HUGE}])
def test_an_end_record_of_64_bits(stored, end):
    assert contents(stored(archive(Part("a", TEXT), end=end, end_64={}))) == {"a": TEXT}


def test_bytes_before_an_archive_are_refused(stored, tmp_path):
    (tmp_path / "b.zip").write_bytes(b"x" * 100)
    with zipfile.ZipFile(tmp_path / "b.zip", "a") as file:  # which counts places from the first byte
        file.writestr("a", TEXT)
    with pytest.raises(FormatError, match="does not begin with a member"):
        contents(stored((tmp_path / "b.zip").read_bytes()))


def test_members_in_another_order_than_the_directory(stored):
    first, second = archive(Part("a", b"1")), archive(Part("a", b"1"), Part("b", b"22"))
    assert contents(stored(first)) == {"a": b"1"}
    assert contents(stored(second)) == {"a": b"1", "b": b"22"}
    swapped = archive(
        Part(
            "a", b"1", central={"header": 32, "name": b"b", "size": 2, "stored": 2, "crc": zlib.crc32(b"22")}
        ),
        Part(
            "b", b"22", central={"header": 0, "name": b"a", "size": 1, "stored": 1, "crc": zlib.crc32(b"1")}
        ),
    )
    assert list(contents(stored(swapped)).items()) == [("b", b"22"), ("a", b"1")]


LIES = {
    "no archive": (b"hello" * 10, FormatError, "does not end as a zip archive"),
    "nothing": (b"", FormatError, "too few bytes"),
    "cut off": (archive(Part("a", TEXT))[:-1], FormatError, "cut off"),
    "bytes behind": (archive(Part("a", TEXT), after=b"x"), FormatError, "bytes follow"),
    "a comment": (
        archive(Part("a", TEXT), end={"comment": 1}, after=b"x"),
        FormatError,
        "bytes follow",
    ),
    "bytes before": (
        archive(Part("a", TEXT), before=b"x", end={"start": 431}),
        FormatError,
        "directory is not where",
    ),
    "bytes before that count": (
        archive(Part("a", TEXT), before=b"x" * 100),
        FormatError,
        "does not begin with a member",
    ),
    "nothing but bytes before": (archive(before=b"x"), FormatError, "does not begin with a member"),
    "a gap": (
        archive(Part("a", TEXT, behind=b"x"), Part("b", b"")),
        FormatError,
        "'a': 1 bytes of no member",
    ),
    "a gap before the directory": (archive(Part("a", TEXT, behind=b"x")), FormatError, "bytes of no member"),
    "more than the sizes behind": (
        archive(Part("a", TEXT, central={"flags": UTF8 | SIZES_BEHIND}, behind=b"x" * 25)),
        FormatError,
        "25 bytes of no member",
    ),
    "a member of no entry": (
        archive(Part("a", TEXT), before=archive(Part("a", b"other"))[:36]),
        FormatError,
        "does not begin with a member",
    ),
    "parts": (archive(Part("a", TEXT), end={"part": 1}), FormatError, "several parts"),
    "a part": (archive(Part("a", TEXT, central={"disk": 2})), FormatError, "several parts"),
    "count": (archive(Part("a", TEXT), end={"count": 2}), FormatError, "1 entries, and says 2"),
    "place of the end": (archive(end_64={"place": 1}), FormatError, "64 bits is not where"),
    "size of the end": (archive(end_64={"size": 45}), FormatError, "64 bits is not where"),
    "other count": (archive(end_64={"count": 1}), FormatError, "two end records differ"),
    "other start": (archive(end_64={"start": 1}), FormatError, "two end records differ"),
    "wide start": (
        archive(end={"start": HUGE}, end_64={"start": 1}),
        FormatError,
        "directory is not where",
    ),
    "entry": (
        archive(Part("a", TEXT, central={"signature": b"PK\3\4"})),
        FormatError,
        "entry of its directory",
    ),
    "twice": (archive(Part("a", b""), Part("a", b"")), FormatError, "'a': occurs twice"),
    "null": (archive(Part("a\0b", b"")), FormatError, "null character"),
    "parent": (archive(Part("a/../../b", b"")), FormatError, "leads out of the archive"),
    "parent of Windows": (archive(Part("..\\b", b"")), FormatError, "leads out of the archive"),
    "absolute": (archive(Part("/b", b"")), FormatError, "leads out of the archive"),
    "no Unicode": (archive(Part(b"\xff", b"", central={"flags": UTF8})), FormatError, "not Unicode"),
    "one header": (
        archive(Part("a", TEXT), Part("b", b"", central={"header": 0})),
        FormatError,
        "two of its members have one header",
    ),
    "no header": (archive(Part("a", TEXT, central={"header": 5})), FormatError, "has no header"),
    "outside": (archive(Part("a", TEXT, central={"header": 10**6})), FormatError, "lies outside"),
    "far outside": (
        archive(Part("a", TEXT, central={"header": HUGE, "extra": wide(2**63)})),
        FormatError,
        "lies outside",
    ),
    "over the next": (
        archive(
            Part("a", TEXT, local={"size": 405, "stored": 405}, central={"size": 405, "stored": 405}),
            Part("b", b""),
        ),
        FormatError,
        "'a': lies over what follows",
    ),
    "over the directory": (
        archive(Part("a", TEXT, local={"size": 410, "stored": 410}, central={"size": 410, "stored": 410})),
        FormatError,
        "'a': lies over what follows",
    ),
    "other name": (archive(Part("a", TEXT, local={"name": b"b"})), FormatError, "says other things"),
    "other method": (archive(Part("a", TEXT, local={"method": 8})), FormatError, "says other things"),
    "other size": (archive(Part("a", TEXT, local={"size": 1})), FormatError, "says other things"),
    "other checksum": (archive(Part("a", TEXT, local={"crc": 1})), FormatError, "says other things"),
    "sizes behind, and others": (
        archive(Part("a", TEXT, local={"flags": UTF8 | SIZES_BEHIND, "size": 1})),
        FormatError,
        "says other things",
    ),
    "encrypted": (archive(Part("a", TEXT, central={"flags": 1})), UnsupportedError, "is encrypted"),
    "encrypted here": (archive(Part("a", TEXT, local={"flags": 1})), FormatError, "says other things"),
    "bzip2": (archive(Part("a", TEXT, method=12)), UnsupportedError, "packed by method 12"),
    "two sizes": (
        archive(Part("a", TEXT, local={"size": 9}, central={"size": 9})),
        FormatError,
        "declares two sizes",
    ),
    "no wide size": (archive(Part("a", TEXT, central={"size": HUGE})), FormatError, "64 bits is missing"),
    "cut wide size": (
        archive(Part("a", TEXT, central={"size": HUGE, "extra": wide(400)[:-1]})),
        FormatError,
        "64 bits is missing",
    ),
    "wide size": (
        archive(
            Part(
                "a",
                TEXT,
                method=DEFLATED,
                local={"size": HUGE, "stored": HUGE, "extra": wide(10**12, len(deflated(TEXT)))},
                central={"size": HUGE, "extra": wide(10**12)},
            )
        ),
        LimitError,
        r"declares 1,000,000,000,000 bytes",
    ),
}
BROKEN = {
    "checksum": (archive(Part("a", TEXT, local={"crc": 1}, central={"crc": 1})), "checksum"),
    "more": (
        archive(Part("a", TEXT[:50], DEFLATED, packed=deflated(TEXT))),
        "more bytes than it declares",
    ),
    "less": (
        archive(Part("a", TEXT, DEFLATED, packed=deflated(TEXT[:50]))),
        "350 bytes less than it declares",
    ),
    "damaged": (archive(Part("a", TEXT, DEFLATED, packed=b"\xff" * 20)), "is damaged"),
    "no end": (
        archive(Part("a", b"x" * 400, DEFLATED, packed=deflated(b"x" * 400)[:-1])),
        "does not end|less than",
    ),
    "behind": (archive(Part("a", TEXT, DEFLATED, packed=deflated(TEXT) + b"x")), "behind the end"),
    "far behind": (
        archive(Part("a", TEXT, DEFLATED, packed=deflated(TEXT).ljust(70_000))),
        "behind the end",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_archive_that_says_two_things_is_refused(stored, lie):
    data, kind, message = LIES[lie]
    with pytest.raises(kind, match=message) as caught:
        read_members(stored(data), "rule", "place")
    assert caught.value.rule == "rule"
    assert caught.value.where.startswith("place")


@pytest.mark.parametrize("fault", BROKEN)
def test_a_member_that_is_not_what_it_declares_is_refused(stored, fault):
    data, message = BROKEN[fault]
    with pytest.raises(FormatError, match=message):
        contents(stored(data))


def test_no_change_of_a_byte_shows_other_members_than_zipfile_does(stored):
    """What another reader takes for the archive is what was checked."""
    plain = archive(Part("a", TEXT), Part("b", TEXT, DEFLATED), Part("c", b""))
    read = 0
    for place in range(len(plain)):
        data = bytearray(plain)
        data[place] ^= 0x21
        try:
            found = contents(stored(bytes(data)))
        except (FormatError, LimitError, UnsupportedError):
            continue
        read += 1
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            assert found == {name: file.read(name) for name in file.namelist()}
    assert read  # dates and versions are not checked

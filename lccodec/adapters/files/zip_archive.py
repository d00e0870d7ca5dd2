"""The members of a zip archive, all checked before a byte of them is read.

An archive says everything twice: its central directory lists the members, and each has a header
of its own. Readers that believe one of the two can be made to inflate the same bytes thousands of
times (members that lie over each other), to take memory for sizes that nothing backs, or to see
other members than the next reader. Here both must agree, members must lie apart, a declared size
must be one that the stored bytes can inflate to, and nothing but the archive may be in the file.

Source: APPNOTE 6.3.10 of PKWARE.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import BinaryIO, Final

from ...errors import DataError, FormatError, LimitError, UnsupportedError

_LOCAL: Final = struct.Struct("<4s5H3L2H")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_END: Final = struct.Struct("<4s4H2LH")
_LOCATOR: Final = struct.Struct("<4sLQL")
_END_64: Final = struct.Struct("<4sQ2H2L4Q")
_EXTRA: Final = struct.Struct("<2H")
_LOCAL_SIGNATURE: Final = b"PK\x03\x04"
_CENTRAL_SIGNATURE: Final = b"PK\x01\x02"
_END_SIGNATURE: Final = b"PK\x05\x06"
_LOCATOR_SIGNATURE: Final = b"PK\x06\x07"
_END_64_SIGNATURE: Final = b"PK\x06\x06"
_SIZES_EXTRA: Final = 1  # the extra field with sizes of 64 bits
_IN_EXTRA: Final = 0xFFFFFFFF  # a field of 32 bits: the extra field has the number
_IN_END_64: Final = 0xFFFF  # the same, of 16 bits

_ENCRYPTED: Final = 1 << 0 | 1 << 6 | 1 << 13
_SIZES_BEHIND: Final = 1 << 3  # the sizes were not known when the member's header was written
_UTF8: Final = 1 << 11
_MAX_DESCRIPTOR_BYTES: Final = 24  # the sizes behind a member; a header needs more

_STORED: Final = 0
_DEFLATED: Final = 8
#: Two bits of a deflate stream stand for 258 bytes at the most.
_MAX_INFLATION: Final = 258 * 8 // 2
_PIECE_BYTES: Final = 1 << 16  # read from the file at a time

#: Most decoded bytes for each byte of a file of another format. Deflate alone reaches 1,032.
MAX_FILE_EXPANSION: Final = 1 << 12


@dataclass(frozen=True)
class Member:
    """A member of an archive, as the central directory has it."""

    name: str
    raw: bytes  # the bytes of the name
    flags: int
    method: int
    crc: int
    size: int  # before it was packed
    stored: int  # bytes in the file
    header: int  # where its own header begins
    start: int = 0  # where its bytes begin, which the header says

    @property
    def packed(self) -> bool:
        """Whether it is deflated; otherwise it is stored as it is."""
        return self.method == _DEFLATED

    def read(self, file: BinaryIO, rule: str, where: str) -> Iterator[bytes]:
        """Yield its bytes in pieces of at most 64 KiB; raise ``FormatError`` if they are others."""
        left, crc = self.size, 0
        pieces = self._pieces(file, rule, where)
        for piece in _inflated(pieces, rule, where) if self.packed else pieces:
            left -= len(piece)
            if left < 0:
                raise FormatError(rule, where, "has more bytes than it declares")
            crc = zlib.crc32(piece, crc)
            yield piece
        if left:
            raise FormatError(rule, where, f"has {left:,} bytes less than it declares")
        if crc != self.crc:
            raise FormatError(rule, where, "does not match its checksum")

    def _pieces(self, file: BinaryIO, rule: str, where: str) -> Iterator[bytes]:
        end = self.start + self.stored
        for place in range(self.start, end, _PIECE_BYTES):
            file.seek(place)  # whoever takes the pieces may read the file too
            count = min(_PIECE_BYTES, end - place)
            if len(piece := file.read(count)) < count:
                raise FormatError(rule, where, "the file ends")
            yield piece


def _inflated(pieces: Iterator[bytes], rule: str, where: str) -> Iterator[bytes]:
    """Inflate pieces; none that is yielded is longer than 64 KiB."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    for packed in pieces:
        waiting, full = packed, True
        while waiting or full:
            if inflater.eof:
                break
            try:
                piece = inflater.decompress(waiting, _PIECE_BYTES)
            except zlib.error as error:
                raise FormatError(rule, where, f"is damaged: {error}") from error
            waiting, full = inflater.unconsumed_tail, len(piece) == _PIECE_BYTES
            yield piece
        if waiting or inflater.unused_data:
            raise FormatError(rule, where, "has bytes behind the end of its stream")
    if not inflater.eof:
        raise FormatError(rule, where, "its stream does not end")


def member_names(file: BinaryIO) -> list[str]:
    """Return the names in the central directory; members are not checked."""
    return [entry.name for entry in _Archive(file, "zip", "archive").entries()[1]]


def read_members(file: BinaryIO, rule: str, where: str) -> list[Member]:
    """Return the members of an archive in the order of its directory.

    The file has nothing but the archive: a ``FormatError`` says that a header differs from the
    directory, that members lie over each other or have the same name, or that bytes belong to none.
    A ``LimitError`` says that a member declares more bytes than its stored ones can inflate to: so
    all together have at most 1,032 times the bytes of the file. What is encrypted, or packed by
    another method than deflate, is an ``UnsupportedError``. `rule` and `where` are for the errors.
    """
    return _Archive(file, rule, where).members()


class _Archive:
    """An archive in a file, and what an error about it says."""

    def __init__(self, file: BinaryIO, rule: str, where: str) -> None:
        self._file = file
        self._rule = rule
        self._where = where
        self._size = os.fstat(file.fileno()).st_size

    def members(self) -> list[Member]:
        """Return the checked members."""
        start, entries = self.entries()
        ends = dict.fromkeys(sorted(entry.header for entry in entries), start)
        if len(ends) < len(entries):
            raise self._error("two of its members have one header")
        for place, following in pairwise(list(ends)):
            ends[place] = following
        seen: set[str] = set()
        members = []
        for entry in entries:
            if entry.name in seen:
                raise self._error("occurs twice", entry.name)
            seen.add(entry.name)
            self._check(entry)
            place = self._data_place(entry, start)
            gap = ends[entry.header] - place - entry.stored
            if gap < 0:
                raise self._error("lies over what follows it", entry.name)
            if gap > (_MAX_DESCRIPTOR_BYTES if entry.flags & _SIZES_BEHIND else 0):
                raise self._error(f"{gap:,} bytes of no member follow it", entry.name)
            members.append(replace(entry, start=place))
        if next(iter(ends), start):
            raise self._error("it does not begin with a member")
        return members

    def entries(self) -> tuple[int, list[Member]]:
        """Return where the central directory begins, and its entries, which are not checked."""
        start, end, count = self._directory()
        data = self._read(start, end - start)
        entries: list[Member] = []
        at = 0
        while at < len(data):
            if len(data) - at < _CENTRAL.size or not data.startswith(_CENTRAL_SIGNATURE, at):
                raise self._error("an entry of its directory is damaged")
            fields = _CENTRAL.unpack_from(data, at)
            flags, method, crc, stored, size = *fields[3:5], *fields[7:10]
            lengths, disk, header = fields[10:13], fields[13], fields[16]
            name, extra = at + _CENTRAL.size, at + _CENTRAL.size + lengths[0]
            comment = extra + lengths[1]
            at = comment + lengths[2]
            if at > len(data):
                raise self._error("an entry of its directory is damaged")
            raw = data[name:extra]
            size, stored, header = self._wide(data[extra:comment], (size, stored, header))
            if disk not in (0, _IN_END_64):
                raise self._error("the archive has several parts")
            entries.append(Member(self._name(raw, flags), raw, flags, method, crc, size, stored, header))
        if len(entries) != count:
            raise self._error(f"its directory has {len(entries)} entries, and says {count}")
        return start, entries

    def _directory(self) -> tuple[int, int, int]:
        """Return where the central directory begins and ends, and its number of entries."""
        end = self._size - _END.size
        if end < 0:
            raise self._error("too few bytes for a zip archive")
        signature, *numbers, comment = _END.unpack(self._read(end, _END.size))
        if signature != _END_SIGNATURE or comment:
            raise self._error("does not end as a zip archive does: it is cut off, or bytes follow")
        located = end - _LOCATOR.size
        if located >= _END_64.size:
            signature, *location = _LOCATOR.unpack(self._read(located, _LOCATOR.size))
            if signature == _LOCATOR_SIGNATURE:
                end = located - _END_64.size
                signature, size, _, _, *wide = _END_64.unpack(self._read(end, _END_64.size))
                if location != [0, end, 1] or (signature, size) != (_END_64_SIGNATURE, _END_64.size - 12):
                    raise self._error("its end record of 64 bits is not where it must be")
                if any(n not in (w, _IN_END_64, _IN_EXTRA) for n, w in zip(numbers, wide, strict=True)):
                    raise self._error("its two end records differ")
                numbers = wide
        part, first, here, count, nbytes, start = numbers
        if part or first or here != count:
            raise self._error("the archive has several parts")
        if start + nbytes != end:
            raise self._error("its directory is not where it must be")
        return int(start), int(end), int(count)

    def _check(self, entry: Member) -> None:
        """Refuse a member that could not be read, or that declares more than it can hold."""
        if entry.flags & _ENCRYPTED:
            raise self._error("is encrypted", entry.name, UnsupportedError)
        if entry.method not in (_STORED, _DEFLATED):
            message = f"is packed by method {entry.method}; only deflate is read"
            raise self._error(message, entry.name, UnsupportedError)
        if entry.method == _STORED and entry.stored != entry.size:
            raise self._error("is not packed, and declares two sizes", entry.name)
        if entry.size > _MAX_INFLATION * entry.stored:
            message = f"declares {entry.size:,} bytes; its {entry.stored:,} cannot hold them"
            raise self._error(message, entry.name, LimitError)

    def _data_place(self, entry: Member, end: int) -> int:
        """Return where the bytes of a member begin, behind its header, which must agree."""
        behind = entry.header + _LOCAL.size
        if behind > end:
            raise self._error("lies outside of the archive", entry.name)
        signature, _, flags, method, _, _, crc, stored, size, *lengths = _LOCAL.unpack(
            self._read(entry.header, _LOCAL.size)
        )
        place: int = behind + sum(lengths)
        if signature != _LOCAL_SIGNATURE or place > end:
            raise self._error("has no header where the directory says", entry.name)
        texts = self._read(behind, sum(lengths))
        size, stored = self._wide(texts[lengths[0] :], (size, stored))
        said = texts[: lengths[0]], flags & _ENCRYPTED, method, crc, stored, size
        known = entry.raw, entry.flags & _ENCRYPTED, entry.method, entry.crc, entry.stored, entry.size
        if said != known and not (flags & _SIZES_BEHIND and said == (*known[:3], 0, 0, 0)):
            raise self._error("has a header that says other things than the directory", entry.name)
        return place

    def _wide(self, extra: bytes, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """Return numbers of 32 bits; those that did not fit stand in the extra field, in order."""
        if _IN_EXTRA not in numbers:
            return numbers
        at = 0
        while at + _EXTRA.size <= len(extra):
            kind, length = _EXTRA.unpack_from(extra, at)
            at += _EXTRA.size
            if kind == _SIZES_EXTRA and at + length <= len(extra):
                words = iter(struct.unpack_from(f"<{length // 8}Q", extra, at))
                wide = tuple(next(words, _IN_EXTRA) if n == _IN_EXTRA else n for n in numbers)
                if _IN_EXTRA not in wide:
                    return wide
            at += length
        raise self._error("a size of 64 bits is missing")

    def _name(self, raw: bytes, flags: int) -> str:
        try:
            name = raw.decode("utf-8" if flags & _UTF8 else "cp437")
        except UnicodeDecodeError:
            raise self._error(f"the name {raw!r} is not Unicode") from None
        if "\0" in name:
            raise self._error("its name has a null character", name)
        if ".." in name.replace("\\", "/").split("/") or name.startswith("/"):
            raise self._error("its name leads out of the archive", name)
        return name

    def _read(self, start: int, count: int) -> bytes:
        self._file.seek(start)
        data = self._file.read(count)
        if len(data) < count:
            raise self._error("the file ends")
        return data

    def _error(self, message: str, name: str | None = None, kind: type[DataError] = FormatError) -> DataError:
        where = self._where if name is None else f"{self._where}: member {name!r}"
        return kind(self._rule, where, message)

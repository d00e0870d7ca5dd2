"""Copies: arrays that are another array of the same checkpoint, as it is or rounded (SPEC 8).

Mixed precision has each weight twice: as float32, which the optimizer changes, and rounded to
bfloat16 or float16, which the model computes with. Target networks and averages of the weights
begin as equal arrays. The second array has no bytes in the payload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..constants import EQUAL_COPY
from ..element_table import ELEMENT_TYPES, ElementType
from ..errors import FormatError, UnsupportedError
from .scalars import Json

#: The types that copies are rounded to, and that of their sources (LCC-CPY-01, LCC-CPY-02).
COPY_TYPES: Final = {kind.code: kind for kind in ELEMENT_TYPES if kind.name in ("float16", "bfloat16")}
SOURCE_TYPE: Final = next(kind for kind in ELEMENT_TYPES if kind.name == "float32")


@dataclass(frozen=True)
class Copy:
    """What an array is a copy of: the index of the other array, and the type it is rounded to.

    `kind` is ``None`` for an equal copy: it has the source's type and bits.
    """

    source: int
    kind: ElementType | None

    def to_json(self) -> Json:
        """Return the copy as a manifest has it."""
        return [self.source, EQUAL_COPY if self.kind is None else self.kind.code]


def parse_copies(document: Mapping[str, Json], arrays: Sequence[int | None], where: str) -> tuple[Copy, ...]:
    """Read the copies of a manifest; `arrays` has the numbers of its frames.

    Raises
    ------
    FormatError
        If they have another form, or are not as many as the arrays without a number; if a source is
        not there, is a copy itself, or has more copies than it may (LCC-CPY-01).
    UnsupportedError
        For a code of a type that copies are not rounded to (LCC-CPY-01).
    """
    expected = arrays.count(None)
    entries = document.get("copies", [])
    if type(entries) is not list or len(entries) != expected or ("copies" in document and not entries):
        raise FormatError("LCC-CPY-01", where, f"not the sources of {expected} copies")
    copies: list[Copy] = []
    found: set[tuple[int, bool]] = set()
    for number, entry in enumerate(entries):
        place = f"{where}: {number}"
        if type(entry) is not list or len(entry) != 2 or not all(type(item) is int for item in entry):
            raise FormatError("LCC-CPY-01", place, "not the index of an array and an element type")
        source, code = entry
        if code != EQUAL_COPY and code not in COPY_TYPES:
            raise UnsupportedError("LCC-CPY-01", place, f"copies of the element type {code} are not known")
        kind = source, code == EQUAL_COPY
        if not 0 <= source < len(arrays) or arrays[source] is None or kind in found:
            raise FormatError("LCC-CPY-01", place, f"{source} is no array, a copy, or copied already")
        found.add(kind)
        copies.append(Copy(source, COPY_TYPES.get(code)))
    return tuple(copies)

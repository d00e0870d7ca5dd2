"""Invalid vectors: files that break one rule of the specification each, and their entries.

Everything but the fault is sound: CRC-32, array sum, lengths, digests and root are those of the
bytes as they are, unless one of them is the fault. The array sum is that of the values that a
decoder gets if it does not notice the fault and gets any values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Broken:
    """An invalid vector.

    Attributes
    ----------
    rule
        The rule that is broken.
    case
        How it is broken, in the fewest words; rule and case are the name of the vector.
    error
        Class of the error of a reader that refuses the file.
    why
        What is wrong, in one sentence.
    data
        The file.
    sound
        The file without the fault, where there is one.
    reference
        Components that a frame is decoded against, as bytes in C order, little-endian.
    file
        Path of the file, where it is not the name of the vector.
    of_the_chain
        Whether the parent of a delta is needed to see the fault.
    parent
        Path of the parent, where it is not the sound one that most have.
    beside
        Names of files that lie beside it and that it needs.
    reported_by
        ``"validator"`` where a reader does not look at the fault.
    """

    rule: str
    case: str
    error: str
    why: str
    data: bytes = field(repr=False)
    sound: bytes | None = field(default=None, repr=False)
    reference: bytes | None = field(default=None, repr=False)
    file: str | None = None
    of_the_chain: bool = False
    parent: str | None = None
    beside: Sequence[str] = ()
    reported_by: str = "reader"

    @property
    def name(self) -> str:
        """Name of the vector and of its files."""
        return f"{self.rule}-{self.case}"


def write_broken_frame(vector: Broken, directory: Path) -> dict[str, Any]:
    """Write the files of an invalid frame and return its entry in the manifest."""
    (directory / f"{vector.name}.lcf").write_bytes(vector.data)
    reference = None
    if vector.reference is not None:
        reference = f"{vector.name}.reference.bin"
        (directory / reference).write_bytes(vector.reference)
    return {
        "name": vector.name,
        "kind": "frame",
        "file": f"invalid/{vector.name}.lcf",
        "reference": reference and f"invalid/{reference}",
        **_verdict(vector),
    }


def write_broken_bundle(vector: Broken, directory: Path) -> dict[str, Any]:
    """Write an invalid bundle and return its entry in the manifest."""
    file = vector.file or f"{vector.name}.lcc"
    (directory / file).write_bytes(vector.data)
    return {"name": vector.name, "kind": "bundle", "file": f"invalid/{file}", **_verdict(vector)}


def write_broken_parity(vector: Broken, named: str, directory: Path) -> dict[str, Any]:
    """Write an invalid parity file and return its entry; `named` is the name it is read under."""
    file = vector.file or f"{vector.name}.lcc.par"
    (directory / file).write_bytes(vector.data)
    return {
        "name": vector.name,
        "kind": "parity",
        "file": f"invalid/{file}",
        "named": named,
        **_verdict(vector),
    }


def write_broken_checkpoint(vector: Broken, parent: str, directory: Path) -> dict[str, Any]:
    """Write an invalid checkpoint file and return its entry; `parent` is the file of its parent."""
    file = vector.file or f"{vector.name}.lcc.h5"
    (directory / file).parent.mkdir(exist_ok=True)
    (directory / file).write_bytes(vector.data)
    return {
        "name": vector.name,
        "kind": "checkpoint",
        "file": f"invalid/{file}",
        "parent": f"invalid/{vector.parent or parent}" if vector.of_the_chain else None,
        **({"beside": [f"invalid/{name}" for name in vector.beside]} if vector.beside else {}),
        **_verdict(vector),
    }


def _verdict(vector: Broken) -> dict[str, str]:
    return {
        "rule": vector.rule,
        "error": vector.error,
        "reported_by": vector.reported_by,
        "why": vector.why,
    }

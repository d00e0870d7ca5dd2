"""What the writer of a chain keeps of the newest step: the parameter `reference` of `Chain`."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from ....arguments import check_choice

#: The values as decoded, or hashes of them.
ReferenceKind: TypeAlias = Literal["values", "hashes"]


def check_reference(reference: ReferenceKind) -> ReferenceKind:
    """Return the parameter unchanged; raise ``ArgumentError`` if it is unknown."""
    check_choice("reference", reference, get_args(ReferenceKind))
    return reference

"""What the writer of a chain keeps of the newest step: the parameter `reference` of `Chain`."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from ....arguments import check_choice
from ....errors import ArgumentError

#: The values as decoded, or hashes of them.
ReferenceKind: TypeAlias = Literal["values", "hashes"]


def check_reference(reference: ReferenceKind, hindsight: int = 0) -> ReferenceKind:
    """Return the parameter unchanged; raise ``ArgumentError`` if it is unknown.

    Groups of a history code arrays again from values that hashes do not have.
    """
    check_choice("reference", reference, get_args(ReferenceKind))
    if reference == "hashes" and hindsight:
        raise ArgumentError("hindsight= cannot be used with reference='hashes', which loses nothing")
    return reference

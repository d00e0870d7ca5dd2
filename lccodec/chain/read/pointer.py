"""Checkpoints that hold no state of their own: the values lie in other files, which they name.

Adapters write them: a link to a step of a chain, the record of a distributed checkpoint, the part
of one process. By themselves they are sound files. Whoever wants a state must not take what they
hold for one; :mod:`lccodec.adapters.whole` brings together what they name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...container.manifest import Manifest
from ...errors import ArgumentError

__all__ = ["LINK_KEY", "PYTREE_KIND", "RECORD_KIND", "check_own", "kind_of", "pointer_text"]

#: The key of a link in the metadata. Errors name it as their rule.
LINK_KEY: Final = "lccodec.link"
#: The kind of a record of `torch.distributed.checkpoint`, in its metadata and its state.
RECORD_KIND: Final = "torch.distributed.checkpoint"
#: The kind of the part of a process of Orbax, in its state.
PYTREE_KIND: Final = "jax.pytree"

#: The keys of such a part.
_PART: Final = {"kind", "version", "process", "processes", "table", "values", "arrays"}
_TEXTS: Final = {
    LINK_KEY: "a link: its state is a step of a chain",
    RECORD_KIND: "the record of a distributed checkpoint: its tensors lie in the chains of the ranks",
}
_ADVICE: Final = {
    LINK_KEY: "load it with the adapter that saved it",
    RECORD_KIND: "load it with LCStorageReader, into a state with dcp.load or whole with state()",
}


def kind_of(manifest: Manifest) -> str | None:
    """Return what a checkpoint is if it holds no whole state; ``None`` if it holds one."""
    if (kind := _kind(manifest.metadata)) is not None:
        return kind
    return PYTREE_KIND if isinstance(manifest.tree, dict) and manifest.tree.keys() == _PART else None


def pointer_text(metadata: Mapping[str, str]) -> str | None:
    """Return in words what a checkpoint is that holds no arrays of its own, by its metadata."""
    return None if (kind := _kind(metadata)) is None else _TEXTS[kind]


def check_own(metadata: Mapping[str, str], where: object) -> None:
    """Raise ``ArgumentError``, with the way out, if a checkpoint holds no arrays of its own."""
    if (kind := _kind(metadata)) is not None:
        raise ArgumentError(
            f"{where} is {_TEXTS[kind]}; {_ADVICE[kind]}, or write it to a file with `lccodec convert`"
        )


def _kind(metadata: Mapping[str, str]) -> str | None:
    if LINK_KEY in metadata:
        return LINK_KEY
    return RECORD_KIND if metadata.get("kind") == RECORD_KIND else None

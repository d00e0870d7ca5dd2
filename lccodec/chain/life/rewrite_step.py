"""Rewriting a checkpoint with the same state: as a keyframe, or against another parent.

The new file says which file it takes the place of. So what names the old one (a delta, an exact
file, a link of a framework) may stay as it is, and each rewriting is one atomic commit. Nothing
gets lost or changed: arrays are stored as they decode, without loss, and the new file is decoded
and compared before it gets its name. So the figures that the save measured stay true, and are kept.

Source: SPEC 9 (LCC-CHN-10).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...constants import PAYLOAD_OFFSET, TRAILER_SIZE
from ...container.checkpoint import open_checkpoint
from ...container.manifest import Manifest
from ...container.piece_table import hashed
from ...container.tree import Flat
from ...element_types import Array
from ...errors import ChainError
from ...frame.content import Content
from ...frame.encode import encode_content
from ...parallel import slices
from ...policy.copies import mark_copies
from ...policy.policy import Candidate
from ...policy.presets import POLICIES
from ..read.checkpoint import OpenCheckpoint, open_name
from ..read.replay import DecodedArray
from ..save.encode import plan_manifest
from ..save.plan import SavePlan, make_plan
from ..store.lineage import Ancestry
from ..store.names import checkpoint_name
from ..store.store import WritableStore


@dataclass(frozen=True)
class Rewriting:
    """A checkpoint that was rewritten with the same state, or would be.

    Parameters
    ----------
    step
        Its step.
    parent
        Its new parent; ``None`` for a keyframe.
    before, after
        Bytes of the old file and of the new one.
    """

    step: int
    parent: int | None
    before: int
    after: int


def rewrite(
    store: WritableStore,
    step: int,
    parent: int | None,
    *,
    dry_run: bool = False,
    smaller: bool = False,
) -> Rewriting | None:
    """Write the checkpoint of a step anew, as a keyframe or as a delta to another step.

    Parameters
    ----------
    parent
        The new parent: an earlier step of the chain. ``None`` for a keyframe.
    dry_run
        Whether only to code it, for the number of bytes.
    smaller
        Whether to write it only if it gets smaller.

    Returns
    -------
    Rewriting or None
        ``None`` if it would not get smaller, and has to.

    Raises
    ------
    ChainError
        If a step or a parent is missing; or if the new file does not decode to the same values.
    DataError, StorageError
        If a file is damaged, or the operating system refuses. The old file is as before.
    """
    name = checkpoint_name(step)
    with open_name(store, name) as file:
        file.check_name()
        old, before = file.links[-1], file.links[-1].reader.file_size
        kept, metadata = old.manifest, file.metadata()
        state = dict(zip(old.index_names, file.decoded(), strict=True))
    flat = Flat(kept.tree, [], kept.scalars, list(state))
    link, parents = None, dict[str, DecodedArray]()
    if parent is not None:
        with open_name(store, checkpoint_name(parent)) as file:
            above = file.links[-1]
            link = (above.reader.root, above.manifest.tree)
            parents = dict(zip(above.index_names, file.decoded(), strict=True))
    plan = _plan(state, parents, parent)
    manifest = plan_manifest(plan, flat, step=step, policy=kept.policy, metadata=metadata, parent=link)
    roots = (*kept.replaces, old.reader.root)
    manifest = replace(manifest, exact=kept.exact, replaces=roots, figures=kept.figures)

    def check(temporary: Path) -> None:
        with OpenCheckpoint(open_checkpoint(temporary), store) as new:
            if not _is_same(new, flat, metadata, list(state.values())):
                message = "the rewritten file has another state, so the old file stays"
                raise ChainError(f"{store.path / name}: {message}")

    if dry_run:
        entries = [hashed(frame)[0] for frame in _frames(plan)]
        after = _size(replace(manifest, frames=tuple(entries)))
        return None if smaller and after >= before else Rewriting(step, parent, before, after)
    with store.writer(name, overwrite=True) as writer:
        entries = [writer.write_frame(frame) for frame in _frames(plan)]
        manifest = replace(manifest, frames=tuple(entries))
        if smaller and _size(manifest) >= before:
            return None
        writer.commit(manifest, check)
    return Rewriting(step, parent, before, writer.size)


def end_at(store: WritableStore, step: int) -> list[Rewriting]:
    """Rewrite the checkpoints up to a step that need later ones, so that these may go.

    Such a checkpoint is interpolated. It becomes a delta to the checkpoint before it.

    Raises
    ------
    ChainError, DataError, StorageError
        As `rewrite`. What is there can be restored.
    """
    ancestry, names, steps = Ancestry(store), store.checkpoints(), list[int]()
    lineage = ancestry.lineage(names)
    for each in sorted((each for each in lineage.steps if each <= step), reverse=True):
        steps.append(each)
        if not lineage.parents(each):
            break  # nothing before a keyframe needs what is after it (LCC-INT-05)
    written, parent = list[Rewriting](), None
    for each in reversed(steps):
        if any(above > step for above in lineage.needed([each])):
            found = rewrite(store, each, parent)
            written += [] if found is None else [found]
            lineage = ancestry.lineage(names)  # its parents are others now
        if len(lineage.parents(each)) < 2:
            parent = each
    return written


def _plan(
    state: Mapping[str, DecodedArray], parents: Mapping[str, DecodedArray], parent: int | None
) -> SavePlan:
    """Return the plan of a lossless checkpoint of decoded arrays."""
    arrays = []
    for name, array in state.items():
        above = parents.get(name)
        fits = above is not None and (above.kind, above.shape) == (array.kind, array.shape)
        reference = above.bits if above is not None and fits else None
        arrays.append(Candidate(name, "other", "", array.kind, array.shape, array.bits, reference))
    mark_copies(arrays)
    return make_plan(arrays, POLICIES["lossless"], parent)


def _frames(plan: SavePlan) -> Iterator[Iterator[bytes]]:
    """Yield the chunks of each frame."""
    for frame in plan.frames:
        arrays = [plan.candidates[index] for index in frame.arrays]
        content = Content(
            _joined([c.bits for c in arrays]),
            arrays[0].kind,
            tuple(c.shape for c in arrays),
            _joined([c.reference for c in arrays if c.reference is not None]) if frame.relative else None,
            len(arrays) > 1,
        )
        yield encode_content(content, frame.quantizer, effort="high")


def _joined(parts: Sequence[Array]) -> Array:
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def _size(manifest: Manifest) -> int:
    """Return the bytes of the file of a manifest."""
    return PAYLOAD_OFFSET + manifest.payload_length + len(manifest.to_bytes()) + TRAILER_SIZE


def _is_same(
    new: OpenCheckpoint, flat: Flat, metadata: Mapping[str, str], arrays: Sequence[DecodedArray]
) -> bool:
    """Return whether a file decodes to a state, bit for bit."""
    manifest = new.links[-1].manifest
    told = repr((manifest.tree, manifest.scalars)) == repr((flat.tree, flat.scalars))
    if not told or manifest.metadata != metadata or new.links[-1].index_names != flat.names:
        return False
    return all(map(_is_equal, new.decoded(), arrays))


def _is_equal(left: DecodedArray, right: DecodedArray) -> bool:
    if (left.kind, left.shape) != (right.kind, right.shape):
        return False
    return all(bool((left.bits[part] == right.bits[part]).all()) for part in slices(left.bits.size))

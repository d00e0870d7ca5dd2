"""Checkpoints between two others, where a vector or a test wants them: with any weight.

`Chain` settles only what lies between two ends. Here a parent may be interpolated itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lccodec.chain.read.checkpoint import open_name
from lccodec.chain.read.links import value_or_raise
from lccodec.chain.read.replay import Decoded, DecodedArray, interpolated
from lccodec.chain.save.encode import decoded_copies, encode_plan, plan_manifest
from lccodec.chain.save.measurement import Measurement, Sampling
from lccodec.chain.save.plan import candidates, make_plan
from lccodec.chain.store.store import Store, WritableStore, checkpoint_name
from lccodec.container.manifest import Parent
from lccodec.container.tree import Json, flatten
from lccodec.policy.record import Record, needed_record, write_record
from lccodec.policy.roles import Assignment
from lccodec.policy.values import mark_copies
from lccodec.workers.crew import Threads


def decoded(store: Store, step: int) -> tuple[dict[str, DecodedArray], bytes, Json]:
    """Return the arrays of a checkpoint by name, its root and its tree."""
    with open_name(store, checkpoint_name(step)) as file:
        link = file.links[-1]
        arrays = dict(zip(link.index_names, file.decoded(), strict=True))
        return arrays, link.reader.root, link.manifest.tree


def between(store: Store, low: int, high: int, weight: int) -> dict[str, DecodedArray]:
    """Return what lies between two steps; `weight` is that of the later one, in 256ths."""
    ends = [Decoded(decoded(store, step)[0], set()) for step in (low, high)]
    names = list(ends[0].arrays)
    found = interpolated(weight / 256, ends[0], ends[1], names).arrays
    return {name: value_or_raise(array) for name, array in found.items()}


def save_anchored(
    store: WritableStore,
    step: int,
    state: Any,
    parents: tuple[int, ...],
    record: Record,
    weight: int = 128,
    known: Mapping[str, Assignment] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> int:
    """Save a state against one step, or between two; return the bytes of its file."""
    flat, first = flatten(state), parents[0]
    arrays, root, tree = decoded(store, first)
    if len(parents) == 2:
        arrays = between(store, first, parents[1], weight)
    arrays = {n: replace(a, bits=a.bits.copy(), start=0) for n, a in arrays.items() if n in flat.names}
    own = candidates(flat, arrays, record.roles, known or {})
    mark_copies(own)
    plan, sampling = make_plan(own, record.policy, first), Sampling(own)
    written = write_record(needed_record(record, own, known or {}))
    told = dict(metadata or {})
    manifest = plan_manifest(plan, flat, step=step, policy=written, metadata=told, parent=(root, tree))
    if len(parents) == 2:
        _, later, _ = decoded(store, parents[1])
        manifest = replace(manifest, later=Parent(parents[1], later), weight=weight)
    measurement, entries = Measurement(plan.candidates, sampling, plan.losing()), []
    with store.writer(checkpoint_name(step)) as writer:
        for chunks, made in encode_plan(plan, arrays, record.policy.effort, Threads()):
            entries.append(writer.write_frame(chunks))
            arrays.update(made)
        arrays.update(decoded_copies(plan, arrays))
        figures = measurement.figures(arrays, None)
        writer.commit(replace(manifest, frames=tuple(entries), figures=figures))
    return writer.size

"""A walk through a run decodes what is wanted, and verifies the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lccodec import Chain
from lccodec.chain.read.replay import DecodedArray
from lccodec.chain.read.survey import survey
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import PAYLOAD_OFFSET
from lccodec.container.checkpoint import open_checkpoint

from ....support.branches import TREES, write_tree


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES)
def test_what_is_not_decoded_is_verified(tmp_path: Path, parents: list[int | None]) -> None:
    states = write_tree(tmp_path, parents)
    store = DirectoryStore(tmp_path)
    for visit in survey(store, store.checkpoints(), decode={"w"}):
        (array,) = visit.arrays().values()
        assert isinstance(array, DecodedArray)
        np.testing.assert_array_equal(array.array(), states[visit.step]["w"])
        assert [shape for _, shape in visit.verified().values()] == [states[visit.step]["v"].shape]

    def problems(decode: bool | frozenset[str]) -> dict[int, list[str]]:
        found = survey(store, store.checkpoints(), decode=decode)
        return {visit.step: list(map(str, visit.broken())) for visit in found}

    path = tmp_path / "000000000002.lcc.h5"
    data = bytearray(path.read_bytes())
    with open_checkpoint(path) as reader:
        data[PAYLOAD_OFFSET + reader.manifest.frames[0].length - 1] ^= 1  # in the frame of v
    path.write_bytes(data)
    found = problems(decode=True)
    assert found[2]
    assert problems(frozenset()) == problems(frozenset({"w"})) == found


def test_copies_are_verified_with_their_sources(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with Chain(tmp_path, "lossless") as chain:
        for step in range(3):
            w = rng.normal(size=(100, 80)).astype(np.float32)
            chain.save(step, {"half": w.astype(np.float16), "other": np.arange(step + 9), "w": w})
    store = DirectoryStore(tmp_path)

    def problems(decode: bool | frozenset[str]) -> dict[int, list[str]]:
        found = survey(store, store.checkpoints(), decode=decode)
        return {visit.step: list(map(str, visit.broken())) for visit in found}

    for visit in survey(store, store.checkpoints(), decode=frozenset()):
        assert ["half", "w"] in visit.runs()
        half, _, w = (visit.verified()[name] for name in ("half", "other", "w"))
        assert (half[0].name, half[1], w[0].name) == ("float16", (100, 80), "float32")
    for visit in survey(store, store.checkpoints(), decode=frozenset({"half", "w"})):
        half, w = (visit.arrays()[name].array() for name in ("half", "w"))
        np.testing.assert_array_equal(half, w.astype(np.float16))
        assert list(visit.verified()) == ["other"]

    path = tmp_path / "000000000001.lcc.h5"
    data = bytearray(path.read_bytes())
    with open_checkpoint(path) as reader:
        data[PAYLOAD_OFFSET + reader.manifest.payload_length - 1] ^= 1  # in the frame of w
    path.write_bytes(data)
    found = problems(decode=True)
    assert [len(broken) for broken in found.values()] == [0, 2, 2]
    assert problems(frozenset()) == problems(frozenset({"half", "w"})) == found

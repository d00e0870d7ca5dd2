"""A walk through a run decodes what is wanted, and verifies the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lccodec.chain.read.replay import DecodedArray
from lccodec.chain.read.survey import survey
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import PAYLOAD_OFFSET
from lccodec.container.reader import open_checkpoint

from ...support.branches import TREES, write_tree


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

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lccodec import Chain
from lccodec.chain.read.checkpoint import open_name
from lccodec.chain.save.hashes.anew import hash_checkpoint
from lccodec.chain.save.hashes.segments import hash_segments
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.names import checkpoint_name
from lccodec.element_types import components
from lccodec.frame.checksum import array_sum

from ....support.hashes import large_state, small_blocks, touched


def test_hashes_of_any_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch)
    state = large_state(0)
    chain = Chain(tmp_path, "lossless")
    chain.save(0, state)
    state = touched(state, 1)
    chain.save(1, state)
    with open_name(DirectoryStore(tmp_path), checkpoint_name(1)) as file:
        segment, found = hash_checkpoint(file, None)
    arrays = {"table": state["table"], "one": state["one"], "small/0": state["small"][0]}
    for name, array in {**arrays, "small/2": state["small"][2], "complex": state["complex"]}.items():
        kind, bits = components(array)
        assert (found[name].kind, found[name].shape) == (kind, array.shape)
        np.testing.assert_array_equal(found[name].hashes, hash_segments(bits, segment))
        assert found[name].total == array_sum(bits)
    ends = [a.offset + len(a.hashes) * segment for a in found.values()]
    assert [a.offset for a in found.values()] == [0, *ends[:-1]]

"""Values of the parent: from the file beside the chain, or from the checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lccodec import Chain, LccodecWarning
from lccodec.chain.save.hashes import parent as module
from lccodec.chain.save.hashes import reference

from ....support.hashes import chain_of, large_state, small_blocks, touched
from ....support.paths import checkpoint_path
from ....support.walks import assert_same


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["removed", "torn", "other bytes", "a link", "a directory"])
def test_without_the_file_of_values_they_come_from_the_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    small_blocks(monkeypatch)
    here, there = tmp_path / "values", tmp_path / "hashes"
    state, values = large_state(0), there / ".hashes" / "values"
    for step in range(3):
        with Chain(here, "lossless") as chain:
            chain.save(step, state)
        if step == 2:
            data = values.read_bytes()
            values.unlink()
            if damage == "torn":
                values.write_bytes(data[:50_000])
            elif damage == "other bytes":
                values.write_bytes(bytes(len(data)))
            elif damage == "a link":
                (tmp_path / "other").write_bytes(data)
                values.symlink_to(tmp_path / "other")
            elif damage == "a directory":
                values.mkdir()
        with chain_of(there) as chain:
            if step == 2 and damage in ("a link", "a directory"):
                with pytest.warns(LccodecWarning, match="values cannot be written"):
                    chain.save(step, state)
            else:
                chain.save(step, state)
            assert_same(chain.restore(), state)
        sizes = [checkpoint_path(each, step).stat().st_size for each in (here, there)]
        assert abs(sizes[0] - sizes[1]) < 400  # a new process doesn't know how far arrays moved
        state = touched(state, step + 1)
    if damage == "a link":
        assert (tmp_path / "other").read_bytes() == data


def test_values_are_not_decoded_if_they_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch)
    state = large_state(0)
    with chain_of(tmp_path) as chain:
        chain.save(0, state)
    monkeypatch.setattr(module, "open_name", lambda *_: pytest.fail("a checkpoint was decoded"))
    state["small"][0][1, 1] = 7
    with chain_of(tmp_path) as chain:
        chain.save(1, touched(state, 1))
        chain.save(2, touched(state, 2))
        assert_same(chain.restore(1), touched(state, 1))


def test_a_block_is_decoded_once_whatever_changed_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a bucket, where there is no file of values: there each segment would cost a block."""
    monkeypatch.setattr(reference, "DirectoryStore", int)
    spans, decode_span = [], module.decode_span
    monkeypatch.setattr(module, "decode_span", lambda *given: spans.append(given) or decode_span(*given))
    table = np.zeros(300_000)
    with chain_of(tmp_path) as chain:
        chain.save(0, {"table": table})
        table[::3000] += 1
        chain.save(1, {"table": table})
        assert len(spans) <= 2
        np.testing.assert_array_equal(chain.restore(1)["table"], table)


def test_parts_of_an_array_of_the_parent(tmp_path: Path) -> None:
    values = np.arange(10_000, dtype=np.float64)
    with chain_of(tmp_path) as chain:
        chain.save(0, {"a": values})
        tail = chain._writer._saver._tail
        assert tail is not None
        bits = tail.arrays["a"].bits
        for part in (slice(0, 10), slice(500, 1700), slice(9_990, 20_000), slice(3, 3), slice(0, 9000, 7)):
            np.testing.assert_array_equal(bits[part].view(np.float64), values[part])

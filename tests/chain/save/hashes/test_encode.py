"""Frames against hashes are those against the whole parent, byte for byte."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lccodec import Chain

from ....support.hashes import chain_of, large_state, small_blocks, touched
from ....support.paths import checkpoint_path
from ....support.strategies import random_array
from ....support.walks import assert_same


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.0001, 0.01, 0.5, 1.0])
def test_files_are_those_of_an_ordinary_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    small_blocks(monkeypatch)
    state = large_state(0)
    here, there = tmp_path / "values", tmp_path / "hashes"
    with Chain(here, "lossless", keyframe_every=2) as one, chain_of(there, keyframe_every=2) as other:
        for step in range(4):
            assert one.save(step, state) == other.save(step, state)
            assert checkpoint_path(here, step).read_bytes() == checkpoint_path(there, step).read_bytes()
            state = touched(state, step + 1, share)


@st.composite
def changes(draw: st.DrawFn) -> list[dict[str, Any]]:
    """States, each the one before with some arrays changed, added or left out."""
    arrays: dict[str, np.ndarray] = {}
    states = []
    for _ in range(draw(st.integers(2, 3))):
        for name in draw(st.sets(st.sampled_from("abcd"), max_size=3)):
            kind = draw(st.sampled_from(["float32", "float64", "int16", "uint8", "complex64"]))
            size, seed = draw(st.sampled_from([0, 1, 300, 20_000, 40_001])), draw(st.integers(0, 99))
            arrays[name] = random_array(kind, (size,), seed)
        arrays = {name: array.copy() for name, array in arrays.items()}
        for name in draw(st.sets(st.sampled_from(sorted(arrays)))) if arrays else ():
            start, length = draw(st.integers(0, 45_000)), draw(st.sampled_from([1, 5000, 45_000]))
            part = arrays[name][start : start + length]
            part[:] = random_array(str(part.dtype), part.shape, draw(st.integers(0, 99)))
        states.append(dict(arrays))
    return states


@pytest.mark.slow  # many saves
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(changes(), st.booleans())
def test_any_changes_are_stored_as_by_an_ordinary_chain(
    monkeypatch: pytest.MonkeyPatch, states: list[dict[str, Any]], again: bool
) -> None:
    """Also by a new process at each step, which does not know how far arrays moved."""
    small_blocks(monkeypatch)
    with TemporaryDirectory() as folder:
        here, there = Path(folder, "values"), Path(folder, "hashes")
        one, other = Chain(here, "lossless"), chain_of(there)
        for step, state in enumerate(states):
            if again:
                other.close()
                other = chain_of(there)
            other.save(step, state)
            assert_same(other.restore(step), state)
            if not again:
                one.save(step, state)
                assert checkpoint_path(here, step).read_bytes() == checkpoint_path(there, step).read_bytes()
        one.close()
        other.close()

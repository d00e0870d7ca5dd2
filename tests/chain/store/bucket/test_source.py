"""How many requests reads take, and how many bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import lccodec
from lccodec.chain.store.bucket.backend import PatientBackend
from lccodec.chain.store.bucket.source import FOLDER
from lccodec.chain.store.bucket.store import connect
from lccodec.container.system import Address

from ....support.buckets import Proxy
from ....support.tuning import tune
from ....support.walks import assert_same, walk


@pytest.fixture
def deep(run: str) -> list[dict[str, np.ndarray]]:
    """The states of a chain of a keyframe and 32 deltas, of one array of 1 MiB among others."""
    rng = np.random.default_rng(0)
    state = {"large": rng.standard_normal(1 << 18).astype(np.float32), "other": rng.standard_normal(1 << 16)}
    states = []
    with lccodec.Chain(run, "lossless", keyframe_every=40, newest="history") as chain:
        for step in range(33):
            state = {name: value.copy() for name, value in state.items()}
            for value in state.values():
                value[rng.integers(0, value.size, value.size // 100)] += 1
            chain.save(step, state)
            states.append(state)
    return states


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ranges each round of requests has."""
    found: list[int] = []
    read_many = PatientBackend.read_many

    def counted(self: PatientBackend, wanted: Sequence[tuple[str, int, int]]) -> list[bytes]:
        found.append(len(wanted))
        return read_many(self, wanted)

    monkeypatch.setattr(PatientBackend, "read_many", counted)
    return found


def cached() -> Iterator[Path]:
    """The files of the cache on the disk."""
    return (Path(os.environ["LCCODEC_CACHE"]) / FOLDER).iterdir()


def stored(run: str, name: str) -> int:
    """The bytes of the frames of an array in all files."""
    total = 0
    for step in lccodec.Chain(run).steps:
        with lccodec.open(run, step=step) as file:
            total += sum(array.stored_bytes for array in file.info().arrays if array.name == name)
    return total


def test_one_array_of_a_deep_chain_takes_two_rounds(
    run: str, deep: list[dict[str, np.ndarray]], proxy: Proxy, rounds: list[int]
) -> None:
    """The ends of all files, then the frames; the bytes are little more than the frames'."""
    with lccodec.open(run) as file:
        found = file.get("large")
    np.testing.assert_array_equal(found, deep[-1]["large"])
    assert len(proxy.listings) == 1
    assert rounds == [66, 33]
    received = sum(each.received for each in proxy.reads)
    assert received <= 1.2 * stored(run, "large")


def test_a_copy_brings_what_it_is_made_of(run: str, rounds: list[int]) -> None:
    """Weights in mixed precision: the rounded array has no frame of its own."""
    import ml_dtypes

    with lccodec.Chain(run, "lossless", newest="history") as chain:
        for step, weight in enumerate(np.random.default_rng(0).standard_normal((3, 90, 90)).astype("f4")):
            chain.save(step, {"master": weight, "model": weight.astype(ml_dtypes.bfloat16)})
    rounds.clear()
    with lccodec.open(run) as file:
        assert [array.method for array in file.info().arrays if array.name == "model"] == ["copy"]
        rounds.clear()
        np.testing.assert_array_equal(file.get("model"), weight.astype(ml_dtypes.bfloat16))
    assert rounds == [3]


def test_what_was_read_is_not_read_again(
    run: str, deep: list[dict[str, np.ndarray]], proxy: Proxy, rounds: list[int]
) -> None:
    for _ in range(2):
        assert_same(lccodec.Chain(run).restore(), deep[-1])
    assert len(rounds) == 2
    assert len(proxy.listings) == 2
    assert len(list(cached())) == sum(rounds)


def test_a_damaged_cache_does_no_harm(run: str, deep: list[dict[str, np.ndarray]]) -> None:
    lccodec.Chain(run).restore()
    for path in cached():
        path.write_bytes(bytes(path.stat().st_size))
    assert_same(lccodec.Chain(run).restore(), deep[-1])


def test_large_states_come_in_rounds_that_fit_in_memory(
    run: str, deep: list[dict[str, np.ndarray]], rounds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(monkeypatch, bucket_round_bytes=200_000)
    assert_same(lccodec.Chain(run).restore(), deep[-1])
    assert 2 < len(rounds) < 12


def test_the_steps_are_in_the_listing(run: str, proxy: Proxy, rounds: list[int]) -> None:
    with lccodec.Chain(run, "lossless", keyframe_every=2, newest="exact") as chain:
        for step, state in enumerate(walk(5)):
            chain.save(step, state)
    proxy.clear()
    rounds.clear()
    chain = lccodec.Chain(run)
    assert chain.steps == [0, 1, 2, 3, 4]
    assert [each.is_listing for each in proxy.seen] == [True]
    assert chain.latest == chain.exact_step == 4
    store = connect(Address.of(run)).snapshot()
    assert [store.parents_of(name) for name in store.checkpoints().values()] == [(), (0,), (1,), (), (3,)]
    assert rounds == []
    assert all(each.is_listing for each in proxy.seen)

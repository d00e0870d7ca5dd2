"""What a caller allows a checkpoint to ask for is checked before anything is decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import ROLES, ArgumentError, Chain, LimitError
from lccodec.chain.bounds import Bounds
from lccodec.constants import EXACT_NAME

from ..support.tuning import tune, tuned

STATE = {"w": np.arange(1000.0), "v": [np.zeros(10, np.int8), 3], "empty": np.zeros((0, 1 << 30))}
NBYTES = 8010


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("bounds") / "run"
    with Chain(path, "lossless") as chain:
        for step in range(4):
            chain.save(step, {**STATE, "w": STATE["w"] + step})
    lccodec.bundle(path, path.parent / "run.lcc")
    yield path


def restored(path: Path, **bounds: Any) -> Any:
    with Chain(path) as chain:
        return chain.restore(keys="w", **bounds)


def iterated(path: Path, **bounds: Any) -> Any:
    with Chain(path) as chain:
        return dict(chain.restore_iter(**bounds))


def averaged(path: Path, **bounds: Any) -> Any:
    with Chain(path) as chain:
        return chain.average([2, 3], roles=ROLES, **bounds)


def followed(path: Path, **bounds: Any) -> Any:
    with lccodec.follow(path, step=3, exact=False, timeout=0, **bounds) as follower:
        return next(follower).step


READ: dict[str, Callable[..., Any]] = {
    "open": lambda path, **bounds: lccodec.open(path, **bounds).close(),
    "open a step": lambda path, **bounds: lccodec.open(path, step=3, exact=False, **bounds).close(),
    "open a bundle": lambda path, **bounds: lccodec.open(path.parent / "run.lcc", **bounds).close(),
    "load_file": lambda path, **bounds: lccodec.load_file(path / "000000000003.lcc.h5", **bounds),
    "restore": restored,
    "restore_iter": iterated,
    "average": averaged,
    "follow": followed,
    "validate": lambda path, **bounds: lccodec.validate(path, deep=True, **bounds),
    "validate a file": lambda path, **bounds: lccodec.validate(path / "000000000003.lcc.h5", **bounds),
    "validate a bundle": lambda path, **bounds: lccodec.validate(path.parent / "run.lcc", **bounds),
}


@pytest.mark.parametrize("read", READ.values(), ids=READ)
def test_what_asks_for_more_is_refused_before_it_is_decoded(
    chain: Path, read: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read(chain, max_bytes=NBYTES, max_deltas=3)
    tune(monkeypatch, decode_part=None)
    for bounds, message in (
        ({"max_bytes": NBYTES - 1}, "its arrays have 8,010 bytes, and max_bytes is 8,009"),
        ({"max_deltas": 2}, "it needs 3 other checkpoints, and max_deltas is 2"),
    ):
        with pytest.raises(LimitError, match=message) as caught:
            read(chain, **bounds)
        assert caught.value.rule == next(iter(bounds))
        assert caught.value.where.endswith(".lcc.h5")


def test_what_only_the_parent_has_counts_where_it_is_decoded(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless") as chain:
        chain.save(1, {"w": np.zeros(10), "run": np.zeros(1000), "alone": np.zeros(1 << 15)})
        chain.save(2, {"w": np.zeros(10)})
    path = tmp_path / "000000000002.lcc.h5"
    assert lccodec.load_file(path, max_bytes=8080)["w"].size == 10  # it shares a frame with `run`
    with pytest.raises(LimitError, match="its arrays have 8,080 bytes, and max_bytes is 8,079"):
        lccodec.load_file(path, max_bytes=8079)
    assert lccodec.validate(path, deep=True, max_bytes=8080 + (8 << 15)) == []
    with pytest.raises(LimitError, match="its arrays have 270,224 bytes, and max_bytes is 270,223"):
        lccodec.validate(path, deep=True, max_bytes=270223)


def test_bytes_in_memory() -> None:
    data = lccodec.save(STATE)
    assert lccodec.load(data, max_bytes=NBYTES)["v"][1] == 3
    with pytest.raises(LimitError, match="max_bytes is 0"):
        lccodec.load(data, max_bytes=0)


def test_an_older_step_that_fits_is_restored(chain: Path) -> None:
    with Chain(chain) as opened, pytest.warns(lccodec.LccodecWarning, match="max_deltas"):
        assert opened.restore(fallback=True, max_deltas=1)["w"][0] == 1


def test_a_follower_passes_over_what_asks_for_more(chain: Path) -> None:
    with lccodec.follow(chain, exact=False, timeout=0, max_deltas=2) as follower:
        with pytest.warns(lccodec.LccodecWarning, match="step 3 cannot be read.*max_deltas is 2"):
            assert next(follower).step == 2
        assert list(follower.refused) == [3]


@pytest.mark.parametrize("bounds", [{"max_bytes": NBYTES - 1}, {"max_deltas": 0}])
def test_a_repair_decodes_nothing_that_asks_for_more(tmp_path: Path, bounds: dict[str, int]) -> None:
    with Chain(tmp_path, "lossless", newest="exact") as chain:
        for step in range(2):
            chain.save(step, {**STATE, "w": STATE["w"] + step})
        (tmp_path / EXACT_NAME).write_bytes(b"")
        with tuned(decode_part=None):
            for dry_run in (True, False):
                (lost,) = chain.repair(dry_run=dry_run, **bounds).lost.values()
                assert f"{next(iter(bounds))} is {next(iter(bounds.values()))}" in lost.replace(",", "")
        assert (tmp_path / EXACT_NAME).read_bytes() == b""
        assert list(chain.repair(max_bytes=NBYTES, max_deltas=1).remade) == [EXACT_NAME]


def test_a_repair_says_nothing_of_a_whole_checkpoint_that_asks_for_more(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless", newest="exact", keyframe_every=0) as chain:
        for step in range(2):
            chain.save(step, STATE)
        (tmp_path / "000000000000.lcc.h5").write_bytes(b"")
        found = chain.repair(max_bytes=0)
    assert (list(found.lost), found.mended) == (["000000000000.lcc.h5"], ())


@pytest.mark.parametrize("bound", [-1, 1.5, "1"])
def test_arguments(bound: Any) -> None:
    for name in ("max_bytes", "max_deltas"):
        with pytest.raises(ArgumentError, match=f"{name} must be a non-negative integer"):
            Bounds(**{name: bound})

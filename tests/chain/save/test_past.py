"""After a restart, the state of the last save comes from its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lccodec import Chain
from lccodec.container.figures import StoredFigures
from lccodec.container.reader import open_checkpoint

RNG = np.random.default_rng(0)
BASE = {
    "model": {
        "large.weight": RNG.normal(0, 1, (700, 500)).astype(np.float32),
        "small.weight": RNG.normal(0, 1, (30, 100)).astype(np.float32),
        "bias": RNG.normal(0, 1, 5).astype(np.float32),
    }
}


def state(step: int) -> dict[str, dict[str, np.ndarray]]:
    return {"model": {name: array * np.float32(1 + step / 100) for name, array in BASE["model"].items()}}


def figures(directory: Path, step: int) -> StoredFigures:
    with open_checkpoint(directory / f"{step:012d}.lcc.h5") as reader:
        assert reader.manifest.figures is not None
        return reader.manifest.figures


def saved(directory: Path, *, anew: bool, **options: object) -> StoredFigures:
    """Save two steps, in one chain or in two; return the figures of the second."""
    chain = Chain(directory, "balanced", **options)  # type: ignore[arg-type]
    chain.save(0, state(0))
    if anew:
        chain.close()
        chain = Chain(directory)
    with chain:
        chain.save(1, state(1))
    return figures(directory, 1)


def test_the_exact_file_has_all_of_it(tmp_path: Path) -> None:
    anew = saved(tmp_path / "anew", anew=True)
    assert anew == saved(tmp_path / "kept", anew=False)
    assert not np.isnan(anew.read("movement", 3)).any()


@pytest.mark.slow
def test_a_state_that_grows_is_sampled_in_other_places(tmp_path: Path) -> None:
    """A chain that stays open looks into the exact file then, as one that is opened anew does."""
    names = [f"{number}.weight" for number in range(40)]
    first = {name: RNG.normal(0, 1, (100, 200)).astype(np.float32) for name in names[:10]}
    second = {name: array * np.float32(1.01) for name, array in first.items()}
    second |= {name: RNG.normal(0, 1, (100, 200)).astype(np.float32) for name in names[10:]}
    found = []
    for place in ("kept", "anew"):
        chain = Chain(tmp_path / place, "balanced")
        chain.save(0, first)
        if place == "anew":
            chain.close()
            chain = Chain(tmp_path / place)
        with chain:
            chain.save(1, second)
        found.append(figures(tmp_path / place, 1))
    assert found[0] == found[1]
    np.testing.assert_allclose(found[0].read("movement", 40)[:10], 0.01, rtol=0.2)


def test_what_lost_nothing_is_known_without_an_exact_file(tmp_path: Path) -> None:
    kept = saved(tmp_path / "kept", anew=False, newest="history")
    anew = saved(tmp_path / "anew", anew=True, newest="history")
    assert anew.since == 0
    assert np.isnan(anew.read("movement", 3)).tolist() == [True, True, False]
    assert anew.read("movement", 3)[2] == kept.read("movement", 3)[2]
    assert anew.read("error", 3).tolist() == kept.read("error", 3).tolist()


@pytest.mark.parametrize("place", [400, 1000, -40])
def test_a_damaged_exact_file_stops_no_save(tmp_path: Path, place: int) -> None:
    with Chain(tmp_path, "balanced") as chain:
        chain.save(0, state(0))
    path = tmp_path / "exact.lcc.h5"
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with Chain(tmp_path) as chain:
        chain.save(1, state(1))
    assert figures(tmp_path, 1).since is None

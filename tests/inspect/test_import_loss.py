"""What an import has lost, beside the same figures by hand."""

from pathlib import Path

import numpy as np
import pytest

from lccodec import Chain
from lccodec.adapters import npz
from lccodec.adapters.files.states import FileOriginals
from lccodec.inspect.loss import import_loss

RNG = np.random.default_rng(0)
WALK = np.cumsum(RNG.normal(0, [[[1.0]], [[1e-3]], [[1e-3]]], (3, 90, 40)), axis=0).astype(np.float32)


def imported(tmp_path: Path, states, policy="balanced"):
    paths = {}
    with Chain(tmp_path / "run", policy) as chain:
        for number, state in enumerate(states):
            paths[10 * number] = tmp_path / f"{number}.npz"
            npz.save_file(state, paths[10 * number])
            chain.save(10 * number, state)
    return FileOriginals(paths, "the files")


def test_errors_in_movements(tmp_path):
    states = [{"weight": weight, "other": np.arange(3) + i} for i, weight in enumerate(WALK)]
    originals = imported(tmp_path, states)
    told = []
    found = import_loss(tmp_path / "run", originals, lambda *numbers: told.append(numbers))
    errors = []
    for number, weight in enumerate(WALK):
        back = Chain(tmp_path / "run").restore(10 * number, keys=["weight"])["weight"].astype(float)
        if number == 2:  # restored from the exact file
            continue
        before = WALK[number - 1 if number else 1].astype(float)
        errors.append(np.sqrt(np.sum((back - weight) ** 2) / np.sum((weight - before) ** 2)))
    assert found.worst >= max(errors) * (1 - 1e-6)
    assert found.name == "weight"
    assert found.typical is not None and found.typical <= found.worst
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_the_worst_and_the_typical(tmp_path):
    states = [{"weight": weight} for weight in WALK]
    originals = imported(tmp_path, states)
    with Chain(tmp_path / "run", newest="history") as chain:
        chain.save(30, states[-1])
    found = import_loss(tmp_path / "run", originals)
    errors = []
    for number, weight in enumerate(WALK):
        back = Chain(tmp_path / "run").restore(10 * number)["weight"].astype(float)
        before = WALK[number - 1 if number else 1].astype(float)
        errors.append(np.sqrt(np.sum((back - weight) ** 2) / np.sum((weight - before) ** 2)))
    assert found.worst == pytest.approx(max(errors), rel=1e-6)
    assert found.typical == pytest.approx(np.median(errors), rel=1e-6)
    assert found.step == 10 * int(np.argmax(errors))


def test_nothing_is_lost(tmp_path):
    found = import_loss(tmp_path / "run", imported(tmp_path, [{"weight": w} for w in WALK], "lossless"))
    assert (found.typical, found.worst, found.unmoved) == (None, None, 0)


def test_what_did_not_move(tmp_path):
    originals = imported(tmp_path, [{"weight": WALK[0]}, {"weight": WALK[0]}])
    found = import_loss(tmp_path / "run", originals)
    assert (found.worst, found.unmoved) == (None, 2)


def test_one_state_has_no_movement(tmp_path):
    found = import_loss(tmp_path / "run", imported(tmp_path, [{"weight": WALK[0]}]))
    assert (found.typical, found.unmoved, found.unmeasured) == (None, 0, 1)


def test_an_array_that_comes_later_has_no_movement(tmp_path):
    states = [{"weight": WALK[0]}, {"weight": WALK[1], "late/weight": WALK[0]}]
    found = import_loss(tmp_path / "run", imported(tmp_path, states))
    assert (found.name, found.unmeasured) == ("weight", 1)

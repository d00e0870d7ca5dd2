"""Two states beside each other, from chains, bundles and files."""

import numpy as np
import pytest

import lccodec
from lccodec.inspect.difference import Replacement
from lccodec.inspect.examination import compare

OLD = {
    "weight": np.array([3.0, 4.0]),
    "exp_avg": np.ones(2),
    "gone": np.ones(1),
    "kind": np.ones(1),
    "epoch": 1,
}
NEW = {
    "weight": np.array([4.0, -3.0]),
    "exp_avg": np.ones(2),
    "came": np.ones(1),
    "kind": np.ones(2),
    "epoch": 2,
}


def test_states_of_files(tmp_path):
    for name, state in (("old.lcc.h5", OLD), ("new.lcc.h5", NEW)):
        lccodec.save_file(state, tmp_path / name)
    found = compare((tmp_path / "old.lcc.h5", None), (tmp_path / "new.lcc.h5", None))
    assert (found.left, found.right) == (str(tmp_path / "old.lcc.h5"), str(tmp_path / "new.lcc.h5"))
    (row,) = found.rows
    assert (row.name, row.role, row.largest, row.share) == ("weight", "weight", 7.0, 1.0)
    assert row.relative == pytest.approx(np.sqrt(50) / 5)
    assert row.cosine == 0.0
    assert (found.appeared, found.disappeared, found.unchanged) == (("came",), ("gone",), 1)
    assert found.replaced == (Replacement("kind", "float64 (1,)", "float64 (2,)"),)
    assert found.scalars == [Replacement("epoch", "1", "2")]


def test_steps_of_a_chain_and_a_bundle(tmp_path):
    with lccodec.Chain(tmp_path / "run", "lossless") as chain:
        for step in range(3):
            chain.save(step, {"b": np.full(3, 1.0 + step), "a": np.full(2, 1.0 + step**2)})
    lccodec.bundle(tmp_path / "run", tmp_path / "run.lccb")
    found = compare((tmp_path / "run", 0), (tmp_path / "run.lccb", 2))
    assert [(row.name, row.relative) for row in found.rows] == [("a", 4.0), ("b", 2.0)]
    assert found.right.endswith("run.lccb step 2")


def test_what_one_of_two_runs_lost_is_no_difference(tmp_path):
    """The newest states of two runs are equal bit for bit, and their histories are not."""
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.standard_normal((3, 100, 100)) * [[[1]], [[0.01]], [[0.01]]], axis=0)
    states = [{"model": {"w": weights}} for weights in walk.astype("f4")]
    roles = {"model/*": "weight"}
    for name, policy in (("one", "balanced"), ("other", "small")):
        with lccodec.Chain(tmp_path / name, policy, roles=roles) as chain:
            for step, state in enumerate(states):
                chain.save(step, state)
    found = compare((tmp_path / "one", 2), (tmp_path / "other", 2))
    assert (found.left, found.rows) == (f"{tmp_path / 'one'} step 2 (exact)", [])
    found = compare((tmp_path / "one", 1), (tmp_path / "other", 1))
    assert (found.right, len(found.rows)) == (f"{tmp_path / 'other'} step 1 (as the history decodes)", 1)
    lossless = lccodec.Chain(tmp_path / "third", "lossless")
    lossless.save(2, states[2])
    found = compare((tmp_path / "one", 2), (tmp_path / "third", 2))
    assert (found.right, found.rows) == (f"{tmp_path / 'third'} step 2", [])

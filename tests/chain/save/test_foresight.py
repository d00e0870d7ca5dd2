"""A first keyframe is as fine as the state moves, where it is known what follows."""

import numpy as np
import pytest

from lccodec import ArgumentError, Chain, Policy, StorageError, UniformDeadzone

from ...support.checkpoints import unmeasured

RNG = np.random.default_rng(0)
BASE = RNG.normal(0, 0.05, (200, 300)).astype(np.float32)


def states(movement, count=4):
    """Weights that walk, beside some that stay."""
    rng, weight, found = np.random.default_rng(1), BASE.copy(), []
    for _ in range(count):
        found.append({"fc": {"weight": weight}, "frozen": {"weight": BASE[:90]}})
        weight = weight + rng.normal(0, movement, weight.shape).astype(np.float32)
    return found


def errors(directory, originals):
    """The error of each step in movements."""
    found = []
    for step, state in enumerate(originals):
        weight, exact = Chain(directory).restore(step)["fc"]["weight"], state["fc"]["weight"]
        other = originals[step - 1 if step else 1]["fc"]["weight"]
        found.append(np.sqrt(np.mean((weight - exact) ** 2) / np.mean((exact - other) ** 2)))
    return found


def save_all(directory, originals, policy="balanced", foreseen=True, workers=None):
    with Chain(directory, policy, newest="history", workers=workers) as chain:
        for step, state in enumerate(originals):
            chain.save(step, state, following=originals[1] if foreseen and step == 0 else None)
    return sorted(directory.iterdir())


@pytest.mark.parametrize("policy", ["balanced", "small"])
@pytest.mark.parametrize("movement", [1e-5, 1e-3])
def test_no_step_is_many_movements_off(tmp_path, movement, policy):
    originals = states(movement)
    save_all(tmp_path / "run", originals, policy)
    assert max(errors(tmp_path / "run", originals)) < 2
    weight = Chain(tmp_path / "run").restore(0)["fc"]["weight"]
    assert np.count_nonzero(weight == 0) <= np.count_nonzero(np.abs(BASE) < movement)


def test_without_what_follows_it_is_far_off(tmp_path):
    originals = states(1e-5)
    save_all(tmp_path / "run", originals, foreseen=False)
    found = errors(tmp_path / "run", originals)
    assert found[0] > 20 and found[0] > 4 * min(found)


def test_what_does_not_move_is_exact(tmp_path):
    originals = states(1e-3)
    save_all(tmp_path / "run", originals)
    for step in range(4):
        np.testing.assert_array_equal(Chain(tmp_path / "run").restore(step)["frozen"]["weight"], BASE[:90])


def test_steps_that_take_as_many_bytes_as_exact_values_are_not_taken(tmp_path):
    originals = [{"weight": (BASE / 2**20).astype(np.float16) + np.float16(1)} for _ in range(2)]
    originals[1]["weight"].flat[0] += np.float16(2**-10)  # the movement is far below the resolution
    save_all(tmp_path / "run", originals)
    np.testing.assert_array_equal(Chain(tmp_path / "run").restore(0)["weight"], originals[0]["weight"])


@pytest.mark.slow
def test_workers_write_the_same_files(tmp_path):
    originals = states(1e-4, 3)
    here, there = (save_all(tmp_path / str(n), originals, workers=n) for n in (None, 1))
    assert [path.read_bytes() for path in here] == [path.read_bytes() for path in there]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [None, 1])
def test_what_follows_one_state_is_forgotten_when_its_save_fails(tmp_path, workers):
    one, other = states(1e-5, 2), states(1e-2, 2)
    options = {"newest": "history", "workers": workers}
    with Chain(tmp_path / "a", "balanced", **options) as chain:
        with pytest.raises(ArgumentError, match="a step must be an integer"):
            chain.save(-1, one[0], following=one[1])
        (tmp_path / "a").touch()
        with pytest.raises(StorageError):
            chain.save(0, one[0], following=one[1])
        (tmp_path / "a").unlink()
        chain.save(0, other[0])
    with Chain(tmp_path / "b", "balanced", **options) as chain:
        chain.save(0, other[0])
    left, right = (next((tmp_path / name).iterdir()).read_bytes() for name in "ab")
    assert left == right


def test_only_the_first_keyframe_is_foreseen(tmp_path):
    originals = states(1e-4, 3)
    save_all(tmp_path / "run", originals)
    with Chain(tmp_path / "other", "balanced", newest="history") as chain:
        for step, state in enumerate(originals):
            chain.save(step, state, following=originals[0 if step else 1])
    assert [unmeasured(p) for p in sorted((tmp_path / "run").iterdir())] == [
        unmeasured(p) for p in sorted((tmp_path / "other").iterdir())
    ]


@pytest.mark.parametrize(
    "policy", ["lossless", "lc-3", Policy("mine", {"weight": UniformDeadzone(share=0.1)})]
)
def test_exact_keyframes_stay_exact(tmp_path, policy):
    originals = states(1e-4, 2)
    with Chain(tmp_path / "run", policy) as chain:
        chain.save(0, originals[0], following=originals[1])
    np.testing.assert_array_equal(Chain(tmp_path / "run").restore(0)["fc"]["weight"], BASE)


def test_a_state_of_other_arrays_follows(tmp_path):
    one, other = {"fc": {"weight": BASE}}, {"fc": {"weight": BASE[:9]}, "new": {"weight": BASE}}
    for name, following in (("a", None), ("b", other)):
        with Chain(tmp_path / name, "balanced", newest="history") as chain:
            chain.save(0, one, following=following)
    left, right = (next((tmp_path / name).iterdir()).read_bytes() for name in "ab")
    assert left == right


@pytest.mark.slow
def test_a_chain_that_is_coded_anew_is_as_fine(tmp_path):
    originals = states(1e-5)
    save_all(tmp_path / "run", originals, "lossless")
    Chain(tmp_path / "run").compact("balanced", directory=tmp_path / "small")
    assert max(errors(tmp_path / "small", originals)) < 2

"""What was lost, as a plain computation finds it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lccodec
from lccodec.element_types import components
from lccodec.inspect.examination import examine
from lccodec.inspect.loss import guaranteed_error, measure_loss
from lccodec.parallel import PIECE

from ...support.paths import checkpoint_path
from ...support.runs import arrays_of, run_states, save_run


def lost(decoded, original, before=None):
    kind, bits = components(original)
    return measure_loss(components(decoded)[1], bits, None if before is None else components(before)[1], kind)


def test_error_and_bias_of_several_pieces():
    rng = np.random.default_rng(0)
    before = rng.normal(size=2 * PIECE + 3).astype(np.float32)
    original = before + rng.normal(size=before.size).astype(np.float32) / 100
    decoded = original - np.float32(0.3) * (original - before)
    found = lost(decoded, original, before)
    error, movement = decoded.astype(float) - original, original.astype(float) - before
    assert found.error == pytest.approx(np.linalg.norm(error) / np.linalg.norm(movement), rel=1e-9)
    assert found.bias == pytest.approx(
        np.sum(error * movement) / np.linalg.norm(error) / np.linalg.norm(movement)
    )
    assert found.largest == np.abs(error).max()
    assert found.bias < -0.99  # it trails


NUMBERS = st.floats(-1e6, 1e6, width=32).map(lambda x: 0.0 if abs(x) < 1e-6 else x)


@settings(deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=40), st.sampled_from(["f4", "f8"]))
def test_an_array_that_stays_behind_loses_its_movement(pairs, dtype):
    """What is decoded as the step before is off by one movement, and trails."""
    array, before = np.array(pairs, dtype).reshape(-1, 2).T.copy()
    found = lost(before, array, before)
    movement = np.abs(array.astype(float) - before)
    if movement.any():
        assert found.error == pytest.approx(1)
        assert found.bias == pytest.approx(-1)
        assert found.largest == movement.max()
    else:
        assert (found.error, found.bias) == (None, None)


def test_what_is_not_finite_is_left_out():
    found = lost(np.array([1.0, np.nan, 3.0]), np.array([1.5, 2.0, np.inf]), np.zeros(3))
    assert (found.error, found.largest) == (0.5 / 1.5, 0.5)
    assert lost(np.full(2, np.nan), np.ones(2), np.ones(2)).largest is None
    assert lost(np.array([5]), np.array([7])).largest == 2
    complex_loss = lost(np.array([1 + 1j]), np.array([1 + 0j]), np.array([0j]))
    assert (complex_loss.error, complex_loss.largest) == (1.0, 1.0)


def test_a_chain_beside_its_originals(tmp_path):
    states = run_states(6)
    policy = lccodec.Policy("bounded", {"weight": lccodec.UniformDeadzone(max_error=0.002)})
    chain = save_run(tmp_path / "run", states, policy=policy)
    save_run(tmp_path / "exact", states, policy="lossless")
    (run,) = examine(chain.directory, against=tmp_path / "exact").runs
    loss = run.loss
    assert loss.steps == run.steps
    assert loss.against == f"the states in {tmp_path / 'exact'}"
    restored = [arrays_of(chain.restore(step)) for step in run.steps]
    exact = [arrays_of(state) for state in states]
    together: dict[tuple[str, int], list] = {}
    for index, row in enumerate(run.arrays):
        assert loss.error[index][0] is None
        for place in range(len(restored)):
            error = restored[place][row.name].astype(float) - exact[place][row.name]
            assert loss.largest[index][place] == np.abs(error).max()
            if place:
                movement = exact[place][row.name].astype(float) - exact[place - 1][row.name]
                want = np.linalg.norm(error) / np.linalg.norm(movement)
                assert loss.error[index][place] == pytest.approx(want, rel=1e-9)
                if error.any():
                    bias = np.sum(error * movement) / np.linalg.norm(error) / np.linalg.norm(movement)
                    assert loss.bias[index][place] == pytest.approx(bias, abs=1e-9)
                else:
                    assert loss.bias[index][place] is None
                sums = np.array([np.sum(error**2), np.sum(movement**2)])
                together.setdefault((row.role, place), []).append(sums)
        if row.role == "weight":
            assert loss.bound[index] == 0.002
            assert max(loss.largest[index]) <= 0.002
        else:
            assert loss.bound[index] == 0.0
    for role, found in loss.roles.items():  # all elements count equally, as where a save measures
        assert found.steps[0] is None
        want = [np.sqrt(np.divide(*sum(together[role, place]))) for place in range(1, len(restored))]
        assert found.steps[1:] == pytest.approx(want)
        assert found.error == pytest.approx(np.mean(want))
    assert loss.roles["weight"].error > 0


def test_the_exact_file_is_an_original(tmp_path):
    states = run_states(4)
    chain = save_run(tmp_path / "run", states, newest="exact")
    (run,) = examine(chain.directory).runs
    assert (run.loss.steps, run.loss.against) == ([30], "the exact file of step 30")
    history, exact = arrays_of(chain.restore(exact=False)), arrays_of(states[-1])
    before = arrays_of(states[-2])
    for index, row in enumerate(run.arrays):
        error = history[row.name].astype(float) - exact[row.name]
        movement = exact[row.name].astype(float) - before[row.name]
        assert run.loss.largest[index] == [np.abs(error).max()]
        want = np.linalg.norm(error) / np.linalg.norm(movement)
        assert run.loss.error[index] == [pytest.approx(want, rel=0.01)]  # measured at the save
    assert run.loss.bound[0] is None


def test_an_original_that_is_missing_in_between(tmp_path):
    """The movement is then what the save measured, and after that from the original again."""
    states = run_states(4)
    chain = save_run(tmp_path / "run", states)
    exact = save_run(tmp_path / "exact", states, policy="lossless", keyframe_every=0)
    checkpoint_path(exact.directory, 10).unlink()
    (run,) = examine(chain.directory, against=exact.directory).runs
    assert run.loss.steps == [0, 20, 30]
    name = run.arrays[0].name
    restored = [arrays_of(chain.restore(step))[name].astype(float) for step in run.steps]
    originals = [arrays_of(state)[name].astype(float) for state in states]
    for place, accuracy in ((1, 0.01), (2, 1e-6)):
        step = place + 1
        error, movement = restored[step] - originals[step], originals[step] - originals[step - 1]
        want = np.linalg.norm(error) / np.linalg.norm(movement)
        assert run.loss.error[0][place] == pytest.approx(want, rel=accuracy)


def test_a_policy_of_another_version_has_no_bounds(tmp_path):
    chain = save_run(tmp_path / "run", run_states(2))
    from lccodec.inspect.loss import NOTHING_KNOWN, LossTable

    rows = examine(chain.directory).runs[0].arrays
    table = LossTable("", rows)
    assert table.loss([]) is None
    table.add(0, [NOTHING_KNOWN] * len(rows))
    loss = table.loss(["a policy of the future"])
    assert loss.bound == [None] * len(rows)
    assert loss.roles["weight"].error is None


def test_bounds_of_quantizers():
    assert guaranteed_error(lccodec.Lossless()) == 0.0
    assert guaranteed_error(lccodec.UniformDeadzone(max_error=0.5)) == 0.5
    assert guaranteed_error(lccodec.UniformDeadzone(step=0.5)) is None
    assert guaranteed_error(lccodec.ExponentBuckets(2)) is None
    assert guaranteed_error(lccodec.Triggered(lccodec.Lossless(), threshold=0.1)) is None

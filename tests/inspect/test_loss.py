"""What was lost, as a plain computation finds it.

Where originals come from, and what is made of those that do not fit.

What an import has lost, beside the same figures by hand.

The figures of a report are the run's: beside the states themselves, whatever a policy loses.
"""

from contextlib import closing
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lccodec
from lccodec import Chain
from lccodec.adapters import npz
from lccodec.adapters.files.states import FileOriginals
from lccodec.chain.read.replay import DecodedArray
from lccodec.chain.store.directory import BundleStore, DirectoryStore
from lccodec.constants import EXACT_NAME
from lccodec.container.checkpoint import open_checkpoint
from lccodec.element_types import components
from lccodec.inspect.examination import examine
from lccodec.inspect.inventory import open_source
from lccodec.inspect.loss import (
    ChainOriginals,
    ExactOriginals,
    guaranteed_error,
    import_loss,
    measure_loss,
    original_bits,
)
from lccodec.inspect.report import Run
from lccodec.parallel import PIECE

from ..support.digits import adam_digits
from ..support.paths import checkpoint_path
from ..support.runs import arrays_of, run_states, save_run
from ..support.walks import save_all


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


def roots(path):
    with open_checkpoint(path) as reader:
        return reader.roots


def test_states_of_a_chain_by_rising_step(tmp_path):
    states = run_states(5)
    chain = save_run(tmp_path / "run", states, policy="lossless")
    originals = ChainOriginals(open_source(chain.directory))
    assert list(originals.steps) == [0, 10, 20, 30, 40]
    for step in (0, 30):
        found = originals.state(step)
        for name, array in arrays_of(states[step // 10]).items():
            np.testing.assert_array_equal(found[name], array)
    assert originals.state(10) == {}  # it is past


def test_a_damaged_original_is_told_and_left_out(tmp_path):
    states = run_states(4)
    chain = save_run(tmp_path / "run", states)
    exact = save_run(tmp_path / "exact", states, policy="lossless", keyframe_every=0)
    path = checkpoint_path(exact.directory, 20)
    path.write_bytes(path.read_bytes()[:-1])
    (run,) = examine(chain.directory, against=exact.directory).runs
    assert run.loss.steps == [0, 10, 30]
    assert run.notes[0].startswith("The original of step 20 cannot be read: ")


def test_the_exact_file_of_a_chain_and_a_bundle(tmp_path):
    states = run_states(3)
    chain = save_run(tmp_path / "run", states, newest="exact")
    named = bytes.fromhex(chain.info(20).exact_root)
    lccodec.bundle(chain.directory, tmp_path / "run.lccb")
    with BundleStore(tmp_path / "run.lccb") as bundle:
        for store in (DirectoryStore(chain.directory), bundle):
            with closing(ExactOriginals.of(store, named)) as originals:
                assert list(originals.steps) == [20]
                found = originals.state(20)
                for name, array in arrays_of(states[-1]).items():
                    np.testing.assert_array_equal(found[name], array)
            assert ExactOriginals.of(store, None) is None


def test_without_a_sound_exact_file_there_is_no_original(tmp_path):
    chain = save_run(tmp_path / "run", run_states(3), newest="exact")
    named = bytes.fromhex(chain.info(20).exact_root)
    path = chain.directory / EXACT_NAME
    path.write_bytes(path.read_bytes()[:-1])
    assert ExactOriginals.of(DirectoryStore(chain.directory), named) is None
    path.unlink()
    assert ExactOriginals.of(DirectoryStore(chain.directory), named) is None
    lccodec.bundle(chain.directory, tmp_path / "run.lccb")
    with BundleStore(tmp_path / "run.lccb") as bundle:
        assert ExactOriginals.of(bundle, named) is None


def test_an_original_must_fit():
    kind, bits = components(np.ones((2, 3), np.float32))
    array = DecodedArray(kind, (2, 3), bits)
    fits = np.zeros((2, 3), np.float32)
    found = original_bits({"w": fits}, "w", array)
    assert found is not None
    assert not found.any()
    for other in (fits[:1], fits.astype(np.float64), 3, np.full((2, 3), "text"), np.zeros((2, 3), object)):
        assert original_bits({"w": other}, "w", array) is None
    assert original_bits({}, "w", array) is None


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


COUNT = 12
LOSSY = ("balanced", "small", "lc-2", "lc-3")


def rms(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))


def examined(directory: Path, policy: str, **options: int) -> tuple[lccodec.Chain, Run]:
    """The report of a network that learns, with a keyframe every four steps."""
    with lccodec.Chain(directory, policy, keyframe_every=3, **options) as chain:
        save_all(chain, adam_digits(COUNT))
    (run,) = examine(directory).runs
    return chain, run


def truth(index: int, run: Run) -> list[dict[str, float]]:
    """What an array did, by the states: a table of each step."""
    name = run.arrays[index].name
    arrays = [arrays_of(state)[name].astype(np.float64) for state in adam_digits(COUNT)]
    found = [{"rms": rms(x), "zeros": float(np.mean(x == 0))} for x in arrays]
    for figures, (before, x) in zip(found[1:], pairwise(arrays), strict=True):
        figures["movement"] = rms(x - before) / rms(before)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("policy", LOSSY)
def test_what_moved_and_what_was_lost(tmp_path: Path, policy: str) -> None:
    chain, run = examined(tmp_path, policy)
    states = [arrays_of(state) for state in adam_digits(COUNT)]
    restored = [arrays_of(chain.restore(step, exact=False)) for step in run.steps]
    for index, row in enumerate(run.arrays):
        own = {name: rows[index] for name, rows in run.figures.items()}
        for step, true in enumerate(truth(index, run)):
            x = states[step][row.name].astype(np.float64)
            assert own["rms"][step] == pytest.approx(true["rms"], rel=0.1)
            assert own["zeros"][step] == pytest.approx(true["zeros"], abs=0.02)
            assert own["minimum"][step] == pytest.approx(x.min(), rel=2**-8)
            assert own["maximum"][step] == pytest.approx(x.max(), rel=2**-8)
            assert own["not_finite"][step] == 0
            if not step:
                assert own["movement"][step] is own["error"][step] is own["lag"][step] is None
                continue
            assert own["movement"][step] == pytest.approx(true["movement"], rel=0.1)
            moved = x - states[step - 1][row.name]
            error = restored[step][row.name] - x
            intervals = rms(error) / rms(moved)
            assert own["error"][step] == pytest.approx(intervals, rel=0.1)
            lag = -float(np.sum(error * moved) / np.sum(moved * moved))  # at most `intervals`
            # Of a sample, whose products spread as the error does.
            share = 0.1 if row.role == "second_moment" else 0.05
            assert own["lag"][step] == pytest.approx(lag, abs=share * max(intervals, 1))


@pytest.mark.slow
@pytest.mark.parametrize("policy", LOSSY)
def test_layers_have_the_order_in_which_they_move(tmp_path: Path, policy: str) -> None:
    _, run = examined(tmp_path, policy)
    found = [fmean(filter(None, series)) for series in run.figures["movement"]]
    true = [fmean(f["movement"] for f in truth(i, run)[1:]) for i in range(len(run.arrays))]
    ranks = [np.argsort(np.argsort(values)) for values in (found, true)]
    assert np.corrcoef(*ranks)[0, 1] >= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("policy", LOSSY)
def test_a_keyframe_is_no_event(tmp_path: Path, policy: str) -> None:
    """No figure jumps by more than a fifth where the run's does not."""
    _, run = examined(tmp_path, policy)
    keyframes = [each.step for each in run.checkpoints if each.kind == "keyframe"][1:]
    assert keyframes
    for index, row in enumerate(run.arrays):
        true = truth(index, run)
        for name in ("movement", "rms"):
            own = run.figures[name][index]
            for step in [step for step in keyframes if step is not None]:
                jumps = [after / before for before, after in ((own[step - 1] or 1, own[step] or 1),)]
                real = true[step][name] / true[step - 1].get(name, true[step][name])
                assert jumps[0] == pytest.approx(real, rel=0.2), (row.name, step, name)
        assert max(run.figures["zeros"][index]) <= max(f["zeros"] for f in true) + 0.02


@pytest.mark.slow
def test_a_history_with_hindsight(tmp_path: Path) -> None:
    chain, run = examined(tmp_path, "balanced", hindsight=4)
    assert "interpolated" in {each.kind for each in run.checkpoints}
    for index, series in enumerate(run.figures["movement"]):
        for step, true in list(enumerate(truth(index, run)))[1:]:
            assert series[step] == pytest.approx(true["movement"], rel=0.1)
    assert chain.steps == run.steps

import numpy as np
import pytest
from hypothesis import given

from lccodec import ArgumentError, Chain, Policy, decode, encode
from lccodec.frame.content import MAX_SHARED_COMPONENTS
from lccodec.frame.header import parse_header
from lccodec.policy.presets import resolve_policy
from lccodec.quantizers.clusters import Clusters

from ..support.strategies import REALS, Pair, array_and_reference, bits_of


def heavy(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_t(3, size).astype(np.float32)


def test_the_three_tiers() -> None:
    array = heavy(100_000)
    restored = decode(encode(array, Clusters(centres=8, pruned=0.6, protected=0.01)))
    order = np.argsort(np.abs(array))
    assert (restored[order[:59_000]] == 0).all()
    assert (restored[order[99_200:]] == array[order[99_200:]]).all()
    between = restored[order[61_000:98_800]]
    assert len(np.unique(between)) == 8
    assert np.corrcoef(between, array[order[61_000:98_800]])[0, 1] > 0.97


def test_more_centres_are_nearer() -> None:
    array, reference = heavy(50_000), heavy(50_000, 1)
    errors = []
    for centres in (4, 16, 64):
        frame = encode(array, Clusters(centres, pruned=0.0), reference)
        assert parse_header(frame).method_name == "codebook"
        errors.append(np.std(decode(frame, reference) - array))
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_counts_or_magnitudes() -> None:
    """With sigma 1 the many small ones get the centres, with 0 the few large ones."""
    array = heavy(50_000)
    errors = {s: np.abs(decode(encode(array, Clusters(8, 0.0, 0.0, s))) - array) for s in (0.0, 1.0)}
    small = np.abs(array) < 1
    assert errors[1.0][small].mean() < errors[0.0][small].mean()
    large = np.abs(array) > 20
    assert errors[1.0][large].mean() > errors[0.0][large].mean()


@given(array_and_reference(REALS))
def test_any_array(pair: Pair) -> None:
    array, reference = pair
    restored = decode(encode(array, Clusters(4, 0.3, 0.1), reference), reference)
    with np.errstate(invalid="ignore"):
        hard = ~np.isfinite(array)
    np.testing.assert_array_equal(bits_of(restored[hard]), bits_of(array[hard]))


def test_the_whole_range_of_a_type() -> None:
    array = np.array([-8e-140, 5e24, 4e-258, 5e-324, 1.7e308, -1.7e308, -1e201, 2e-177] * 40)
    for settings in ((2, 0.0, 0.0), (8, 0.2, 0.0), (255, 0.0, 0.2)):
        restored = decode(encode(array, Clusters(*settings)))
        assert np.isfinite(restored).all()
        assert (np.sign(restored[np.abs(array) > 1e300]) == np.sign(array[np.abs(array) > 1e300])).all()


@pytest.mark.parametrize("sizes", [[500, 3, 1, 4000], [MAX_SHARED_COMPONENTS + 1]])
def test_in_a_chain(tmp_path: object, sizes: list[int]) -> None:
    policy = Policy("clusters", {"weight": Clusters(centres=16, pruned=0.2, protected=0.0)})
    assert resolve_policy(policy.to_json()) == policy
    with Chain(str(tmp_path), policy) as chain:
        for step in range(3):
            state = {f"w{i}": heavy(size, 10 * step + i) for i, size in enumerate(sizes)}
            chain.save(step, state)
            for name, restored in chain.restore(step).items():
                assert np.std(restored - state[name]) <= 0.3 * np.std(state[name])


@pytest.mark.parametrize(
    "settings",
    [{"centres": 1}, {"centres": 256}, {"pruned": -0.1}, {"sigma": 2}, {"pruned": 0.7, "protected": 0.3}],
)
def test_settings_are_checked(settings: dict[str, float]) -> None:
    with pytest.raises(ArgumentError, match="Clusters"):
        Clusters(**settings)

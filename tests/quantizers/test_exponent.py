import numpy as np
import pytest

from lccodec import ExponentBuckets
from lccodec.element_types import components
from lccodec.parallel import PIECE
from lccodec.quantizers.exponent import promotion_order
from lccodec.quantizers.residual import Residual


def representatives(values: np.ndarray, bits: int, sizes: list[int] | None = None) -> list[np.ndarray]:
    """What an encoder without a reference keeps of each array."""
    kind, stored = components(values)
    batch = Residual(stored, None, kind, sizes=None if sizes is None else np.array(sizes))
    partition = ExponentBuckets(bits).fit(batch)
    return np.split(partition.representatives, np.cumsum(partition.counts)[:-1])


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("count", [200, 2 * PIECE])
def test_as_many_as_the_bits_allow(bits: int, count: int) -> None:
    powers = np.ldexp(np.ones(220, np.float32), np.arange(-110, 110))
    (kept,) = representatives(np.resize(powers[-200:], count), bits)
    assert kept.tolist() == powers[::-1][: min(2**bits - 1, 200)].tolist()


def test_largest_exponent_first_and_of_equals_the_positive() -> None:
    values = np.array([8, -128, 128, -32], np.float32)
    assert representatives(values, 1)[0].tolist() == [128]
    assert representatives(values, 2)[0].tolist() == [128, -128, -32]
    order = promotion_order(np.array([3, 7, 7, 5]), np.array([False, True, False, True]))
    assert order.tolist() == [2, 1, 3, 0]


def test_fewer_buckets_than_symbols() -> None:
    assert representatives(np.array([-16], np.float32), 8)[0].tolist() == [-16]
    assert representatives(np.zeros(3, np.float32), 3)[0].size == 0


def test_each_array_of_a_batch_has_buckets_of_its_own() -> None:
    values = np.array([1, 2, -2, 0, 0, 1e-30, -1e30, 64], np.float32)
    kept = representatives(values, 1, [3, 2, 1, 2])
    assert [part.tolist() for part in kept] == [[2], [], [np.float32(1e-30)], [np.float32(-1e30)]]


@pytest.mark.parametrize("bits", [1, 3, 8])
@pytest.mark.parametrize("zeros", [0, 0.9])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_symbols_of_a_batch_are_those_of_each_array_alone(bits: int, zeros: float, dtype: type) -> None:
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 90, 60)
    # The exponents of some arrays lie far apart, and the numbers of others are subnormal.
    spread = np.repeat(rng.integers(0, np.finfo(dtype).maxexp - 3, sizes.size), sizes)
    values = np.ldexp(rng.standard_normal(spread.size), -rng.integers(0, spread + 1)).astype(dtype)
    values[rng.random(values.size) < zeros] = 0
    kind, stored = components(values)
    batch = Residual(stored, None, kind, sizes=sizes)

    def coded(residual: Residual) -> np.ndarray:
        part = ExponentBuckets(bits).fit(residual)
        places, differences = residual.outside(0, part.zone)
        symbols, unfit = part.symbols(differences, residual.owner(places))
        assert unfit is None
        found = np.zeros(residual.bits.size, np.uint8)
        found[places] = symbols
        return found

    assert coded(batch).tolist() == np.concatenate([coded(alone) for alone in batch.each()]).tolist()

"""The benchmark of fields, at a small size."""

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.simulations.chemistry import chemistry
from benchmarks.simulations.coders import CODERS, code, error_of, missing
from benchmarks.simulations.gray_scott import gray_scott
from benchmarks.simulations.measured import MEASURED
from benchmarks.simulations.program import goals, size_tables, time_table
from benchmarks.simulations.restarts import restart_chemistry, restart_simulation
from benchmarks.simulations.sedov import sedov
from benchmarks.simulations.simulation import Simulation
from benchmarks.simulations.sizes import BOUNDS, Case, measure_alone, measure_deltas


def test_a_blast_keeps_mass_momentum_and_energy() -> None:
    blast = sedov(32)
    early, late = blast.checkpoints(2)
    for name, before in early.items():
        drift = abs(float(late[name].sum() - before.sum()))
        assert drift <= 1e-12 * float(np.abs(before).sum()), name
    # The gas that the shock has met is denser, and symmetric as the blast is.
    density = late["density"]
    assert density.max() > 1.5
    assert np.allclose(density, density[::-1]) and np.allclose(density, density.T)


def test_a_reaction_spreads() -> None:
    reaction = gray_scott(16)
    start, later = reaction.start(), reaction.checkpoints(1)[0]
    assert np.count_nonzero(later["v"] > 1e-3) > np.count_nonzero(start["v"])
    assert later["u"].min() >= 0 and later["u"].max() <= 1


@pytest.mark.parametrize("make", [sedov, gray_scott])
def test_a_solver_goes_on_from_a_decoded_state(make: Callable[[int], Simulation]) -> None:
    simulation = make(24)
    own, runs = restart_simulation(simulation, (1e-2, 1e-9))
    assert own > 0
    assert [run.is_as_exact for run in runs][1]
    assert runs[0].ratio > runs[1].ratio > 1


def test_what_a_file_marks_as_missing_must_be_exact() -> None:
    field = np.array([1.0, np.nan, 1e20, 2.0])
    assert missing(field).tolist() == [False, True, True, False]
    assert error_of(np.array([1.5, np.nan, 1e20, 2.0]), field) == 0.5
    assert error_of(np.array([1.0, np.nan, 0.0, 2.0]), field) == np.inf


@pytest.mark.parametrize("coder", CODERS)
def test_a_coder_keeps_its_bound(coder: str) -> None:
    import blosc2  # noqa: F401 - and three more, which are what it needs
    import hdf5plugin  # noqa: F401
    import pcodec  # noqa: F401
    import zstandard  # noqa: F401

    x = np.linspace(0, 3, 40)
    field = np.sin(x)[:, None] * np.cos(2 * x)
    reference = field + 1e-2 * np.cos(x)
    field[3, 4:7] = 1e20
    for dtype in (np.float32, np.float64):
        values, before = field.astype(dtype), np.where(missing(field), field, reference).astype(dtype)
        for base in (None, before):
            coded = code(coder, values, 1e-3, base)
            assert coded.error <= 1e-3
            assert 0 < coded.bytes < values.nbytes
            assert coded.decoded.dtype == dtype and coded.decoded.shape == field.shape


def test_the_tables_have_every_bound() -> None:
    import blosc2  # noqa: F401 - as above
    import hdf5plugin  # noqa: F401
    import pcodec  # noqa: F401
    import zstandard  # noqa: F401

    case = Case("Gray-Scott", gray_scott(16).checkpoints(2))
    alone = [measure_alone(case, bound) for bound in BOUNDS]
    deltas = [measure_deltas(case, bound) for bound in BOUNDS]
    found = goals(alone, deltas)
    assert found[-1].measured == 0
    assert len(found) == 3 + 3 + 3 + 1  # the field is too small to be timed
    text = size_tables(alone, "Alone", tuple(CODERS)) + time_table(alone)
    assert all(f"| {bound:.0e} |" in text for bound in BOUNDS)
    assert "(!)" not in text


def test_chemistry_goes_on_from_decoded_matrices() -> None:
    import pyscf  # noqa: F401 - what it needs

    for restart in chemistry(small=True):
        exact, rough, fine = restart_chemistry(restart, (1e-2, 1e-9))
        assert exact.is_as_exact and fine.is_as_exact
        assert rough.ratio > fine.ratio


def test_measured_fields_are_read() -> None:
    import iris_sample_data  # noqa: F401 - what it needs; of the others, what is installed is read

    found = [values for field in MEASURED if (values := field.read()) is not None]
    assert found
    for values in found:
        assert values.dtype.isnative and values.ndim > 1 and values.dtype.kind == "f"

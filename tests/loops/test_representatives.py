"""Representatives added to a reference: both forms."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lccodec.element_table import ELEMENT_TYPES
from lccodec.element_types import ordered_steps
from lccodec.loops import representatives as loops

from ..support.strategies import REALS, random_array

KINDS = {kind.name: kind for kind in ELEMENT_TYPES}
TYPES = st.sampled_from(REALS)
SYMBOLS = st.sampled_from([np.uint8, np.uint16])


class Case:
    """Values, a reference, a codebook, and symbols at places."""

    def __init__(self, name: str, seed: int, size: int, ordered: bool, symbols: type, share: float) -> None:
        self.kind = kind = KINDS[name]
        rng = np.random.default_rng(seed)
        other = "uint16" if name == "bfloat16" else name
        self.original, self.reference = (
            random_array(other, (size,), seed + each, share).view(kind.bits) for each in range(2)
        )
        self.original[::3] = self.reference[::3]
        book = np.append(0, rng.standard_normal(9) * 10.0 ** rng.integers(-3, 3))
        with np.errstate(over="ignore"):
            table = book.astype(kind.work)
        self.table = ordered_steps(book, kind) if ordered else table
        self.places = np.flatnonzero(rng.random(size) < rng.random())
        self.symbols = rng.integers(0, 10, self.places.size).astype(symbols)
        self.fits = (rng.random(self.places.size) < 0.9).astype(np.uint8)
        self.is_native = loops.is_native(kind)


CASES = st.builds(
    Case,
    TYPES,
    st.integers(0, 2**32),
    st.integers(0, 40),
    st.booleans(),
    SYMBOLS,
    st.sampled_from([0, 0.2, 1.0]),
)


@given(CASES, st.sampled_from([math.inf, 0.1, 1e-3, 10.0]), st.booleans(), st.booleans())
def test_settled(case: Case, bound: float, relative: bool, in_place: bool) -> None:
    ordered = case.table.dtype == case.kind.bits
    relative |= ordered  # steps need a reference
    outcomes = []
    forms = [loops.settle_numpy, None]
    if case.is_native:
        forms.append(loops._settle_steps_loop if ordered else loops._settle_loop)
    for form in forms:
        symbols, fits, base = case.symbols.copy(), case.fits.copy(), case.reference.copy()
        result = base if in_place and relative else case.original ^ 1
        reference = base if relative else base[:0]
        arguments = symbols, fits, case.places, case.table, case.original, reference, result
        with np.errstate(all="ignore"):
            if form is None:
                escaped = loops.settle(*arguments, bound, case.kind.code)
            else:
                some = form(*arguments, loops.limit_of(bound, case.kind), case.kind.code)
                escaped = case.places[fits == 0] if some else case.places[:0]
        assert (result[escaped] == case.original[escaped]).all()
        outcomes.append([each.tolist() for each in (symbols, result, escaped)])
    assert all(outcome == outcomes[0] for outcome in outcomes)


@given(CASES)
def test_sums_at_places(case: Case) -> None:
    ordered = case.table.dtype == case.kind.bits
    loop = [loops._add_sums_loop] if case.is_native and not ordered else []
    outs = []
    for form in (loops._add_sums_numpy, loops.add_sums, *loop):
        out = case.reference.copy()
        with np.errstate(all="ignore"):
            form(case.symbols, case.places, case.table, out, case.kind.code)
        outs.append(out.tolist())
    assert all(out == outs[0] for out in outs)

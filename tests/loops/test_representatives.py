"""Representatives added to a reference: both forms."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lccodec.loops import representatives as loops

from ..support.representatives import CASES, Case


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

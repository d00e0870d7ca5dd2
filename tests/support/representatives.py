"""What loops over representatives are given: symbols, their table, and where they go."""

import numpy as np
from hypothesis import strategies as st

from lccodec.constants import ELEMENT_TYPES
from lccodec.element_types import ordered_steps
from lccodec.loops import representatives as loops

from .strategies import REALS, random_array

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

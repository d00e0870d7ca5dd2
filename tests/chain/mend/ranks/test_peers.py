"""How ranks talk, where there is only one, and what becomes of its errors."""

from __future__ import annotations

import numpy as np
import pytest

from lccodec import ChainError
from lccodec.chain.mend.ranks import Alone, Trouble


def test_one_rank_talks_to_itself() -> None:
    peers = Alone()
    piece = np.arange(9, dtype=np.uint8)
    assert peers.gather("a") == ["a"]
    assert peers.exchange([piece], [9])[0] is piece


def test_the_first_error_is_kept_and_others_are_raised() -> None:
    trouble = Trouble()
    assert trouble.told(Alone()) == []
    for error in (ChainError("first"), MemoryError(), OSError(5, "second")):
        with trouble.noted():
            raise error
    assert trouble.told(Alone()) == ["first"]
    with pytest.raises(RuntimeError), trouble.noted():
        raise RuntimeError("of torch")

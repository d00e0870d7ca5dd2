"""Heads of arrays: found without decoding, and all of a run at once."""

from __future__ import annotations

import lccodec
from lccodec.chain.read.links import array_heads

from ...support.links import FakeLink, drift, links_of


def test_the_heads_of_a_run_are_found_together() -> None:
    calls = []

    class Counted(FakeLink):
        @property
        def members(self) -> list[list[int]]:
            calls.append(1)
            return super().members

    links, _ = links_of(drift(3, ((5,),) * 50), lccodec.Lossless())
    counted = [Counted(link.numbers, link.frames, link.place) for link in links]
    heads = array_heads(counted)
    assert [head.shape for head in heads.values()] == [(5,)] * 50
    assert len(calls) <= 3

"""Huffman runs as they are stored: what is refused, mostly before a code is looked at."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from lccodec.cursor import Cursor
from lccodec.entropy.huffman import choose_lengths
from lccodec.entropy.lane_run import read_run
from lccodec.entropy.lanes import decode, encode
from lccodec.errors import DataError, FormatError, LimitError


@pytest.mark.parametrize(
    ("stored", "error", "rule"),
    [
        (b"\x00\x01", FormatError, "LCC-HUF-02"),  # one symbol is no code
        (b"\x01\x21\x01\x00\x01\x00\x00\x00", FormatError, "LCC-HUF-02"),  # lengths 1 and 2 leave a code over
        (b"\x02\x11\x01\x01\x00\x01\x00\x00\x00", FormatError, "LCC-HUF-02"),  # three codes of one bit
        (b"\x03\x11\x00\x01\x00\x01\x00\x00\x00", FormatError, "LCC-HUF-04"),  # the last symbol has no code
        (
            b"\x02\x11\x12\x01\x00\x01\x00\x00\x00",
            FormatError,
            "LCC-HUF-04",
        ),  # the spare half byte is not zero
        (b"\x01\x11\x00\x00\x01\x00\x00\x00", LimitError, "LCC-LAN-02"),  # no lanes
        (b"\x01\x11\x09\x00\x01\x00\x00\x00", LimitError, "LCC-LAN-02"),  # more lanes than symbols
        (b"\x01\x11\x01\x00\x01\x00\x09\x00", FormatError, "LCC-LAN-03"),  # sizes of 9 bits
        (b"\x01\x11\x02\x00\x01\x00\x01\x04\x03\x03", FormatError, "LCC-LAN-03"),  # a bit behind the sizes
        (b"\x01\x11\x01\x00\x02\x00\x00\xff\xff", FormatError, "LCC-LAN-04"),  # a byte too many
        (b"\x01\x11\x01\x00\x01\x00\x00\x18", FormatError, "LCC-LAN-04"),  # padding that is not zero
    ],
)
def test_broken_runs_name_their_rule(stored: bytes, error: type[DataError], rule: str) -> None:
    with pytest.raises(error) as caught:
        decode(read_run(Cursor(memoryview(stored), "run"), 4))
    assert caught.value.rule == rule


def test_every_prefix_is_truncated() -> None:
    data = np.random.default_rng(0).integers(0, 9, 400).astype(np.uint8)
    counts = np.bincount(data, minlength=256)
    stored = b"".join(encode(data, counts, choose_lengths(counts)))
    for length in range(len(stored)):
        with pytest.raises(DataError) as caught:
            read_run(Cursor(memoryview(stored[:length]), "run"), 400)
        assert caught.value.rule == "LCC-FRM-02"


def test_more_symbols_than_stored_bits_take_no_memory() -> None:
    stored = b"\x01\x11" + b"\x00\x20\x00\x00\x00"  # codes of one bit; 8,192 lanes of no bytes
    tracemalloc.start()
    with pytest.raises(FormatError, match="LCC-LAN-04"):
        read_run(Cursor(memoryview(stored), "run"), 1 << 24)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20

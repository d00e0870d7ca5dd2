"""Streams of symbols that are read to their end."""

import numpy as np

from lccodec.cursor import Cursor
from lccodec.entropy.runs import dense
from lccodec.entropy.stream_reader import read_stream


def read(stored: bytes, count: int) -> np.ndarray:
    cursor = Cursor(memoryview(stored), "stream")
    symbols = dense(read_stream(cursor, count), count)
    assert cursor.remaining == 0
    return symbols

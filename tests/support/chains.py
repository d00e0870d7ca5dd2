"""Chains of tests about the history: without an exact file, a restore returns what it holds."""

from functools import partial

from lccodec import Chain

#: A `Chain` that keeps the history alone.
HistoryChain = partial(Chain, newest="history")

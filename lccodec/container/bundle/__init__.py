"""Checkpoint files, verbatim, in one file (SPEC 9, LCC-BUN).

- `index`: where each of them lies; `bundle`: an open bundle; `writer`: a new one.
"""

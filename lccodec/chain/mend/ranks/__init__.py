"""Parity for the chains of ranks, whose files form groups across them.

- `groups`: which files are a group, and their parity made, renewed and removed by one process.
- `together`: the same by all ranks at a time; `stripes`: one group in the making by each of them;
  `peers`: how they talk.
"""

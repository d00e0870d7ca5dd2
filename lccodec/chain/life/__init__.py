"""What takes checkpoints out of a chain, or into another: one verb a file.

- `rollback`: later steps are taken out, where they are kept, and how they come back.
- `transfer`: a new chain from a step; a chain in one file, and back.
- `prune`: which steps stay, as pins, links and a rule say, and the others go.
- `compact`: the same state in a new file, which others need; a finished run for fewer bytes, or for
  shallower restores.
"""

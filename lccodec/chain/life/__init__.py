"""What takes checkpoints out of a chain, or into another: one verb a file.

- `rollback`: later steps are taken out, where they are kept, and how they come back.
- `transfer`: a new chain from a step; a chain in one file, and back.
- `pins`: single steps that stay; `prune`: a rule for which steps stay, and the others go.
- `compact`: the same state in a new file, which others need; a finished run for fewer bytes, or for
  shallower restores.
"""

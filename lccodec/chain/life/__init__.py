"""What takes checkpoints out of a chain, or into another: one verb a file.

- `rollback`: later steps are taken out, where they are kept, and how they come back.
- `fork`: a new chain from a step; `bundle`: a chain in one file, and back.
- `pins`: single steps that stay; `prune`: a rule for which steps stay, and the others go.
- `compact`: a finished run for fewer bytes, or for shallower restores.
- `rewrite_step`: the same state in a new file, which `prune` and `compact` need.
"""

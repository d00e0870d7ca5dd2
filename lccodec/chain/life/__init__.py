"""What takes checkpoints out of a chain, or into another: one verb a file.

- `rollback`: later steps are taken out; `set_aside`: where they are kept, and how they come back.
- `fork`: a new chain from a step; `bundle`: a chain in one file, and back.
- `keep`: a rule for which steps stay; `pins`: single steps that stay; `prune`: the others go.
- `compact`: a finished run for fewer bytes, or for shallower restores.
- `rewrite_step`: the same state in a new file, which `prune` and `compact` need.
- `lifetime`: the methods of `Chain` that call these.
"""

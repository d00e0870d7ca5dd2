"""Where the checkpoints of a chain are.

- `directory`: the files of a chain and their steps, in a directory or in a bundle.
- `claim`: one process at a time saves.
- `parents`: what a step needs; children are removed before their parents.
"""

"""A save of some arrays: the others are the parent's, and take no bytes.

- `selection`: which arrays of a state are saved, and where they lie in the parent's.
- `inherit`: what a checkpoint takes from its parent.
"""

"""What adapters of frameworks share: states as NumPy arrays and a note, and back.

`plain` converts a state, `values` has the Python values that it knows. `matching` says which entry
of a state belongs to which entry of a target, `shards` how shards of processes go together. Imports
no framework.
"""

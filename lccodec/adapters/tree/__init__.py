"""What adapters of frameworks share: states as NumPy arrays and a note, and back.

`plain` converts a state, `values` lists the Python values that it knows. Imports no framework.
"""

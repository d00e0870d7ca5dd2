"""What adapters of frameworks share: states as NumPy arrays and a note, one file, and back.

`plain` converts a state, `values` lists the Python values that it knows, and `single_file` has the
verbs that save and load one file. Imports the chain and what is below it, no framework.
"""

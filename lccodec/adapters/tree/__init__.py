"""What adapters of frameworks share: a state of any values as one of NumPy arrays and a note, and back.

`plain` is the conversion, `values` the values of Python that it knows, `single_file` the verbs that save and
load one file. Imports the chain and what is below it, no framework.
"""

"""What adapters of frameworks share: a state of any values as one of NumPy arrays and a note, and back.

`plain` is the conversion, `values` the values of Python that it knows. Imports the container and what is
below it, no framework.
"""

"""What adapters of frameworks share: a state of any values as one of NumPy arrays and a note, and back.

Imports the container and what is below it, no framework.
"""

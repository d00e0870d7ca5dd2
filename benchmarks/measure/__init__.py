"""How times are measured, and how figures are shown, compared, and kept as data in `results`.

Imports nothing of the other folders.
"""

"""Solvers, measured fields, what they take beside others at one error, restarts: `fields.py`.

Imports `measure` and `compressors`.
"""

"""What parity takes, beside copies of the same bytes: `parity.py`.

Imports `measure`.
"""

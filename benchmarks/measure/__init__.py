"""How times are measured, and how figures are shown, stored, compared and put into RESULTS.md.

Imports nothing of the other folders.
"""

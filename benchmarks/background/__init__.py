"""What saving in the background costs the run, and what workers gain: `overlap.py`.

Imports `measure`, `networks` and, for writers beside and small helpers, `speed`.
"""

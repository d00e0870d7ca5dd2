"""How values are divided into bins, which all quantizers share.

- `residual`: the values less their reference; `grid`: equal bins with a dead zone.
- `representatives`: the values that stand for bins.
"""

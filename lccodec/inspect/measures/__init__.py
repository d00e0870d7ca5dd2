"""What is measured of the arrays of a run.

- `trajectory`: all of it, from one checkpoint to the next.
- `movement`: how far arrays moved; `bins`: how their values spread; `rank`: of their change.
- `loss`: what was lost, against the `originals`.
"""

"""What checkpoints do to training: `training.py` and `lenet.py`, their measurements and tables.

Imports `measure`, `networks` and `schemes`.
"""

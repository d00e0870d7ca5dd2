"""What it takes to bring a trainer's weights to an engine: `follow.py`.

Imports `measure`, `networks` and `speed`.
"""

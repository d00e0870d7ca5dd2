"""Averages of the weights along a run.

- `shares`: which steps an average takes, and what each of them counts.
- `average`: the weighted mean of them, in the memory of about one state.
"""

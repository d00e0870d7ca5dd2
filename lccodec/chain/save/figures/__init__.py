"""Figures: how arrays are spread, how far they moved, and what their restored values lost.

- `measurement`: what a checkpoint makes of a state; `sums`: the figures of many arrays at once.
- `sampling`: which elements stand for the others; `drawing`: those that are drawn by their size.
- `extremes`: the least and the greatest of all elements.
- `rounding`: numbers as a manifest stores them.
"""

"""Hindsight: a history is saved in groups, and what lies within one is coded again from both ends.

- `groups`: which saves are ends, and when a group is settled.
- `settle`: coding again what lies between two ends.
"""

"""Hindsight: a history is saved in groups, and what lies within one is coded again from both ends.

- `groups`: which saves are ends, and when a group is settled.
- `settle`: what is to be coded again, and in which order; `group`: how.
"""

"""Checkpoints that lead to a state: `Chain`, its plans and jobs, replay, open checkpoints, validation.

Imports the container, the policy, and what is below them (SPEC 9).
"""

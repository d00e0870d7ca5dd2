"""Saves beside the caller: a call copies the state, and worker processes do the rest.

- `background`: what runs, what waits, and what failed.
- `state_copy`: the state at the call, in memory that workers share.
- `client` and `worker`: the two ends of the way to a worker.
"""

"""The exact file: the newest state bit for bit, beside the checkpoint of its step.

- `newest`: its owner in a chain that saves, which says when it is due.
- `write`: how it gets to the disk.
- `anew`: it from the checkpoint of its step, and that checkpoint from it.
"""

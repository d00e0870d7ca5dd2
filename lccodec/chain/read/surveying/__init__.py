"""Every checkpoint of a store, each read and decoded once.

- `survey`: checkpoints as they are met, parents before their children.
- `walk`: their order, and the state of each on top of what its parents have left.
"""

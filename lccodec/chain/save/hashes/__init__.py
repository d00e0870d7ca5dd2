"""A reference that is hashes of the parent's values, not the values: for states too large for two.

- `kinds`: what a chain may be asked for.
- `segments`: the hashes of an array, and which segments of it differ.
- `parent`: values of the parent, some segments at a time, where they are needed.
- `encode`: the frames of a save, and the hashes of what they hold.
- `places`: where new arrays lie in the file of values.
- `anew`: the hashes of a checkpoint, made of its files where they are not kept.
- `kept`: the files beside the chain from which another process goes on.
- `reference`: all of it together, as a saver uses it.
"""

"""From files to a state. Nothing is written.

- `links`: a file as a link of a chain, what is wrong with its parent, and the heads of arrays.
- `replay`: which frames arrays need, and decoding along the links; `crew`: who decodes what.
- `info`: what is known without decoding.
- `checkpoint`: an open checkpoint with its parents, and its leaves one after the other.
- `newest`: the newest state bit for bit, and which file a restore takes.
- `average`: a mean of checkpoints; `follow`: a state that is kept at the newest step.
- `survey`: every checkpoint of a store, each read once; `walk` decodes it.
- `validate`: all problems in a store.
"""

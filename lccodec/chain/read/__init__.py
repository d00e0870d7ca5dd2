"""From files to a state. Nothing is written.

- `links`: one file as a link of a chain, and what is wrong with its parent.
- `needed`: which frames arrays need, and parts of a large array that can be decoded apart.
- `replay`: decoding along the links; `crew`: who decodes what, if several do.
- `heads`: type, shape and method of arrays; `info`: what is known without decoding.
- `checkpoint`: an open checkpoint with its parents; `arrivals`: its leaves one after the other.
- `newest`: the newest state bit for bit, and which file a restore takes.
- `average`: a mean of checkpoints; `follow`: a state that is kept at the newest step.
- `survey`: every checkpoint of a store, each read once; `validate`: all problems in it.
"""

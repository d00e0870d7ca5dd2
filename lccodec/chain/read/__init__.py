"""From files to a state. Nothing is written.

- `links`: a file as a link of a chain, what is wrong with its parent, and the heads of arrays.
- `replay`: which frames arrays need, and decoding along the links; `rows`: some rows of an array;
  `crew`: who decodes what.
- `info`: what is known without decoding.
- `checkpoint`: an open checkpoint with its parents, its leaves one after the other, and which file
  a restore takes.
- `average`: a mean of checkpoints.
- `follower`: waits for the next step, and hands out what is new; `followed_state`: what it keeps;
  `follow_crew`: who reads the frames of an update.
- `survey`: every checkpoint of a store, each read once; `validate`: all problems in a store.
"""

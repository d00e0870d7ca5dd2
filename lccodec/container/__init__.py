"""One checkpoint file: tree, scalars, manifest, trailer, the HDF5 around them, reader, writer.

Reads and writes without libhdf5 (SPEC 8). Imports the frame and what is below it; of the policy,
the roles alone. From the bottom up:

- `system`: the calls of the operating system, and places; `source`: bytes that are read by pieces.
- `folder`: names in a directory, and files that are there whole or not at all; `scratch`: files of
  which nothing is promised.
- `tree`: nested states, those of frameworks, scalars, JSON and base64; `piece_table`: entries and
  pieces of frames; `manifest`: what a file holds, and what the save measured.
- `checkpoint`: one file, read and written; `bundle`: many in one; `parity`: what mends them.
"""

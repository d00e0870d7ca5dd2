"""Files on the disk: read by pieces, written whole or not at all.

- `system`: the calls of the operating system, and their errors; `folder`: names in a directory.
- `source`: bytes that are read by pieces; `whole_file`: a file that is there whole or not at all.
- `duplicate`: a second name of a file, or a copy.
"""

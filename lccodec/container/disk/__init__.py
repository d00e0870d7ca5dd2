"""Files on the disk: read by pieces, written whole or not at all.

- `system`: the calls of the operating system, and their errors; `address`: where files may be.
- `folder`: names in a directory; `temporary`: folders that the next process removes after a kill.
- `source`: bytes that are read by pieces; `whole_file`: a file that is there whole or not at all.
- `scratch`: a file of which nothing is promised.
"""

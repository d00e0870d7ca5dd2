"""Where the files of a chain are kept.

- `store`: what every store can do, by the names of files: which step a file holds or pins.
- `directory`, `bucket`: stores that can be saved to, with what rollbacks have set aside. The first
  has the bundle, too, which is only read, and says which store a place has.
- `claim`: one process at a time saves.
- `lineage`: which step needs which; children are removed before their parents.
"""

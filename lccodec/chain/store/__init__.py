"""Where the files of a chain are kept.

- `store`: what every store can do, by the names of files.
- `directory`, `bundle`, `bucket`: the stores there are; `opening`: which one a place has.
- `shelf`: what rollbacks have set aside.
- `names`: which step a file holds or pins.
- `claim`: one process at a time saves.
- `lineage`: which step needs which; children are removed before their parents.
"""

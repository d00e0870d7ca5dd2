"""A mirror: a second store with the files of a chain, copied behind the saves.

- `transfer`: what a mirror lacks is copied; the newest step comes back from one.
- `behind`: threads that do so behind the saves of a `Chain`.
- `stand_in`: files of a mirror are read in the place of those that are damaged or missing.

A mirror is never trusted without roots: what is copied is read again where it arrived, and only
then has its name there. Nothing is ever removed from one place because the other has removed it.
"""

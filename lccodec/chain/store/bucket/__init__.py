"""Object stores as stores of a chain: S3, Google, Azure, and any file system of fsspec.

- `keys`: the names of objects, and what a listing says; no network.
- `backend`: the few calls that a store needs; `obstore`, `web`, `fsspec`: who makes them.
- `patience`: attempts, and several requests at a time; `cache`: what is kept of what was read.
- `source`: one file by ranges; `writer`: a file that is committed; `store`: all files.
- `lease`, `claim`: who may write; `shelf`: what rollbacks have set aside.
- `connect`: from an address to a store.
"""

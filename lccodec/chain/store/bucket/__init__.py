"""Object stores as stores of a chain: S3, Google, Azure, and any file system of fsspec.

- `keys`: the names of objects, and what a listing says; no network.
- `backend`: the few calls that a store needs, attempts, and who makes them.
- `source`: one file by ranges, and what is kept of it; `claim`: who may write.
- `store`: all files of a chain, how one is committed, and what rollbacks have set aside.
"""

"""How many requests and bytes a chain in an object store takes, and how long.

Run ``python benchmarks/buckets.py s3://bucket/prefix``; ``benchmarks/README.md`` explains it.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.speed.buckets import main

    sys.exit(main())

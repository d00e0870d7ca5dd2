"""What a lossy state costs the run that goes on from it, in intervals, on many kinds of runs.

Run ``python benchmarks/promise.py --data DIR``; ``benchmarks/README.md`` explains the tables.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.promise.program import main

    sys.exit(main())

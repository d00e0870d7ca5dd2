"""Throughput of lccodec beside np.copyto of the same bytes, other compressors and writers.

Run ``python benchmarks/throughput.py [--quick]``; ``benchmarks/README.md`` explains the tables.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.speed.program import main

    sys.exit(main())

"""What parity and mirrors take: arithmetic, protecting and repairing a chain, recovery.

Run ``python benchmarks/parity.py [--quick]``; ``benchmarks/README.md`` explains it.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.mending.program import main

    sys.exit(main())

"""Fields of simulations and measurements: bytes beside SZ3 and others, restarts of the solvers.

Run ``python benchmarks/fields.py [--quick]``; ``benchmarks/README.md`` explains the tables.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.simulations.program import main

    sys.exit(main())

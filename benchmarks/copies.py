"""What the rounded copy of the weights of a run in mixed precision costs a chain.

Run ``python benchmarks/copies.py``; ``benchmarks/README.md`` explains the table.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.trials.copies import main

    sys.exit(main())

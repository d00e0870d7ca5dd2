"""Real training, restored: lccodec beside the schemes of the literature on the same states.

Run ``python benchmarks/training.py --data DIR``; ``benchmarks/README.md`` explains the tables.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.trials.program import main

    sys.exit(main())

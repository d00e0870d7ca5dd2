"""What an average of the weights costs a chain, and what a lossy average costs its loss.

Run ``python benchmarks/averages.py``; ``benchmarks/README.md`` explains the table.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.trials.averages import main

    sys.exit(main())

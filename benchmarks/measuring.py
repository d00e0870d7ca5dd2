"""What the figures of a save take of its time.

Run ``python benchmarks/measuring.py [--saves 15]``; ``benchmarks/README.md`` explains it.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.speed.measuring import main

    sys.exit(main())

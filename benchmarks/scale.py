"""How long a chain of many checkpoints takes to open, list, restore and thin out.

Run ``python benchmarks/scale.py [--checkpoints 1000]``; ``benchmarks/README.md`` explains it.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.speed.many import main

    sys.exit(main())

"""What a state costs that lies in a group of a history with hindsight, in intervals.

Run ``python benchmarks/hindsight.py --data DIR``; ``benchmarks/README.md`` explains the tables.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.promise.hindsight import main

    sys.exit(main())

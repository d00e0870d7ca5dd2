"""What a weight update takes to publish, to prepare and to apply, and in how many bytes.

Run ``python benchmarks/follow.py --data DIR``; ``benchmarks/README.md`` explains the table.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.sync.program import main

    sys.exit(main())

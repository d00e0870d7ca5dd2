"""What saves of a large table take of which few rows change between two of them, as of embeddings.

Run ``python benchmarks/tables.py [--rows 1e6]``; ``benchmarks/README.md`` explains the table.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.speed.tables import main

    sys.exit(main())

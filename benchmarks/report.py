"""What a report of a chain takes to make, and to open in a browser.

Run ``python benchmarks/report.py --data DIR [--quick]``; ``benchmarks/README.md`` explains it.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.pages.program import main

    sys.exit(main())

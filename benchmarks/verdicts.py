"""How often a report names the step at which a run was broken on purpose.

Run ``python benchmarks/verdicts.py --data DIR [--quick]``; ``benchmarks/README.md`` explains it.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.pages.verdicts import main

    sys.exit(main())

"""What saves cost a training loop, and what workers gain: beside torch.save, DCP and Orbax.

Run ``python benchmarks/overlap.py --data DIR [--quick]``; ``benchmarks/README.md`` explains it.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.background.program import main

    sys.exit(main())

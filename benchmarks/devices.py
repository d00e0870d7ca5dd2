"""What saves and followers cost a model on an accelerator.

Run ``python benchmarks/devices.py`` where PyTorch sees one; ``benchmarks/README.md`` explains it.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.background.devices import main

    sys.exit(main())

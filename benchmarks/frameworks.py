"""What the adapters cost over the NumPy path, and what importing the package costs over NumPy.

Run ``python benchmarks/frameworks.py [--million 8] [--rounds 9]``.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.speed.frameworks import main

    main()

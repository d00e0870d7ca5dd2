"""LeNet-5 on MNIST: 50 checkpoints of a real training run through the public API of lccodec.

Run ``python benchmarks/lenet.py --data DIR``; ``benchmarks/README.md`` explains the table.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the folder that holds benchmarks/
    from benchmarks.trials.policies import main

    main()

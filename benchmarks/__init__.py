"""Benchmarks: the programs lie here, what they are made of in folders, lowest first.

`measure`, `compressors` and `networks` import no other folder; `schemes` imports `compressors`;
`trials` and `speed` lie on top and import each other not at all. README.md says how to run them.
"""

import os

# A figure is of one form of the loops, from the first call to the last: LCCODEC_KERNELS says which.
os.environ.setdefault("LCCODEC_KERNELS", "numpy")

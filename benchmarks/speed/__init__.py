"""How fast lccodec is: `throughput.py` and `frameworks.py`, a module for each section.

Imports `measure`, `compressors` and, to train LeNet-5 first, `networks`.
"""

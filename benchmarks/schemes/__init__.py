"""Ways to checkpoint behind one interface: lccodec's policies, those of papers, compressors.

Imports `compressors`.
"""

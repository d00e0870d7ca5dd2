"""Benchmarks: the programs lie here, what they are made of in folders, lowest first.

`measure`, `compressors` and `networks` import no other folder; `schemes` imports `compressors`;
`trials` and `speed` lie on top and import each other not at all. README.md says how to run them.
"""

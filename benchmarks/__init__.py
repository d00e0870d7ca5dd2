"""Benchmarks: scripts that import one another by their bare names, in a package for the sake of pytest."""

"""One array, or one run of small arrays, to one byte string with checksums, and back (SPEC 6).

All below this folder works on arrays, all above it carries frames. Imports entropy and quantizers.
"""

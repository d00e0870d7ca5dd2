"""One array, or one run of small arrays, to one byte string with checksums, and back (SPEC 6).

The waist of the package: all below works on arrays, all above carries frames. Imports entropy and quantizers.
"""

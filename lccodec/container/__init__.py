"""One checkpoint file: tree, scalars, manifest, trailer, the HDF5 around them, reader, writer.

`disk` has the files that they lie in, `bundle` many of them in one file. Reads and writes without
libhdf5 (SPEC 8). Imports the frame and what is below it, not the policy.
"""

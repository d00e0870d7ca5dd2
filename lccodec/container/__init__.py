"""One checkpoint file: tree, scalars, manifest, trailer, the HDF5 around them, reader, writer.

And a bundle of such files: `bundle_index`, `bundle`, `bundle_writer`. Reads and writes without
libhdf5 (SPEC 8). Imports the frame and what is below it, not the policy.
"""

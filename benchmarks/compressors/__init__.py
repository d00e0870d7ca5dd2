"""Compressors of one array by others, behind one interface, for `schemes` and for `speed`.

Imports nothing of the other folders; a package is imported where its compressor is made.
"""

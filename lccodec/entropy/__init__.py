"""Symbols to bytes and back: gaps, classes, canonical Huffman codes in lanes, bits.

A stream is what `stream_writer` makes of symbols and `stream_reader` makes symbols of again (SPEC 6.4 and 7).
Imports the package's ground floor only.
"""

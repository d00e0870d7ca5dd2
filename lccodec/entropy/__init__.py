"""Symbols to bytes and back: streams of sparse symbols, classes, canonical Huffman codes, bits.

`stream_writer` makes a stream of symbols, `stream_reader` makes symbols of a stream (SPEC 6.4, 7).
Imports only the modules that lie in no folder.
"""

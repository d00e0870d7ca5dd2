"""Symbols to bytes and back: streams of sparse symbols, classes, canonical Huffman codes, bits.

`stream_writer` makes a stream of symbols, `stream_reader` makes symbols of a stream (SPEC 7.1 to
7.4). Imports only the modules that lie in no folder.
"""

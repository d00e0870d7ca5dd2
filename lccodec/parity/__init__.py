"""Erasure code over blocks of equal length: Cauchy Reed-Solomon in GF(256) (SPEC 9, LCC-PAR).

Arrays in, arrays out: nothing here knows files. Imports nothing but the ground floor.

`code`: numbers of GF(256), parity of blocks, and blocks from parity.
"""

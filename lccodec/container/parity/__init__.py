"""Parity files: what mends damaged checkpoint files, in files of its own (SPEC 9, LCC-PAR).

- `layout`: where the blocks of the files of a group lie, and what they were;
  `parity_file`: one parity file, read and written.
"""

"""What is done against damage: parity beside a chain, and what is lost mended from it.

- `parity_folder`: the parity files of a chain, and blocks of the files of their groups.
- `protect`: how much parity there is; it is made, renewed and removed; `behind`: behind the saves,
  and whether parity gives a file back, which a save asks.
- `damage`: what is damaged; `repair`: files are mended from parity, mirrors and the exact file.
- `ranks`: the same for the chains of ranks.
"""

"""What is done against damage: parity beside a chain, and what is lost mended from it.

- `parity_folder`: the parity files of a chain; `blocks`: blocks of its files, in bands of rows.
- `redundancy`: how much parity there is, and the layout of a group.
- `homes`: which chain a file of a group belongs to.
- `protect`: parity is made, renewed and removed; `repair`: files are mended from it.
- `from_mirror`, `from_exact`: files that parity could not mend, from other copies.
- `ranks`: the same for the chains of ranks.
- `behind`: parity behind the saves of a `Chain`.
- `coming_back`: whether a repair gives a file back, which a save asks.
- `salvage`: what still verifies of a chain that cannot be mended, in a new chain.
"""

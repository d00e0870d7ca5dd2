"""What is done against damage: parity beside a chain, mirrors, and what is lost mended from them.

- `parity_folder`: the parity files of a chain, the files of their groups, and what parity gives.
- `protect`: how much parity there is; it is made, renewed and removed, also behind the saves.
- `mirror`: a second store is brought up to date behind the saves, and read where files are lost.
- `repair`: files mended from parity, mirrors and the exact file.
- `ranks`: parity for the chains of ranks.
"""

"""Files of every format: read, written, and converted for another framework.

`states` reads, writes and converts, and puts a state together that lies in many files; `formats`
tells by its name and its first bytes what a file is, and which step it has. `structure` (names, and
what names alone do not say), `header`, `shards` and `zip_archive` are what the formats have
in common. Imports the chain, the exchange, `adapters/chains` and `adapters/tree`; npz, HDF5 and
safetensors import it.
"""

"""The formats and frameworks around lccodec, each imported on its own: the same verbs everywhere.

A user imports what lies here; a folder's face shows all of it that is public, its modules are its own, but
for ``tree`` and ``files``, which the others share. Imports everything but the command line; nothing imports
it.
"""

"""The formats and frameworks around lccodec: each is imported on its own, all have the same verbs.

Users import the modules and folders that lie here. The ``__init__`` of a folder shows what is
public in it. ``tree``, ``files`` and ``chains`` are what the adapters have in common.
May import everything but the command line; only the command line imports it.
"""

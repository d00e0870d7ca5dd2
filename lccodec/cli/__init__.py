"""The command ``lccodec``: its verbs, its output, the demo and the network that the demo trains.

A new verb goes into a module of ``verbs``. Nothing imports this folder. It may import everything
but frameworks; adapters import those when they are used.
"""

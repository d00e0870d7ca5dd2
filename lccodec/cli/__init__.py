"""The command ``lccodec``: its verbs, what they print, the demo and the network that it trains.

Nothing imports it. Imports everything but frameworks, which its adapters import when they are used.
"""

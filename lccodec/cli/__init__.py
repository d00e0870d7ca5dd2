"""The command ``lccodec``: its verbs, its output, the demo and the network that the demo trains.

- `program` finds a verb and reports errors, and has the parameters of several verbs; `render` has
  what several print.
- Verbs by purpose: `look`, `listing`, `save`, `keep`, `mend`, `share`, `convert`; and the
  `demonstration`.

Nothing imports this folder. It may import everything but frameworks; adapters import those when
they are used.
"""

"""From a state to files: plan, code, commit.

- `saver`: one save, and what is kept of it if a file cannot be written; `reference`: what the next
  delta is taken against.
- `partial`: a save of some arrays; `hashes`: a saver that keeps hashes of the newest state instead.
- `options`: how often, and with which workers, a chain saves.
- `settings`: the policy and roles that saves go by; `judge`: what a loss says of them.
- `plan` and `planned`: what a save does with each array; `estimate`: in how many bytes; `forecast`:
  the same of a run that has not begun.
- `encode`: a plan to frames and a manifest, by one process or several.
- `exact`: the newest state bit for bit, beside the checkpoint.
- `figures`: how far arrays moved, and what they lost; `past`: what they were at the save before.
- `single_file`: a state in one file, without a chain.
- `background`: saves beside the caller; `hindsight`: groups of saves, and coding them again.
"""

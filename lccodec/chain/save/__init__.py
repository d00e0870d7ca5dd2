"""From a state to files: plan, code, commit.

- `writer`: who saves, here or in the background; `settings`: as what a chain was told to.
- `saver`: one save, and what is kept of it if a file cannot be written.
- `reference`: what the next delta is taken against: the newest state decoded; or, in
  `hash_reference`, hashes of it, made and kept by `segments`.
- `plan`: what a save does with each array, and in how many bytes; `forecast`: the same of a run
  that has not begun; `judge`: what a loss says of it.
- `encode`: a plan to frames and a manifest, by one process or several.
- `exact`: the newest state bit for bit, beside the checkpoint; `partial`: a save of some arrays.
- `measurement`: how far arrays moved, and what they lost; `sampling`: on which components.
- `hindsight`: groups of saves, and coding them again.
- `background`: saves beside the caller; `state_copy`: the state at the call; `worker`: the other
  process.
- `single_file`: a state in one file, without a chain.
"""

"""From a state to files: plan, code, commit.

- `writer`: who saves, here or in the background; `judge`: what a loss says of a run; `settings`: as
  what a chain was told to.
- `saver`: one save, and what is kept of it if a file cannot be written.
- `reference`: what the next delta is taken against: the newest state decoded; or, in
  `hash_reference`, hashes of it.
- `plan`: what a save does with each array, and in how many bytes; what a run will take.
- `encode`: a plan to frames and a manifest, by one process or several.
- `exact`: the newest state bit for bit, beside the checkpoint; `partial`: a save of some arrays.
- `measurement`: how far arrays moved, and what they lost, on a sample of their components.
- `hindsight`: keyframe or delta; groups of saves, and coding them again.
- `background`: saves beside the caller, and the other process; the copy of a state at the call.
- `single_file`: a state in one file, without a chain.
"""

"""Checkpoints that lead to a state (SPEC 9). Imports the container, the policy, and what is below.

`chain` has `Chain`, which passes each call on to a room. The rooms import what is above their line:

- `behind`: what acts after a commit: `keep` at once, parity and mirrors in threads.
- `store`: where checkpoints are: names, steps, the claim of a process, what needs what.
- `overview`: what is printed of a chain, and how far a call is.
- `read`: from files to a state: links, bounds of what a file may ask, replay, one open checkpoint,
  the exact file, validation.
- `save`: from a state to files: plan, code, commit; `save/background`: the same beside the caller.
- `mend`: parity, mirrors, and what is lost made again.
- `life`: what takes checkpoints out of a chain or into another, one verb a file.
- `checkpoint_file`: an open checkpoint, as users see it.
- `chain`; `tuning`: the search for a policy.
"""

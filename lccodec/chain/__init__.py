"""Checkpoints that lead to a state (SPEC 9). Imports the container, the policy, and what is below.

- `chain`: `Chain`, which saves and restores, and when a keyframe is due; `settings`: the policy and
  roles that saves go by.
- `plan` and `planned`: what a save does with each array; `coding`: a plan to frames and a manifest;
  `tail` and `decoded`: the reference of the next delta.
- `exact_file`: the file of the newest state bit for bit; `newest`: when it is written and used.
- `directory`: the files of a chain and their steps; `place`: a directory or a bundle; `links`: one
  file as a link of a chain.
- `bundling`: a chain in one file, and back; `bundled`: its checkpoints opened there.
- `claim`: one process at a time saves.
- `saver`: plan, code and commit; `background`: the same beside the caller; `remote` and `worker`:
  the two ends of the way to a worker; `tasks` and `sharing`: what workers divide.
- `replay`: decoding along the links; `ranges`: the same of a part of a large array; `restorers`:
  who does it; `info`: what is known without decoding.
- `checkpoint`: an open checkpoint with its parents; `arrivals`: its leaves one after the other;
  `history`: the half of `Chain` that reads; `single_file`: a state in one file.
- `average`: a mean of checkpoints; `selection`: of which, and what each counts.
- `survey`: every checkpoint of a directory, each read once; `validate`: all problems in it.
- `lifetime`: the methods of `Chain` that use these. `rollback`, `rolled_back`: later steps are
  taken out, and come back; `fork`: a new chain from a step; `pins`: what must stay.
- `keep`: which steps are to stay; `prune`: the others go; `rewrite`: the same state in a new file;
  `compact`: a finished run for fewer bytes, or for shallower restores.
- `ancestry`: what a step needs; `removal`: children before parents.
- `tuning`: the search for a policy; `adapter`: what a framework provides.
"""

"""Checkpoints that lead to a state (SPEC 9). Imports the container, the policy, and what is below.

- `chain`: `Chain`, which saves and restores, and when a keyframe is due; `settings`: the policy and
  roles that saves go by.
- `plan`: what a save does with each array; `coding`: a plan to frames and a manifest; `tail` and
  `decoded`: the reference of the next delta.
- `exact_file`: the file of the newest state bit for bit; `newest`: when it is written and used.
- `directory`: the files of a chain and their steps; `place`: a directory or a bundle; `links`: one
  file as a link of a chain.
- `bundling`: a chain in one file, and back; `bundled`: its checkpoints opened there.
- `replay`: decoding along the links; `info`: what is known without decoding.
- `checkpoint`: an open checkpoint with its parents; `single_file`: a state in one file.
- `average`: a mean of checkpoints; `selection`: of which, and what each counts.
- `survey`: every checkpoint of a directory, each read once; `validate`: all problems in it.
- `tuning`: the search for a policy; `adapter`: what a framework provides.
"""

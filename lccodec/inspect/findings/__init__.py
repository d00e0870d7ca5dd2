"""What should be looked at in a run.

- `flags`: checkpoints that cannot be restored, arrays that stand out.
- `shifts`: what most arrays do at the same step.
- `verdict`: what stands out of the numbers beside the arrays, and all of it in a sentence.
"""

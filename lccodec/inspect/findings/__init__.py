"""What should be looked at in a run.

- `flags`: checkpoints that cannot be restored, arrays that stand out.
- `grouping`: what is alike of several arrays is one flag.
- `shifts`: what most arrays do at the same step.
- `numbers`: what stands out of the numbers beside the arrays.
- `changes`: where the state has other arrays.
- `verdict`: all of it in a few sentences.
"""

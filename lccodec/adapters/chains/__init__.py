"""What adapters share that save to a chain.

- `options`: how the chain is used; `saver`: saves to it, with a link in each directory of the
  framework.
"""

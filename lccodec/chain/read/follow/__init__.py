"""Followers: readers that keep a state at the newest step of a chain. Nothing is written there.

- `changes`: what differs between two decoded arrays, and how that goes into other memory.
- `update`: all that differs between two steps, as users see it.
- `held`: the state that a follower keeps, and the way from it to another step; `start`: the same
  from arrays at hand.
- `telling`: what frames say that they change, without a pass over arrays; `crew`: who reads that.
- `since`: what must be read to go on from a state; `watch`: which step comes next; `watching`: what
  a follower needs of that.
- `follower`: waiting, handing out updates, closing.
"""

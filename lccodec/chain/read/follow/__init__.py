"""Followers: readers that keep a state at the newest step of a chain. Nothing is written there.

- `followed_state`: the state that a follower keeps, and the way from it to another step.
- `crew`: what frames say that they change, without a pass over arrays, and who reads that.
- `watch`: which step comes next, and the update as users see it.
- `follower`: waiting, handing out updates, closing.
"""

"""What a lossy state costs the run that goes on from it, in intervals between checkpoints, on many
kinds of runs: `promise.py`. A new kind of run is a function of some twenty lines in `kinds.py`.
Presets were chosen on nine of these kinds: judge one on runs that are not here, too."""

"""What a lossy state costs the run that goes on from it, in intervals between checkpoints, on many
kinds of runs: `promise.py`. A new kind of run is a function of some twenty lines in `kinds.py`.
No preset was made with these figures in mind alone: judge one on runs that are not here, too."""

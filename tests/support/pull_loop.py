"""A loop that pulls a chain into a local model until it is killed; it prints each step it has.

``python pull_loop.py RUN MODEL``.
"""

import sys
import warnings

from lccodec import ChainError, LccodecWarning
from lccodec.adapters.weights import pull


def main(run: str, model: str) -> None:
    warnings.simplefilter("ignore", LccodecWarning)
    while True:
        try:
            found = pull(run, model)
        except ChainError:  # the writer took away what was being opened, and will go on
            continue
        print(found.step, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

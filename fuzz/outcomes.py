"""What the inputs of a target come to, counted: every check of a target ends here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import lccodec


class TooLargeError(Exception):
    """An input rightly decodes to more than a target decodes, and is left out."""


class Outcomes(Counter[str]):
    """How often inputs were refused, by the rule; ``"decoded"``, and what was left out."""

    @contextmanager
    def counted(self, kind: str = "") -> Iterator[None]:
        """Count what the block comes to, a refusal with its `kind` before the rule.

        What breaks the invariant goes on: every error that is none of the package's, and memory
        that was asked for and that the input cannot fill.
        """
        try:
            yield
            self["decoded"] += 1
        except TooLargeError:
            self["too large here"] += 1
        except lccodec.LccodecError as error:
            if isinstance(error.__cause__, MemoryError):
                raise
            self[kind + getattr(error, "rule", type(error).__name__)] += 1

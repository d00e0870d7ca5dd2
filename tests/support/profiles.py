"""How long tests run, and how many examples they try.

``HYPOTHESIS_PROFILE=nightly`` asks for all that is to be tried.
"""

from typing import Final

from hypothesis import settings

_MANY: Final = 1000  # examples of hypothesis: the profile is for runs that take as long as they take

#: Whether this is the nightly profile.
LONG: Final = settings.default.max_examples >= _MANY


def examples(times: float) -> settings:
    """Settings of more or fewer examples than the profile has. No test has a number of its own."""
    return settings(max_examples=max(1, round(times * settings.default.max_examples)))

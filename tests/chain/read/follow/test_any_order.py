"""Whatever is done to a chain, and whenever followers look: they have what a restore returns."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import Chain, Keep, LccodecError, LccodecWarning, follow
from lccodec.chain.life.compact import rewrite
from lccodec.chain.store.directory import DirectoryStore

from ....support.following import Served, drift, first_state, taken
from ....support.profiles import LONG

SEEDS, OPERATIONS = (20, 60) if LONG else (1, 15)


class Story:
    """A chain to which things are done at random."""

    def __init__(self, directory: Path, policy: str, seed: int) -> None:
        self.directory, self.random = directory, random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.state: dict[str, Any] = first_state(self.rng)
        hindsight = 0 if policy == "lossless" else 3
        self.chain = Chain(directory, policy, keyframe_every=4, hindsight=hindsight)

    def go_on(self) -> None:
        """Do something."""
        draw, steps = self.random.random(), self.chain.steps
        if draw < 0.65 or len(steps) < 3:
            latest = self.chain.latest
            self.chain.save(0 if latest is None else latest + self.random.randint(1, 3), self.state)
            self.state = drift(self.rng, self.state, self.random.choice([0.01, 0.5]))
        elif draw < 0.75:
            self.chain.rollback(self.random.choice(steps[-3:]), delete=self.random.random() < 0.5)
        elif draw < 0.82:
            self.chain.prune(Keep(latest=self.random.randint(1, 3)), rewrite=self.random.random() < 0.5)
        elif draw < 0.9:
            rewrite(DirectoryStore(self.directory), self.random.choice(steps[-2:]), None)
        elif draw < 0.95:
            self.chain.compact(keyframe_every=2)
        else:
            self.chain.close()
            self.chain = Chain(self.directory)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize(("policy", "exact"), [("lossless", True), ("balanced", True), ("balanced", False)])
def test_followers_have_the_newest_state(tmp_path: Path, policy: str, exact: bool, seed: int) -> None:
    story = Story(tmp_path, policy, seed)
    whole, part = Served(), Served()
    with (
        warnings.catch_warnings(),
        follow(tmp_path, exact=exact) as often,
        follow(tmp_path, keys="model", exact=exact) as seldom,
    ):
        warnings.simplefilter("ignore", LccodecWarning)
        for _ in range(OPERATIONS):
            try:
                story.go_on()
            except LccodecError as error:  # such as a step that hindsight needs
                print(error)
            if story.chain.latest is None:
                continue
            expected = story.chain.restore(exact=exact)
            taken(often, whole)
            whole.check(expected)
            assert often.step == story.chain.latest
            if story.random.random() < 0.2:
                taken(seldom, part)
                part.check({"model": expected["model"]})
        assert often.refused == seldom.refused == {}
    story.chain.close()

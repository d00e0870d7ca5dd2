"""Tasks of the training benchmark, so small that they train in no time."""

import numpy as np

from benchmarks.networks import datasets, models, tasks


def tiny_task(name: str, *_: object, **__: object) -> object:
    random = np.random.default_rng(1)
    if name in {"logistic", "momentum"}:
        images = random.standard_normal((96, 1, 28, 28)).astype(np.float32)
        split = datasets.Split(images, (images.mean((1, 2, 3)) > 0).astype(np.int64))
        return tasks.Task(
            name,
            models.logistic_regression,
            split,
            split,
            batch=16,
            learning_rate=0.02,
            momentum=0.9 if name == "momentum" else 0.0,
        )
    text = random.integers(65, size=600)
    return tasks.Task(
        name,
        lambda: models.GPT(8, 1, heads=2, context=8),
        text,
        text,
        batch=2,
        learning_rate=1e-3,
        adam=True,
        context=8,
        tests=4,
    )

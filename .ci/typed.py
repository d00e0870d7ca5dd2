"""A user's script, as type checkers see it with the installed package: mypy and pyright, strict."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lccodec


def main(directory: Path) -> None:
    """Use what the first pages of the guide use."""
    state: dict[str, Any] = {"model": {"w": np.zeros((4, 4), np.float32)}, "epoch": 3, "lr": 0.1}
    with lccodec.Chain(directory / "run", policy="balanced", keep=lccodec.Keep(latest=3)) as chain:
        size: int = chain.save(0, state, metrics={"loss": 1.0}, metadata={"by": "me"})
        chain.save_async(1, state)
        steps: list[int] = list(chain.steps)
        kinds = {step: chain.info(step).kind for step in steps}
        restored: Any = chain.restore(0)
    print(size, kinds, restored["epoch"])

    values: NDArray[np.float64] = np.arange(10.0)
    frame: bytes = lccodec.encode(values, lccodec.UniformDeadzone(max_error=0.1))
    back = lccodec.decode(frame)
    print(back.sum(), back.dtype)

    path = directory / "state.lcc.h5"
    lccodec.save_file(state, path)
    with lccodec.open(path) as file:
        for name in file.keys():  # noqa: SIM118 - as of safetensors
            print(name, file.get(name).shape)
    problems: list[lccodec.Problem] = list(lccodec.validate(path))
    try:
        lccodec.decode(b"")
    except lccodec.DataError as error:
        print(error.rule, problems)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))

"""The paper's experiment in miniature: train, save, crash, restore, continue.

A multilayer perceptron with about 200,000 float32 parameters learns the handwritten digits in the
package, with plain SGD in NumPy. Its state is saved every few iterations into a chain. Midway the
state is thrown away, the chain is opened again, and training continues from the last checkpoint.
Three other ways to checkpoint fail at the same iteration of the same training.

Protocol
--------
- *Full size* is 4 bytes per parameter: SGD without momentum has no state but the weights.
- *Bytes* are all bytes written until the failure, with keyframes; for the chain they are the sizes
  of its files.
- *The same byte budget* means as many bytes per iteration as the chain wrote until the failure. At
  that budget full checkpoints are rare, and a partial checkpoint of SCAR holds few parameters.
- *The failure* is halfway between two saves of every scheme, so that each loses its average: half
  of its own interval (or everything, if that is more than was trained).
- *Rework* is the number of iterations after the restore until the mean loss over the whole training
  split is at or below the loss at the failure. It is evaluated after each iteration. Batches depend
  only on the number of the iteration, so training repeats exactly after an exact restore.

The failure loses everything, as in LC-Checkpoint (Chen et al., ICML 2020). SCAR (Qiao et al., ICML
2019) was made for failures that lose a part of the parameters, so it is at a disadvantage here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np

import lccodec

from ..errors import ArgumentError
from .network import Floats, Network, Task

__all__ = ["Outcome", "Report", "run"]

SAVE_EVERY: Final = 4  # iterations

# Bytes: SCAR stores the value and the index of each parameter that it saves.
SCAR_ENTRY_BYTES: Final = 4 + 4


@dataclass(frozen=True)
class Outcome:
    """What the failure cost with one way to checkpoint.

    Attributes
    ----------
    scheme
        ``"chain"``, ``"full, same interval"``, ``"full, same bytes"`` or ``"SCAR, same bytes"``.
    interval
        Iterations between two saves.
    bytes_written
        Bytes written until the failure.
    ratio
        Bytes of full checkpoints at every save of the chain, divided by `bytes_written`.
    lost_iterations
        Iterations between the restored save and the failure.
    accuracy, loss
        Test accuracy of the restored state, and its mean loss over the training split.
    rework_iterations
        Iterations until the training loss was reached again; None if not within the length of the
        run.
    """

    scheme: str
    interval: float
    bytes_written: int
    ratio: float
    lost_iterations: int
    accuracy: float
    loss: float
    rework_iterations: int | None


@dataclass(frozen=True)
class Report:
    """The figures of the experiment; ``dataclasses.asdict`` makes them ready for JSON.

    Attributes
    ----------
    directory, policy
        The directory of the chain, which is kept, and its policy.
    parameters, full_bytes
        Size of the network: parameters, and bytes of one full checkpoint (4 per parameter).
    iterations, save_every, failure_iteration
        Length of the run, interval of the chain, and the iteration after which the state was lost.
    accuracy_before, loss_before
        Test accuracy and training loss at the failure.
    outcomes
        The outcome of each scheme; the chain comes first.
    checkpoints, chain_bytes, chain_ratio
        The whole chain at the end of the run; the ratio is to full checkpoints at the same steps.
    accuracy_resumed, accuracy_uninterrupted
        Test accuracy at the end: of the run that failed, and of its twin that did not fail.
    """

    directory: str
    policy: str
    parameters: int
    full_bytes: int
    iterations: int
    save_every: int
    failure_iteration: int
    accuracy_before: float
    loss_before: float
    outcomes: tuple[Outcome, ...]
    checkpoints: int
    chain_bytes: int
    chain_ratio: float
    accuracy_resumed: float
    accuracy_uninterrupted: float


def run(
    directory: str | PathLike[str],
    *,
    iterations: int = 400,
    policy: str = "lc-3",
    progress: Callable[[int, int], object] | None = None,
) -> Report:
    """Run the experiment and keep its chain in `directory`.

    Parameters
    ----------
    directory
        A directory that is empty or does not exist yet.
    iterations
        Length of the training, at least 16. The failure is in the middle.
    policy
        The policy of the chain. ``lc-3`` is the default because its restored state is worth its
        bytes: it needs one more iteration of rework than an exact checkpoint, for failures anywhere
        from iteration 50 to 300. ``lc-2`` takes half as many bytes and needs five to ten more.
    progress
        Called as ``progress(done, total)`` after every iteration of training.

    Raises
    ------
    ArgumentError
        If `directory` is not empty or `iterations` is too small.
    """
    directory = Path(directory)
    if iterations < 4 * SAVE_EVERY:
        raise ArgumentError(f"the demo needs at least {4 * SAVE_EVERY} iterations, not {iterations}")
    if directory.exists() and any(directory.iterdir()):
        raise ArgumentError(f"{directory}: the demo needs an empty directory")

    task = Task()
    last_save = iterations // 2 // SAVE_EVERY * SAVE_EVERY
    failure = last_save + SAVE_EVERY // 2
    # The run that fails, the iterations that it repeats, and its twin.
    tick = _ticker(2 * iterations + failure - last_save, progress)

    # The network of the run that fails exists only in this call: afterwards only the chain is left.
    loss_before, accuracy_before = _train_until_failure(task, directory, policy, failure, tick)
    budget = _bytes_on_disk(directory)

    restored, accuracy_resumed = _resume(task, directory, policy, iterations, tick)

    saves = last_save // SAVE_EVERY + 1
    full_bytes = restored.vector.nbytes
    same_bytes_interval = failure * full_bytes / budget
    rare_save = max(0, failure - round(same_bytes_interval / 2))
    # SCAR has one save less than the chain: the start of training costs it nothing.
    entries = budget // (saves - 1) // SCAR_ENTRY_BYTES
    twin, full, scar = _train_twin(task, iterations, last_save, {last_save, rare_save}, entries, tick)

    outcome = _Failure(task, failure, loss_before, saves * full_bytes, iterations).outcome
    chain_bytes, checkpoints = _bytes_on_disk(directory), iterations // SAVE_EVERY + 1
    return Report(
        directory=str(directory),
        policy=policy,
        parameters=restored.vector.size,
        full_bytes=full_bytes,
        iterations=iterations,
        save_every=SAVE_EVERY,
        failure_iteration=failure,
        accuracy_before=accuracy_before,
        loss_before=loss_before,
        outcomes=(
            outcome("chain", SAVE_EVERY, budget, last_save, restored),
            outcome("full, same interval", SAVE_EVERY, saves * full_bytes, last_save, full[last_save]),
            outcome("full, same bytes", same_bytes_interval, budget, rare_save, full[rare_save]),
            outcome("SCAR, same bytes", SAVE_EVERY, scar.bytes_written, last_save, Network(scar.vector)),
        ),
        checkpoints=checkpoints,
        chain_bytes=chain_bytes,
        chain_ratio=checkpoints * full_bytes / chain_bytes,
        accuracy_resumed=accuracy_resumed,
        accuracy_uninterrupted=task.accuracy(twin),
    )


class PartialCheckpoint:
    """SCAR's running checkpoint: each save updates the parameters that moved farthest.

    Parameters
    ----------
    vector
        The parameters at the start of training. They are not counted: a seed reproduces them.
    entries
        The number of parameters that one save may store.
    """

    def __init__(self, vector: Floats, entries: int) -> None:
        self.vector = vector.copy()
        self.entries = min(entries, vector.size)
        self.bytes_written = 0

    def save(self, vector: Floats) -> None:
        """Store the parameters of `vector` that are farthest from their last saved value."""
        moved = np.abs(vector - self.vector)
        chosen = np.argpartition(moved, vector.size - self.entries)[vector.size - self.entries :]
        self.vector[chosen] = vector[chosen]
        self.bytes_written += self.entries * SCAR_ENTRY_BYTES


@dataclass(frozen=True)
class _Failure:
    """The failure, and the figures that every outcome is compared with."""

    task: Task
    iteration: int
    loss: float
    full_bytes: int  # of a full checkpoint at every save of the chain
    rework_limit: int  # iterations

    def outcome(self, scheme: str, interval: float, written: int, saved_at: int, network: Network) -> Outcome:
        """Return what the failure cost a scheme that restored a network."""
        return Outcome(
            scheme=scheme,
            interval=interval,
            bytes_written=written,
            ratio=self.full_bytes / written,
            lost_iterations=self.iteration - saved_at,
            accuracy=self.task.accuracy(network),
            loss=self.task.loss(network),
            rework_iterations=_rework(self.task, network, saved_at, self.loss, self.rework_limit),
        )


def _ticker(total: int, progress: Callable[[int, int], object] | None) -> Callable[[], None]:
    """Return what is called after every iteration of training, and reports the progress."""
    done = itertools.count(1)

    def tick() -> None:
        if progress is not None:
            progress(next(done), total)

    return tick


def _train_until_failure(
    task: Task, directory: Path, policy: str, failure: int, tick: Callable[[], None]
) -> tuple[float, float]:
    """Train from the start with a new chain; return only the loss and accuracy at the end."""
    network = Network.initial()
    with lccodec.Chain(directory, policy=policy) as chain:
        chain.save(0, network.to_state(0))
        _train(task, network, range(1, failure + 1), chain, tick)
    return task.loss(network), task.accuracy(network)


def _resume(
    task: Task, directory: Path, policy: str, iterations: int, tick: Callable[[], None]
) -> tuple[Network, float]:
    """Restore the newest checkpoint, train to the end; return what was restored, and accuracy."""
    with lccodec.Chain(directory, policy=policy) as chain:
        state: Any = chain.restore()
        restored, network = Network.from_state(state), Network.from_state(state)
        _train(task, network, range(state["iteration"] + 1, iterations + 1), chain, tick)
    return restored, task.accuracy(network)


def _train(
    task: Task, network: Network, iterations: range, chain: lccodec.Chain, tick: Callable[[], None]
) -> None:
    """Train for `iterations`, with a save every `SAVE_EVERY`."""
    for iteration in iterations:
        task.train(network, iteration)
        if iteration % SAVE_EVERY == 0:
            chain.save(iteration, network.to_state(iteration))
        tick()


def _train_twin(
    task: Task,
    iterations: int,
    last_save: int,
    full_saves: Collection[int],
    scar_entries: int,
    tick: Callable[[], None],
) -> tuple[Network, dict[int, Network], PartialCheckpoint]:
    """Train a run that never fails; return its network and what other schemes have on their disks.

    Parameters
    ----------
    last_save
        The iteration of SCAR's last save before the failure.
    full_saves
        The iterations of full checkpoints.
    scar_entries
        How many parameters one save of SCAR may store.
    """
    network = Network.initial()
    scar = PartialCheckpoint(network.vector, scar_entries)
    full: dict[int, Network] = {}
    for iteration in range(iterations + 1):
        if iteration > 0:
            task.train(network, iteration)
            tick()
        if iteration in full_saves:
            full[iteration] = Network(network.vector.copy())
        if 0 < iteration <= last_save and iteration % SAVE_EVERY == 0:
            scar.save(network.vector)
    return network, full, scar


def _rework(task: Task, network: Network, saved_at: int, target: float, limit: int) -> int | None:
    """Count the iterations until the training loss of a restored network is at most `target`."""
    network = Network(network.vector.copy())
    for count in range(limit + 1):
        if task.loss(network) <= target:
            return count
        task.train(network, saved_at + 1 + count)
    return None


def _bytes_on_disk(directory: Path) -> int:
    """Return the total size of all files in `directory`."""
    return sum(path.stat().st_size for path in directory.iterdir())

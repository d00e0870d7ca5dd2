"""The verb demo: the paper's experiment in miniature: train, save, crash, restore, continue.

A multilayer perceptron with about 200,000 float32 parameters learns the handwritten digits in the
package, with plain SGD in NumPy. Its state is saved every few iterations into a chain that keeps
its newest state exactly. Midway the state is thrown away, the chain is opened again, and training
continues from that state. The table also shows the same step from the chain's history, and three
other ways to checkpoint that fail at the same iteration of the same training.

Protocol
--------
- *Bytes* are all bytes on the disk at the failure, with keyframes; for the chain they are the sizes
  of its files. The history has no exact file.
- *The same byte budget* means as many bytes per iteration as the chain had until the failure. At
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
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
import numpy as np
from numpy.typing import NDArray

import lccodec

from ..chain.chain import Chain
from ..errors import ArgumentError
from ..inspect.examination import examine
from ..inspect.report import document
from ..table import printable, size_text
from . import render
from .program import NEW, say, verb
from .render import Table

SAVE_EVERY: Final = 4  # iterations

# Bytes: SCAR stores the value and the index of each parameter that it saves.
SCAR_ENTRY_BYTES: Final = 4 + 4


@dataclass(frozen=True)
class Outcome:
    """What the failure cost with one way to checkpoint."""

    scheme: str  # such as "chain, newest exact" or "full, same bytes"
    interval: float  # iterations between two saves
    bytes_on_disk: int  # at the failure
    ratio: float  # bytes of full checkpoints at every save of the chain, over `bytes_on_disk`
    lost_iterations: int  # between the restored save and the failure
    accuracy: float  # of the restored state, on the test images
    loss: float  # its mean over the training split
    rework_iterations: int | None  # None if the loss was not reached within the length of the run


@dataclass(frozen=True)
class DemoResult:
    """The figures of the experiment; ``dataclasses.asdict`` makes them ready for JSON."""

    directory: str  # of the chain, which is kept
    policy: str
    parameters: int
    full_bytes: int  # of one full checkpoint: 4 per parameter; SGD has no other state
    iterations: int
    save_every: int  # iterations
    failure_iteration: int  # after it the state was lost
    accuracy_before: float  # on the test images, at the failure
    loss_before: float  # in training, at the failure
    outcomes: tuple[Outcome, ...]  # the chain's and its history's come first
    checkpoints: int  # of the whole chain, at the end of the run
    chain_bytes: int
    chain_ratio: float  # to full checkpoints at the same steps
    accuracy_resumed: float  # at the end
    accuracy_uninterrupted: float  # at the end, of the twin that did not fail


def run(
    directory: str | PathLike[str],
    *,
    iterations: int = 400,
    policy: str = "balanced",
    progress: Callable[[int, int], object] | None = None,
) -> DemoResult:
    """Run the experiment and keep its chain in `directory`.

    The directory must be new or empty. The failure is in the middle of the iterations, which are
    at least 16. ``progress(done, total)`` is called after every iteration.
    """
    directory = Path(directory)
    if iterations < 4 * SAVE_EVERY:
        raise ArgumentError(f"the demo needs at least {4 * SAVE_EVERY} iterations; got {iterations}")
    if directory.exists() and any(directory.iterdir()):
        raise ArgumentError(f"the demo needs a new or empty directory; {directory} is not empty")

    task = Task()
    last_save = iterations // 2 // SAVE_EVERY * SAVE_EVERY
    failure = last_save + SAVE_EVERY // 2
    # The run that fails, the iterations that it repeats, and its twin.
    total, done = 2 * iterations + failure - last_save, itertools.count(1)

    def tick() -> None:
        if progress is not None:
            progress(next(done), total)

    before = _run_until_failure(task, directory, policy, failure, tick)
    resumed, kept = _resume(task, directory, last_save, iterations, tick)
    twin, others = _run_twin(task, iterations, last_save, failure, kept[0].nbytes, tick)
    full_bytes = twin.vector.nbytes
    all_saves = (last_save // SAVE_EVERY + 1) * full_bytes
    chain_bytes, checkpoints = _bytes_on_disk(directory), iterations // SAVE_EVERY + 1
    return DemoResult(
        directory=str(directory),
        policy=policy,
        parameters=twin.vector.size,
        full_bytes=full_bytes,
        iterations=iterations,
        save_every=SAVE_EVERY,
        failure_iteration=failure,
        accuracy_before=task.accuracy(before),
        loss_before=task.loss(before),
        outcomes=tuple(
            Outcome(
                scheme=saved.scheme,
                interval=saved.interval,
                bytes_on_disk=saved.nbytes,
                ratio=all_saves / saved.nbytes,
                lost_iterations=failure - saved.iteration,
                accuracy=task.accuracy(saved.network),
                loss=task.loss(saved.network),
                rework_iterations=_rework(task, saved, task.loss(before), iterations),
            )
            for saved in (*kept, *others)
        ),
        checkpoints=checkpoints,
        chain_bytes=chain_bytes,
        chain_ratio=checkpoints * full_bytes / chain_bytes,
        accuracy_resumed=task.accuracy(resumed),
        accuracy_uninterrupted=task.accuracy(twin),
    )


@dataclass(frozen=True)
class Saved:
    """What a way to checkpoint has on the disk at the failure, and the state it gives back."""

    scheme: str
    interval: float  # iterations between two saves
    nbytes: int
    iteration: int  # of the state
    network: Network


class PartialCheckpoint:
    """SCAR's running checkpoint: each save updates the `entries` parameters that moved farthest.

    Those at the start, `vector`, are not counted: a seed reproduces them.
    """

    def __init__(self, vector: Floats, entries: int) -> None:
        self.vector = vector.copy()
        self.entries = min(entries, vector.size)
        self.nbytes = 0  # of all that was stored

    def save(self, vector: Floats) -> None:
        """Store the parameters of `vector` that are farthest from their last saved value."""
        moved = np.abs(vector - self.vector)
        chosen = np.argpartition(moved, vector.size - self.entries)[vector.size - self.entries :]
        self.vector[chosen] = vector[chosen]
        self.nbytes += self.entries * SCAR_ENTRY_BYTES


def _train(
    task: Task, network: Network, iterations: range, chain: lccodec.Chain, tick: Callable[[], None]
) -> None:
    """Train for `iterations`, with a save every `SAVE_EVERY`."""
    for iteration in iterations:
        task.train(network, iteration)
        if iteration % SAVE_EVERY == 0:
            _save(task, network, iteration, chain)
        tick()


def _save(task: Task, network: Network, iteration: int, chain: lccodec.Chain) -> None:
    metrics = {"loss": task.loss(network), "accuracy": task.accuracy(network)}
    chain.save(iteration, network.to_state(iteration), metrics=metrics)


def _run_until_failure(
    task: Task, directory: Path, policy: str, failure: int, tick: Callable[[], None]
) -> Network:
    """Train and save up to the failure; return the network that is lost then."""
    with lccodec.Chain(directory, policy=policy) as chain:
        network = Network.initial()
        _save(task, network, 0, chain)
        _train(task, network, range(1, failure + 1), chain, tick)
    return network


def _resume(
    task: Task, directory: Path, last_save: int, iterations: int, tick: Callable[[], None]
) -> tuple[Network, tuple[Saved, Saved]]:
    """Train on from the chain; return the network at the end, and what the chain had."""
    nbytes = _bytes_on_disk(directory)
    with lccodec.Chain(directory) as chain:  # policy and exact file are as before
        history_bytes = sum(chain.info(step).file_bytes for step in chain.steps)
        history: Any = chain.restore(exact=False)
        state: Any = chain.restore()
        network = Network.from_state(state)
        _train(task, network, range(state["iteration"] + 1, iterations + 1), chain, tick)
    exact = Saved("chain, newest exact", SAVE_EVERY, nbytes, last_save, Network.from_state(state))
    lossy = Saved("chain, history", SAVE_EVERY, history_bytes, last_save, Network.from_state(history))
    return network, (exact, lossy)


def _run_twin(
    task: Task, iterations: int, last_save: int, failure: int, budget: int, tick: Callable[[], None]
) -> tuple[Network, tuple[Saved, Saved, Saved]]:
    """Train a run that never fails; return its network, and what other schemes have at the failure.

    `budget` is the number of bytes that two of them may take.
    """
    network = Network.initial()
    full_bytes, saves = network.vector.nbytes, last_save // SAVE_EVERY + 1
    interval = failure * full_bytes / budget
    rare_save = max(0, failure - round(interval / 2))
    # SCAR has one save less than the chain: the start of training costs it nothing.
    scar = PartialCheckpoint(network.vector, budget // (saves - 1) // SCAR_ENTRY_BYTES)
    full: dict[int, Network] = {}
    for iteration in range(iterations + 1):
        if iteration > 0:
            task.train(network, iteration)
            tick()
        if iteration in (last_save, rare_save):
            full[iteration] = Network(network.vector.copy())
        if 0 < iteration <= last_save and iteration % SAVE_EVERY == 0:
            scar.save(network.vector)
    return network, (
        Saved("full, same interval", SAVE_EVERY, saves * full_bytes, last_save, full[last_save]),
        Saved("full, same bytes", interval, budget, rare_save, full[rare_save]),
        Saved("SCAR, same bytes", SAVE_EVERY, scar.nbytes, last_save, Network(scar.vector)),
    )


def _rework(task: Task, saved: Saved, target: float, limit: int) -> int | None:
    """Count the iterations until the training loss of a restored network is at most `target`."""
    network = Network(saved.network.vector.copy())
    for count in range(limit + 1):
        if task.loss(network) <= target:
            return count
        task.train(network, saved.iteration + 1 + count)
    return None


def _bytes_on_disk(directory: Path) -> int:
    """Return the total size of all files in `directory`."""
    return sum(path.stat().st_size for path in directory.iterdir())


@verb
@click.option(
    "--directory", type=NEW, help="Directory of the chain.  [default: ./lccodec-demo, or -2, -3 ...]"
)
def demo(directory: Path | None, as_json: bool) -> None:
    """Train a small network, lose its state, restore it from a chain, and continue (under 30 s)."""

    with render.progress("training") as update:
        result = run(directory or _unused("lccodec-demo"), progress=update)
    page = _write_page(Path(result.directory))
    if as_json:
        say(render.dump_json({**asdict(result), "page": None if page is None else str(page)}))
        return
    chain = Chain(result.directory)
    first, *_, before, last = chain.steps
    name = chain.info(last).arrays[0].name
    commands = [
        ("ls", result.directory),
        ("info", result.directory, "--step", last),
        ("show", result.directory, name),
        ("diff", result.directory, before, last),
        ("check", result.directory, "--deep"),
        ("restore", result.directory, "--step", first, "-o", "first.npz"),
    ]
    if page is None:
        commands.append(("report", result.directory))
        ending = "For a page with all of it: pip install 'lccodec[report]', then the last of these commands."
    else:
        ending = f"For all of it on one page, open this file in a browser: {printable(page)}"
    say(f"{demo_text(result, commands)}\n\n{ending}")


def demo_text(result: DemoResult, commands: Iterable[Sequence[object]]) -> str:
    """Return the figures of the demo, and which commands to try on the chain it left."""
    table = Table("checkpoints", "every", "bytes", "ratio", "lost", "loss", "accuracy", "rework")
    loss, accuracy = f"{result.loss_before:.4f}", f"{100 * result.accuracy_before:.2f} %"
    table.row("(at the failure)", "", "", "", "", loss, accuracy, "")
    for o in result.outcomes:
        rework = "-" if o.rework_iterations is None else o.rework_iterations
        loss, accuracy = f"{o.loss:.4f}", f"{100 * o.accuracy:.2f} %"
        numbers = (f"{o.interval:.3g}", f"{o.bytes_on_disk:,}", f"{o.ratio:.1f}x", o.lost_iterations)
        table.row(o.scheme, *numbers, loss, accuracy, rework)
    full = result.full_bytes * result.checkpoints
    return "\n\n".join(
        [
            f"A network of {result.parameters:,} parameters was trained for {result.iterations} iterations; "
            f"its state was lost after {result.failure_iteration},\nrestored from the last checkpoint, and "
            "trained further. Rework: iterations until the training loss was back.",
            table.text(),
            f"{result.checkpoints} checkpoints, policy {result.policy}, and the newest exact: "
            f"{size_text(full, result.chain_bytes)}\n"
            f"accuracy at the end: {100 * result.accuracy_resumed:.2f} %, "
            f"without the failure {100 * result.accuracy_uninterrupted:.2f} %",
            f"The chain is in {printable(result.directory)}. Try:",
            "\n".join("  lccodec " + shlex.join(map(str, command)) for command in commands),
        ]
    )


def _write_page(directory: Path) -> Path | None:
    """Write the report of the chain beside it; ``None`` without the extra ``report``."""
    if find_spec("vl_convert") is None:
        return None
    from ..report import write_page

    page = directory.with_name(f"{directory.name}-report.html")
    with render.progress("examining") as update:
        report = examine(directory, version=lccodec.__version__, progress=update)
    write_page(document(report), page)
    return page


def _unused(name: str) -> Path:
    """Return a path that does not exist yet: the name, or the name with a number."""
    numbered = (Path(f"{name}-{number}") for number in itertools.count(2))
    return next(path for path in itertools.chain([Path(name)], numbered) if not path.exists())


LAYER_SIZES: Final = (64, 416, 416, 10)
TRAIN_IMAGES: Final = 320  # of 400; the others are test images
BATCH_IMAGES: Final = 64
LEARNING_RATE: Final = 0.02  # so small that the loss falls at every iteration, and rework is not luck
SEED: Final = 2009_13003

Floats: TypeAlias = NDArray[np.float32]


class Network:
    """A multilayer perceptron. Weight and bias of each layer are views of one vector."""

    def __init__(self, vector: Floats) -> None:
        self.vector = vector
        self.parameters: dict[str, Floats] = {}
        at = 0
        for number, (inputs, outputs) in enumerate(itertools.pairwise(LAYER_SIZES), 1):
            for name, shape in (("weight", (inputs, outputs)), ("bias", (outputs,))):
                size = int(np.prod(shape))
                self.parameters[f"layer{number}.{name}"] = vector[at : at + size].reshape(shape)
                at += size

    @classmethod
    def initial(cls) -> Network:
        """Return the network that every run starts from: He's weights, biases of zero."""
        random = np.random.default_rng(SEED)
        size = sum(inputs * outputs + outputs for inputs, outputs in itertools.pairwise(LAYER_SIZES))
        network = cls(np.zeros(size, "f4"))
        for weight, _ in network.layers():
            weight[:] = random.normal(0, np.sqrt(2 / len(weight)), weight.shape)
        return network

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Network:
        """Return the network of a restored state."""
        network = cls(np.empty(sum(array.size for array in state["parameters"].values()), "f4"))
        for name, parameter in network.parameters.items():
            parameter[:] = state["parameters"][name]
        return network

    def to_state(self, iteration: int) -> dict[str, Any]:
        """Return the state to save: the parameters by name, and the iteration."""
        return {"iteration": iteration, "parameters": self.parameters}

    def layers(self) -> Iterator[tuple[Floats, Floats]]:
        """Yield the weight and the bias of each layer."""
        arrays = iter(self.parameters.values())
        return zip(arrays, arrays, strict=True)

    def activations(self, images: Floats) -> list[Floats]:
        """Return the input of every layer (with ReLU between layers), then the logits."""
        *hidden, (last_weight, last_bias) = self.layers()
        values = [images]
        for weight, bias in hidden:
            values.append(np.maximum(values[-1] @ weight + bias, 0))
        values.append(values[-1] @ last_weight + last_bias)
        return values


class Task:
    """The digits, split into training and test images, with training, loss and accuracy."""

    def __init__(self) -> None:
        digits = resources.files("lccodec.cli") / "data" / "digits.lcc.h5"
        data: Any = lccodec.load(digits.read_bytes())
        images, labels = data["images"], data["labels"]
        order = np.random.default_rng(SEED).permutation(len(labels))
        scaled = (images[order].reshape(len(order), -1) / 16 - 0.3).astype(np.float32)
        labels = labels[order].astype(np.intp)
        self.images, self.test_images = scaled[:TRAIN_IMAGES], scaled[TRAIN_IMAGES:]
        self.labels, self.test_labels = labels[:TRAIN_IMAGES], labels[TRAIN_IMAGES:]

    def train(self, network: Network, iteration: int) -> None:
        """Do iteration number `iteration` (from 1) of plain SGD, in place.

        The batch depends only on that number, so a resumed run gets the same batches.
        """
        epoch, batch = divmod(iteration - 1, TRAIN_IMAGES // BATCH_IMAGES)
        order = np.random.default_rng((SEED, epoch)).permutation(TRAIN_IMAGES)
        chosen = order[batch * BATCH_IMAGES : (batch + 1) * BATCH_IMAGES]
        *inputs, logits = network.activations(self.images[chosen])
        gradient = np.exp(_log_softmax(logits))
        gradient[np.arange(BATCH_IMAGES), self.labels[chosen]] -= 1
        gradient *= LEARNING_RATE / BATCH_IMAGES
        for (weight, bias), values in zip(reversed(list(network.layers())), reversed(inputs), strict=True):
            # Computed before the weight changes. The first layer does not need it, but it is cheap.
            below = (gradient @ weight.T) * (values > 0)
            weight[:] -= values.T @ gradient
            bias[:] -= gradient.sum(axis=0)
            gradient = below

    def loss(self, network: Network) -> float:
        """Return the mean cross entropy over the whole training split."""
        logits = network.activations(self.images)[-1]
        return -float(_log_softmax(logits)[np.arange(TRAIN_IMAGES), self.labels].mean(dtype=np.float64))

    def accuracy(self, network: Network) -> float:
        """Return the fraction of test images that `network` classifies correctly."""
        guesses = network.activations(self.test_images)[-1].argmax(axis=1)
        return float(np.mean(guesses == self.test_labels))


def _log_softmax(logits: Floats) -> Floats:
    """Return the logarithm of the softmax of each row."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    result: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result

"""What is trained on what: a task makes runs; a run can stop, be tested, be put back, go on.

Rules: one thread sums in one order, so the same seeds give the same run on the same machine. The
batch of an iteration depends on the data seed and the iteration's number alone, so that a run which
resumes from a restored state meets the batches that the exact one meets. A state is a flat
dictionary of float32 (and, for counts, int64) arrays named ``model/<parameter or buffer>``,
``exp_avg/<parameter>`` and ``exp_avg_sq/<parameter>``.
"""

from __future__ import annotations

import functools
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from .datasets import Split, load_mnist
from .models import CHARACTERS, GPT, BatchNormNet, LeNet5, logistic_regression

__all__ = [
    "FIRST_MOMENT",
    "SECOND_MOMENT",
    "WEIGHT",
    "Quality",
    "Run",
    "State",
    "Task",
    "nested",
    "role",
    "task",
]

State = dict[str, np.ndarray]

WEIGHT, FIRST_MOMENT, SECOND_MOMENT = "model", "exp_avg", "exp_avg_sq"
BUFFER = "momentum_buffer"  # torch's name for the momentum of SGD
BETAS = (0.9, 0.999)
CONTEXT = 32  # characters; with few of them in a batch, many short pieces teach more than a few long ones
WARM_UP = 50  # iterations over which the learning rate of AdamW rises; constant after
# Of SGD, low enough that a whole interval of training lost shows above the noise of the batches.
RATES = {"logistic": 0.02, "lenet": 0.02, "batchnorm": 0.01, "momentum": 0.005, "spike": 0.02}
MOMENTUM = 0.9
# A run that diverges and comes back: the learning rate of a few iterations is many times as high.
SPIKE_FACTOR, SPIKE_FIRST, SPIKE_LAST = 5.0, 901, 905
TRAINED, TUNED = 0.6, 0.9  # of the text: what the GPT is trained on ends here, what it is tuned on there


class Quality(NamedTuple):
    """How well a state does on test data; accuracy is of images or of next characters."""

    accuracy: float
    loss: float


def role(name: str) -> str:
    """Return `WEIGHT`, `FIRST_MOMENT` or `SECOND_MOMENT` for the name of an array of a state."""
    return name.split("/", 1)[0]


def nested(state: State) -> dict[str, State]:
    """Return a state as users keep it: a dictionary for the weights, one for each moment."""
    found: dict[str, State] = {}
    for name, array in state.items():
        found.setdefault(role(name), {})[name.split("/", 1)[1]] = array
    return found


@dataclass(frozen=True)
class Task:
    """A network, its data and how it is trained.

    Parameters
    ----------
    name
        Of its table.
    build
        Returns the network, initialised with torch's generator.
    train, test
        Images and labels, or characters (int64) alone.
    batch
        Images, or pieces of text, in a batch.
    learning_rate
        Of SGD, or of AdamW where `adam`.
    adam
        Whether AdamW trains it; SGD otherwise.
    momentum
        Of SGD. Its buffers are kept as first moments.
    spikes
        Whether the learning rate has a spike.
    context
        Characters in a piece of text; 0 for images.
    tests
        Pieces of text that quality is measured on.
    """

    name: str
    build: Callable[[], nn.Module]
    train: Split | np.ndarray
    test: Split | np.ndarray
    batch: int
    learning_rate: float
    adam: bool = False
    momentum: float = 0.0
    spikes: bool = False
    context: int = 0
    tests: int = 0

    def rate(self, iteration: int) -> float:
        """Return the learning rate of an iteration (from 1)."""
        if self.adam:
            return self.learning_rate * min(1.0, iteration / WARM_UP)
        spike = self.spikes and SPIKE_FIRST <= iteration <= SPIKE_LAST
        return self.learning_rate * (SPIKE_FACTOR if spike else 1.0)

    def batch_of(self, seed: int, iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and targets of an iteration (from 1)."""
        if isinstance(self.train, Split):
            epoch, number = divmod(iteration - 1, len(self.train.labels) // self.batch)
            order = np.random.default_rng((seed, epoch)).permutation(len(self.train.labels))
            chosen = order[number * self.batch : (number + 1) * self.batch]
            return torch.from_numpy(self.train.images[chosen]), torch.from_numpy(self.train.labels[chosen])
        last = len(self.train) - self.context - 1
        return self._pieces(
            self.train, np.random.default_rng((seed, iteration)).integers(last, size=self.batch)
        )

    def tested(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and targets that quality is measured on: always the same."""
        if isinstance(self.test, Split):
            return torch.from_numpy(self.test.images), torch.from_numpy(self.test.labels)
        starts = np.linspace(0, len(self.test) - self.context - 2, self.tests).astype(np.int64)
        return self._pieces(self.test, starts)

    def _pieces(self, text: np.ndarray, starts: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        pieces = torch.from_numpy(text[starts[:, None] + np.arange(self.context + 1)])
        return pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous()


class Run:
    """One training run.

    Parameters
    ----------
    task
        What is trained.
    seed
        Of the initial parameters.
    """

    def __init__(self, task: Task, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.task = task
        self.network = task.build()
        self.parameters = dict(self.network.named_parameters())
        self.iteration = 0
        self.loss = float("nan")
        if task.adam:
            self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(
                self.parameters.values(), task.learning_rate, betas=BETAS, fused=True
            )
        else:
            self.optimizer = torch.optim.SGD(
                self.parameters.values(), lr=task.learning_rate, momentum=task.momentum
            )

    def advance(self, iterations: int, seed: int) -> None:
        """Do `iterations` more, on the batches of the data seed `seed`; `loss` is their mean."""
        self.network.train()
        total = 0.0
        for _ in range(iterations):
            self.iteration += 1
            inputs, targets = self.task.batch_of(seed, self.iteration)
            for group in self.optimizer.param_groups:
                group["lr"] = self.task.rate(self.iteration)
            self.optimizer.zero_grad()
            loss = self._loss(self.network(inputs), targets)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        self.loss = total / iterations if iterations else self.loss

    def quality(self) -> Quality:
        """Return how well the network does on the test data."""
        self.network.eval()
        inputs, targets = self.task.tested()
        with torch.no_grad():
            logits = self.network(inputs)
            correct = (logits.argmax(-1) == targets).double().mean().item()
            return Quality(correct, self._loss(logits, targets).item())

    def state(self) -> State:
        """Return a copy of the state."""
        found = {f"{WEIGHT}/{name}": tensor for name, tensor in self.network.state_dict().items()}
        for moment in (FIRST_MOMENT, SECOND_MOMENT) if self.task.adam else ():
            for name, parameter in self.parameters.items():
                memory = self.optimizer.state.get(parameter, {})
                found[f"{moment}/{name}"] = memory.get(moment, torch.zeros_like(parameter))
        for name, parameter in self.parameters.items() if self.task.momentum else ():
            buffer = self.optimizer.state.get(parameter, {}).get(BUFFER)
            found[f"{FIRST_MOMENT}/{name}"] = torch.zeros_like(parameter) if buffer is None else buffer
        return {name: tensor.detach().numpy().copy() for name, tensor in found.items()}

    def put_back(self, state: State, iteration: int) -> None:
        """Go on from `state`, as it was after `iteration` iterations, from here on."""
        tensors = {name: torch.from_numpy(np.array(array)) for name, array in state.items()}
        self.network.load_state_dict(
            {name.split("/", 1)[1]: tensor for name, tensor in tensors.items() if role(name) == WEIGHT}
        )
        for name, parameter in self.parameters.items() if self.task.adam else ():
            self.optimizer.state[parameter] = {
                "step": torch.tensor(float(iteration)),
                FIRST_MOMENT: tensors[f"{FIRST_MOMENT}/{name}"],
                SECOND_MOMENT: tensors[f"{SECOND_MOMENT}/{name}"],
            }
        for name, parameter in self.parameters.items() if self.task.momentum else ():
            self.optimizer.state[parameter] = {BUFFER: tensors[f"{FIRST_MOMENT}/{name}"]}
        self.iteration = iteration

    @staticmethod
    def _loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


@functools.cache  # the data are read once
def task(name: str, data: Path, *, quick: bool = False) -> Task:
    """Return the task of that name with its data; with `quick` a smaller network or less data.

    Parameters
    ----------
    name
        ``"logistic"``, ``"lenet"``, ``"batchnorm"``, ``"momentum"``, ``"spike"`` (both LeNet-5),
        ``"gpt"`` or ``"finetune"``.
    data
        Folder of the data sets.
    """
    if name in RATES:
        train, test = load_mnist(data)
        if quick:
            train, test = (Split(s.images[:1_000], s.labels[:1_000]) for s in (train, test))
        networks = {"logistic": logistic_regression, "batchnorm": BatchNormNet}
        return Task(
            name,
            networks.get(name, LeNet5),
            train,
            test,
            batch=64,
            learning_rate=RATES[name],
            momentum=MOMENTUM if name == "momentum" else 0.0,
            spikes=name == "spike",
        )
    text = load_text(data)
    trained, tuned = int(TRAINED * len(text)), int(TUNED * len(text))
    width, layers = (64, 2) if quick else (256, 4)
    return Task(
        name,
        lambda: GPT(width, layers, heads=4, context=CONTEXT),
        text[:trained] if name == "gpt" else text[trained:tuned],
        text[tuned:],
        batch=8,
        learning_rate=5e-4,
        adam=True,
        context=CONTEXT,
        tests=128 if quick else 384,
    )


def load_text(directory: Path) -> np.ndarray:
    """Return tinyshakespeare as the numbers of its characters, in the order of codes (int64)."""
    content = np.frombuffer(gzip.decompress((directory / "tinyshakespeare.txt.gz").read_bytes()), np.uint8)
    characters, numbers = np.unique(content, return_inverse=True)
    if characters.size != CHARACTERS:
        raise SystemExit(f"tinyshakespeare: {characters.size} characters, not {CHARACTERS}")
    return numbers.astype(np.int64)

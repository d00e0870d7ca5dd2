"""A training run that stops, is tested, is put back and goes on; of PyTorch and of JAX.

Rules: the batch of an iteration depends on the data seed and on the number of the iteration alone,
so that a run which resumes from a restored state meets the batches that the exact one meets. A
state is what users save: the model's and the optimizer's own dictionaries.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import torch

__all__ = ["Batch", "FlaxTraining", "TorchTraining", "Training"]

State = dict[str, Any]
Batch = Callable[[np.random.Generator], tuple[Any, ...]]  # makes the inputs of one iteration


class Training(Protocol):
    """What the benchmark asks of a run."""

    iteration: int
    adapter: ModuleType  # of lccodec, for its states

    def advance(self, until: int, seed: int) -> None:
        """Go on to iteration `until`, with the batches of a seed."""

    def loss(self) -> float:
        """Return the loss on data that it was not trained with: always the same."""

    def state(self) -> State:
        """Return a copy of the state."""

    def put_back(self, state: State, iteration: int) -> None:
        """Go on from a state, as it was after `iteration` iterations."""


class TorchTraining:
    """A run of PyTorch.

    Parameters
    ----------
    model, optimizers
        What is trained, and by what; one state of all together.
    batch
        Makes the tensors of one iteration.
    loss
        Of the model and the tensors of a batch.
    test
        Tensors that `loss` is tested on.
    schedule
        Factor of the learning rates at an iteration (from 1).
    score
        The loss that is tested, where it is another than the one trained on.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Mapping[str, torch.optim.Optimizer],
        batch: Batch,
        loss: Callable[..., torch.Tensor],
        test: tuple[torch.Tensor, ...],
        schedule: Callable[[int], float] = lambda _: 1.0,
        score: Callable[..., torch.Tensor] | None = None,
    ) -> None:
        from lccodec.adapters import torch as adapter

        self.model, self.optimizers, self.batch, self._loss, self.test = model, optimizers, batch, loss, test
        self.schedule, self.score, self.adapter = schedule, score or loss, adapter
        self.rates = {name: o.param_groups[0]["lr"] for name, o in optimizers.items()}
        self.iteration = 0

    def advance(self, until: int, seed: int) -> None:
        """Go on to iteration `until`, with the batches of a seed."""
        self.model.train()
        while self.iteration < until:
            self.iteration += 1
            torch.manual_seed(1_000_003 * seed + self.iteration)
            tensors = self.batch(np.random.default_rng((seed, self.iteration)))
            for name, optimizer in self.optimizers.items():
                optimizer.param_groups[0]["lr"] = self.rates[name] * self.schedule(self.iteration)
                optimizer.zero_grad()
            self._loss(self.model, *tensors).backward()
            for optimizer in self.optimizers.values():
                optimizer.step()

    def loss(self) -> float:
        """Return the loss on data that it was not trained with."""
        self.model.eval()
        with torch.no_grad():
            torch.manual_seed(0)
            return float(self.score(self.model, *self.test))

    def state(self) -> State:
        """Return a copy of the state."""
        parts = {"model": self.model, **self.optimizers}
        return copy.deepcopy({name: part.state_dict() for name, part in parts.items()})

    def put_back(self, state: State, iteration: int) -> None:
        """Go on from a state, as it was after `iteration` iterations."""
        state = copy.deepcopy(state)
        self.model.load_state_dict(state["model"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state[name])
        self.iteration = iteration


class FlaxTraining:
    """A run of a Flax module that an optax transformation trains.

    Parameters
    ----------
    module, transformation
        What is trained, and by what.
    batch
        Makes the arrays of one iteration.
    loss
        Of the outputs of the module and the targets.
    test
        Inputs and targets that it is tested on.
    seed
        Of the initial parameters.
    """

    def __init__(
        self,
        module: Any,
        transformation: Any,
        batch: Batch,
        loss: Callable[[Any, Any], Any],
        test: tuple[Any, Any],
        seed: int,
    ) -> None:
        import jax
        import optax

        from lccodec.adapters import jax as adapter

        def of_parameters(parameters: Any, inputs: Any, targets: Any) -> Any:
            return loss(module.apply({"params": parameters}, inputs), targets)

        def update(parameters: Any, memory: Any, inputs: Any, targets: Any) -> Any:
            gradients = jax.grad(of_parameters)(parameters, inputs, targets)
            changes, memory = transformation.update(gradients, memory, parameters)
            return optax.apply_updates(parameters, changes), memory

        self.adapter, self.batch, self.test = adapter, batch, test
        self._tested, self._update = jax.jit(of_parameters), jax.jit(update)
        self.parameters = module.init(jax.random.key(seed), test[0][:1])["params"]
        self.memory = transformation.init(self.parameters)
        self.iteration = 0

    def advance(self, until: int, seed: int) -> None:
        """Go on to iteration `until`, with the batches of a seed."""
        while self.iteration < until:
            self.iteration += 1
            inputs, targets = self.batch(np.random.default_rng((seed, self.iteration)))
            self.parameters, self.memory = self._update(self.parameters, self.memory, inputs, targets)

    def loss(self) -> float:
        """Return the loss on data that it was not trained with."""
        return float(self._tested(self.parameters, *self.test))

    def state(self) -> State:
        """Return the state: arrays of JAX do not change."""
        return {"params": self.parameters, "opt_state": self.memory}

    def put_back(self, state: State, iteration: int) -> None:
        """Go on from a state, as it was after `iteration` iterations."""
        # The restored tree has dictionaries where optax has named tuples.
        found = self.adapter.load_into({"params": self.parameters, "opt_state": self.memory}, state)
        self.parameters, self.memory = found["params"], found["opt_state"]
        self.iteration = iteration

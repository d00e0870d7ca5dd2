"""Optimizers that torch does not have."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["Lion", "ScheduleFree", "Tiger"]


class Lion(torch.optim.Optimizer):
    """Lion (Chen et al., 2023): steps of one size, by the sign of an interpolated momentum."""

    def __init__(self, parameters: Any, lr: float, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # noqa: ARG002 - an optimizer has it
        """Do one step."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.sub_((beta1 * m + (1 - beta1) * p.grad).sign(), alpha=group["lr"])
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


class Tiger(torch.optim.Optimizer):
    """Tiger (Su, 2023): steps of one size, by the sign of the momentum."""

    def __init__(self, parameters: Any, lr: float, beta: float = 0.965) -> None:
        super().__init__(parameters, {"lr": lr, "beta": beta})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # noqa: ARG002 - an optimizer has it
        """Do one step."""
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                m.lerp_(p.grad, 1 - group["beta"])
                p.sub_(m.sign(), alpha=group["lr"])


class ScheduleFree(torch.optim.Optimizer):
    """AdamW without a schedule (Defazio et al., 2024).

    Parameters are where gradients are taken; `z` are the steps, and between both lies the average
    that the run is evaluated with.
    """

    def __init__(self, parameters: Any, lr: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "k": 0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # noqa: ARG002 - an optimizer has it
        """Do one step."""
        for group in self.param_groups:
            group["k"] += 1
            (beta1, beta2), k = group["betas"], group["k"]
            size = group["lr"] * math.sqrt(1 - beta2**k)
            for p in group["params"]:
                own = self.state[p]
                z = own.setdefault("z", p.clone())
                v = own.setdefault("exp_avg_sq", torch.zeros_like(p))
                v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                change = p.grad / v.sqrt().add_(1e-8)
                p.lerp_(z, 1 / k).add_(change, alpha=size * (beta1 * (1 - 1 / k) - 1))
                z.sub_(change, alpha=size)

    @contextmanager
    def averages(self) -> Iterator[None]:
        """Let the parameters be the averages."""
        places = [(p, group["betas"][0]) for group in self.param_groups for p in group["params"]]
        before = [p.detach().clone() for p, _ in places]
        with torch.no_grad():
            for p, beta1 in places:
                if "z" in self.state[p]:
                    p.lerp_(self.state[p]["z"], 1 - 1 / beta1)
            yield
            for (p, _), old in zip(places, before, strict=True):
                p.copy_(old)

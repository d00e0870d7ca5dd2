"""The states of PyTorch's optimizers: what fits a parameter.

The state of an optimizer is ``{"state": {index: {entry: value}}, "param_groups": [{"params":
[index]}]}``: the indices number the parameters, group by group. A group also has settings. Source:
torch.optim of torch 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

from ...container.tree import leaf_name
from .wrappers import is_wrapper

__all__ = ["ELEMENTWISE", "describe", "load_optimizer", "misfits"]

#: Entries with the shape of their parameter.
ELEMENTWISE: Final = frozenset(
    [
        *("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "momentum_buffer", "grad_avg"),
        *("square_avg", "acc_delta", "sum", "ax"),
    ]
)


def describe(value: Any) -> str:
    """Return the type and shape of a tensor, and the class of a wrapper, in words."""
    return (
        f"{_describe_values(value)} in {type(value).__name__}"
        if is_wrapper(value)
        else _describe_values(value)
    )


def _describe_values(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    return "no tensor"


#: Settings that only some optimizers have. A state with one that the target lacks is of another
#: kind.
_DISTINCTIVE: Final = frozenset(
    [
        *("betas", "momentum", "dampening", "nesterov", "alpha", "centered", "rho", "lr_decay"),
        *("lambd", "t0", "etas", "step_sizes", "amsgrad", "momentum_decay", "beta2_decay"),
        *("ns_steps", "history_size"),
    ]
)


def load_optimizer(optimizer: torch.optim.Optimizer, state: Any) -> None:
    """Load a state that fits. Settings that its groups lack keep the values of the target.

    For options that it added over the years, PyTorch itself fills in the former behaviour; that
    counts first. Entries for parameters that the optimizer does not have are left out.
    """
    own = [dict(group) for group in optimizer.param_groups]
    known = {index for group in state["param_groups"] for index in group["params"]}
    entries = {index: child for index, child in state["state"].items() if index in known}
    optimizer.load_state_dict({**state, "state": entries})
    for group, before in zip(optimizer.param_groups, own, strict=True):
        for key, value in before.items():
            group.setdefault(key, value)


def misfits(
    optimizer: torch.optim.Optimizer, state: Any, keys: tuple[str, ...], strict: bool = True
) -> Iterator[str]:
    """Yield everything in a state that does not fit this optimizer with these parameters.

    PyTorch itself checks only the number of parameters, and casts moments to the type of their
    parameter. A missing setting is a misfit only if other settings show that the state is of
    another kind of optimizer. Missing and unexpected entries are misfits only if `strict`.
    """
    where = leaf_name(keys) or "the state"
    groups = optimizer.param_groups
    if not (
        isinstance(state, dict)
        and isinstance(state.get("state"), dict)
        and isinstance(state.get("param_groups"), list)
        and all(isinstance(g, dict) and isinstance(g.get("params"), list) for g in state["param_groups"])
    ):
        yield f"{where}: not the state of an optimizer"
        return
    counts = [len(group["params"]) for group in groups]
    found = [len(group["params"]) for group in state["param_groups"]]
    if found != counts:
        yield f"{where}: groups of {found} parameters, where the target has groups of {counts}"
        return
    parameters: dict[Any, torch.Tensor] = {}
    for position, (group, saved) in enumerate(zip(groups, state["param_groups"], strict=True)):
        place = leaf_name((*keys, "param_groups", str(position)))
        if strict and (saved.keys() - group.keys()) & _DISTINCTIVE:
            yield from (f"missing: {place}/{key}" for key in group if key not in saved)
        parameters.update(zip(saved["params"], group["params"], strict=True))
    for index, entries in state["state"].items():
        place = leaf_name((*keys, "state", str(index)))
        if index in parameters and isinstance(entries, dict):
            own = optimizer.state.get(parameters[index], {})
            yield from _entry_misfits(parameters[index], own, entries, place, strict)
        elif strict or index in parameters:
            yield f"unexpected: {place}"


def _entry_misfits(
    parameter: torch.Tensor, own: Mapping[str, Any], entries: Mapping[str, Any], place: str, strict: bool
) -> Iterator[str]:
    if own and strict:
        yield from (f"missing: {place}/{entry}" for entry in own if entry not in entries)
        yield from (f"unexpected: {place}/{entry}" for entry in entries if entry not in own)
    for entry, value in entries.items():
        if entry in ELEMENTWISE and value is not None:  # SGD without momentum has None
            # One of the two may be a wrapper: of low-bit moments, or of a low-bit weight.
            pairs = [(_describe_values(value), _describe_values(parameter))]
        else:
            pairs = []
        kept = own.get(entry)
        if isinstance(kept, torch.Tensor) and (not pairs or is_wrapper(kept) or is_wrapper(value)):
            pairs.append((describe(value), describe(kept)))
        for found, wanted in pairs:
            if found != wanted:
                yield f"{place}/{entry}: {found}, where the target has {wanted}"
                break

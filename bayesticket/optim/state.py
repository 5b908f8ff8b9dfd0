"""The state of an optimiser as named tensors, copied out and put back to the bit."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import Parameter

from bayesticket.errors import BayesticketError, refuse, refuse_case


def optimizer_tensors(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Parameter]) -> dict[str, Tensor]:
    """Copies the state of an optimiser as tensors named `<parameter>/<state>`, and numbers of its groups.

    Settings (`lr`, …) are not copied: they are given again when the optimiser is built. A number in a parameter group
    that differs from the setting of that name counts as state, such as the step counter of a schedule-free optimiser.

    >>> from bayesticket.optim import AdamW
    >>> weights = {"W": Parameter(torch.ones(2, 3))}
    >>> list(optimizer_tensors(AdamW().build(weights), weights))
    ['W/step', 'W/exp_avg', 'W/exp_avg_sq']
    """
    # A safetensors file takes contiguous tensors only.
    return {
        name: tensor.detach().clone(memory_format=torch.contiguous_format)
        for name, tensor in _live_tensors(optimizer, parameters).items()
    } | {f"{_GROUP}{place}/{key}": torch.tensor(number) for place, key, number in _counters(optimizer)}


def restore_optimizer(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, Parameter], tensors: Mapping[str, Tensor]
) -> None:
    """Puts `optimizer_tensors` back, bit for bit, into an optimiser that was built alike.

    An optimiser that makes its state only at the first gradient takes all tensors of its parameters. Nothing is changed
    when a name, a shape or a dtype does not fit.
    """
    numbers = {name: tensor for name, tensor in tensors.items() if name.startswith(_GROUP)}
    tensors = {name: tensor for name, tensor in tensors.items() if name not in numbers}
    for name, number in numbers.items():
        place, _, key = name.removeprefix(_GROUP).partition("/")
        if not place.isdecimal() or int(place) >= len(optimizer.param_groups) or number.numel() != 1:
            raise refuse("optimizer tensors", name, "numbers of the optimiser's parameter groups")
        optimizer.param_groups[int(place)][key] = number.item()
    live = _live_tensors(optimizer, parameters)
    _check_names(live, tensors, new={name for name in parameters if not optimizer.state.get(parameters[name])})
    for name, tensor in tensors.items():
        if name in live and (tensor.shape, tensor.dtype) != (live[name].shape, live[name].dtype):
            raise refuse_case(name, _describe(tensor), _describe(live[name]))
    with torch.no_grad():
        for name, tensor in tensors.items():
            if name in live:
                live[name].copy_(tensor)
            else:
                parameter, _, key = name.rpartition("/")
                device = parameters[parameter].device if tensor.ndim else "cpu"  # step counters stay on the host
                optimizer.state[parameters[parameter]][key] = tensor.to(device, copy=True)


_GROUP = "group "
_RATES = ("lr", "initial_lr")
"""Set by the loop before every step."""


def _counters(optimizer: torch.optim.Optimizer) -> list[tuple[int, str, int | float]]:
    """The numbers in parameter groups that are not settings: place of the group, name and number."""
    return [
        (place, key, value)
        for place, group in enumerate(optimizer.param_groups)
        for key, value in group.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
        if key not in _RATES and value != optimizer.defaults.get(key)
    ]


def _live_tensors(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Parameter]) -> dict[str, Tensor]:
    live: dict[str, Tensor] = {}
    for name, parameter in parameters.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            if value is not None and not isinstance(value, Tensor):
                raise refuse(f"optimizer state {name}/{key}", value, "a tensor, which a checkpoint can hold")
            if value is not None:
                live[f"{name}/{key}"] = value
    return live


def _check_names(live: Mapping[str, Tensor], tensors: Mapping[str, Tensor], new: set[str]) -> None:
    """Raises unless the tensors are those of the optimiser; parameters without state yet may get any."""
    unexpected = [name for name in tensors if name not in live and name.rpartition("/")[0] not in new]
    differences = {"missing": sorted(live.keys() - tensors.keys()), "unexpected": sorted(unexpected)}
    problems = [f"{kind} {', '.join(map(repr, names))}" for kind, names in differences.items() if names]
    if problems:
        raise BayesticketError(f"optimizer tensors: {'; '.join(problems)}")


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"

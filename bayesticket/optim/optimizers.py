"""The norm-contractive optimisers by name, their warm-up, and their state as named tensors.

Each obeys Definition 3.2, with step size η and weight decay λ, in the form of Propositions B.1 and B.2:

    ‖W'‖² ≤ (1 − ηλ) ‖W‖² + (η/λ) ‖D‖²

where D is the gradient for SGD with L2 decay, and the bounded direction for AdamW, Muon and Lion.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NotRequired, TypedDict, cast, final, overload

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Parameter
from torch.optim.adamw import adamw

from bayesticket.errors import BayesticketError, refuse, refuse_name, require_integer, require_number
from bayesticket.model import is_hidden_matrix

OPTIMIZERS = ("adamw", "sgd", "muon", "lion")

ADAM_EPSILON = 1e-8
# The three constants of torch.optim.Muon, which are those of Muon's author.
NEWTON_SCHULZ_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_ITERATIONS = 5
NEWTON_SCHULZ_EPSILON = 1e-7

_FUSED_DEVICES = frozenset({"cpu", "cuda", "mps", "xpu"})


class _Group(TypedDict):
    """What `step` reads of a parameter group."""

    params: list[Parameter]
    lr: float
    weight_decay: float
    betas: tuple[float, float]
    orthogonal: NotRequired[bool]
    fused: NotRequired[bool]


def make_optimizer(
    name: str,
    parameters: Mapping[str, Parameter],
    *,
    lr: float,
    weight_decay: float,
    betas: tuple[float, float],
    momentum: float = 0.0,
) -> torch.optim.Optimizer:
    """Builds one of `OPTIMIZERS` over those of the named parameters that require a gradient.

    | name    | step, with step size η = `lr` and decay λ = `weight_decay`                             |
    |---------|----------------------------------------------------------------------------------------|
    | `sgd`   | `W' = (1 − ηλ) W − η G`; with `momentum`, `G + λW` is accumulated, as in torch         |
    | `adamw` | `W' = (1 − ηλ) W − η m̂ / (√v̂ + ε)`                                                     |
    | `muon`  | `W' = (1 − ηλ) W − η √max(1, out/in) · NS(m)`; see `Muon`                              |
    | `lion`  | `W' = (1 − ηλ) W − η sign(β₁ m + (1 − β₁) G)`; see `Lion`                              |

    `momentum` is for `sgd` alone and `betas` for the three others.

    >>> weights = {"W": Parameter(torch.ones(2, 3))}
    >>> optimizer = make_optimizer("sgd", weights, lr=0.1, weight_decay=1.0, betas=(0.9, 0.98))
    >>> weights["W"].grad = torch.zeros(2, 3)
    >>> optimizer.step()
    >>> weights["W"].tolist()[0]
    [0.8999999761581421, 0.8999999761581421, 0.8999999761581421]
    """
    if name not in OPTIMIZERS:
        raise refuse_name("optimizer", name, OPTIMIZERS)
    _check_settings(name, lr, weight_decay, betas, momentum)
    named = [(key, value) for key, value in parameters.items() if value.requires_grad]
    if not named:
        raise refuse("parameters", list(parameters), "at least one parameter that requires a gradient")
    if name == "lion":
        return Lion(named, lr=lr, weight_decay=weight_decay, betas=betas)
    if name == "muon":
        return Muon(named, lr=lr, weight_decay=weight_decay, betas=betas)
    if name == "adamw":
        return _adamw(named, lr=lr, weight_decay=weight_decay, betas=betas)
    return _sgd(named, lr=lr, weight_decay=weight_decay, momentum=momentum)


def warmup_factor(step: int, warmup: int) -> float:
    """What the step size is multiplied with at `step` (from 0): `min(1, (step + 1) / warmup)`.

    >>> [warmup_factor(step, 4) for step in range(5)]
    [0.25, 0.5, 0.75, 1.0, 1.0]
    >>> warmup_factor(0, 0)
    1.0
    """
    require_integer("step", step, least=0)
    require_integer("warmup", warmup, least=0)
    return 1.0 if step + 1 >= warmup else (step + 1) / warmup


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Sets the step size η of every parameter group; 0 stands still."""
    require_number("lr", lr, least=0.0)
    for group in optimizer.param_groups:
        group["lr"] = lr


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Copies the state of an optimiser from `make_optimizer` as tensors named "<parameter>/<state>".

    The settings (`lr`, …) are not part of it: they belong to whoever builds the optimiser.

    >>> weights = {"W": Parameter(torch.ones(2, 3))}
    >>> optimizer = make_optimizer("adamw", weights, lr=0.1, weight_decay=1.0, betas=(0.9, 0.98))
    >>> list(optimizer_tensors(optimizer))
    ['W/step', 'W/exp_avg', 'W/exp_avg_sq']
    """
    # A safetensors file takes contiguous tensors only.
    return {
        name: tensor.detach().clone(memory_format=torch.contiguous_format)
        for name, tensor in _live_tensors(optimizer).items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Puts `optimizer_tensors` back, bit for bit, into an optimiser that `make_optimizer` built alike.

    Nothing is changed when a name, a shape or a dtype does not fit.
    """
    live = _live_tensors(optimizer)
    _check_names(live, tensors)
    for name, tensor in tensors.items():
        if (tensor.shape, tensor.dtype) != (live[name].shape, live[name].dtype):
            raise refuse(name, _describe(tensor), _describe(live[name]))
    with torch.no_grad():
        for name, tensor in tensors.items():
            live[name].copy_(tensor)


def newton_schulz(matrices: Float[Tensor, "*batch rows cols"]) -> Float[Tensor, "*batch rows cols"]:
    """Brings the singular values of each matrix near 1 and keeps its singular vectors.

    Five times `X ← aX + (b XXᵀ + c (XXᵀ)²) X`, from `X = M / ‖M‖_F`. The coefficients are steep at zero at
    the price of never quite converging: singular values above 0.003 ‖M‖_F end between 0.68 and 1.21, and the
    smaller ones below 1.21. A norm below 1e-7 counts as 1e-7, so that a zero gradient gives a zero step.

    >>> newton_schulz(torch.diag(torch.tensor([3.0, 0.5]))).diagonal().round(decimals=1)
    tensor([0.7000, 1.0000])
    """
    a, b, c = NEWTON_SCHULZ_COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    wide = matrices.mT if tall else matrices  # the Gram matrix is then the smaller of the two
    stack = wide.reshape(-1, *wide.shape[-2:])
    stack = stack / torch.linalg.matrix_norm(stack, keepdim=True).clamp(min=NEWTON_SCHULZ_EPSILON)
    for _ in range(NEWTON_SCHULZ_ITERATIONS):
        gram = stack @ stack.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        stack = torch.baddbmm(stack, polynomial, stack, beta=a)
    wide = stack.reshape(wide.shape)
    return wide.mT if tall else wide


class _GroupwiseOptimizer(torch.optim.Optimizer, ABC):
    """The part that Lion and Muon share: a step is an update of each parameter group."""

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Takes one step; `closure`, where given, recomputes loss and gradients first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self._update(cast("_Group", group))
        return loss

    @abstractmethod
    def _update(self, group: _Group) -> None: ...


@final
class Lion(_GroupwiseOptimizer):
    """Moves every weight by the same amount, along the sign of a momentum (Chen et al., 2023).

        W ← (1 − ηλ) W − η sign(β₁ m + (1 − β₁) G),    m ← β₂ m + (1 − β₂) G

    so that ‖D‖_F ≤ √(mn) for an m × n matrix.

    >>> weight = Parameter(torch.zeros(3))
    >>> weight.grad = torch.tensor([5.0, -0.1, 0.0])
    >>> Lion([("W", weight)], lr=0.5, weight_decay=0.0, betas=(0.9, 0.99)).step()
    >>> weight.tolist()
    [-0.5, 0.5, 0.0]
    """

    def __init__(
        self,
        named_parameters: Sequence[tuple[str, Parameter]],
        *,
        lr: float,
        weight_decay: float,
        betas: tuple[float, float],
    ) -> None:
        super().__init__(named_parameters, {"lr": lr, "weight_decay": weight_decay, "betas": betas})
        for _, parameter in named_parameters:
            self.state[parameter] = {"exp_avg": torch.zeros_like(parameter)}

    def _update(self, group: _Group) -> None:
        decay, (beta1, beta2) = 1 - group["lr"] * group["weight_decay"], group["betas"]
        for parameter, gradient in zip(*_with_gradient(group), strict=True):
            momentum = self.state[parameter]["exp_avg"]
            direction = gradient.lerp(momentum, beta1).sign_()  # x.lerp(y, w) = x + w (y − x)
            parameter.mul_(decay).add_(direction, alpha=-group["lr"])
            momentum.lerp_(gradient, 1 - beta2)


@final
class Muon(_GroupwiseOptimizer):
    """Moves each weight matrix along its orthogonalised momentum (Jordan et al., 2024).

        m ← β₁ m + (1 − β₁) G,    W ← (1 − ηλ) W − η √max(1, out/in) · NS(β₁ m + (1 − β₁) G)

    NS is `newton_schulz` over the last two axes, which are (in, out) as TransformerLens stores a matrix: W_Q,
    W_K, W_V and W_O, of three axes, are orthogonalised head by head, W_in and W_out whole. So
    ‖D‖_F ≤ √(heads · min(in, out)) (1 + ε) times the square root above, with ε ≈ 0.2.

    As is usual, embeddings, positional embeddings, the unembedding, biases and all else that is no weight
    matrix take AdamW steps, with the same η, λ and `betas`.

    Nesterov's look-ahead, the constants and the scaling are those of `torch.optim.Muon`. That one takes
    parameters of two axes (out, in) only and orthogonalises in bfloat16; here the weights keep their axes and
    dtype.
    """

    def __init__(
        self,
        named_parameters: Sequence[tuple[str, Parameter]],
        *,
        lr: float,
        weight_decay: float,
        betas: tuple[float, float],
    ) -> None:
        matrices = [(name, value) for name, value in named_parameters if is_hidden_matrix(name, value)]
        others = [(name, value) for name, value in named_parameters if not is_hidden_matrix(name, value)]
        fused = _can_fuse(others)
        groups = [
            {"params": matrices, "orthogonal": True},
            {"params": others, "orthogonal": False, "fused": fused},
        ]
        super().__init__(
            [group for group in groups if group["params"]],
            {"lr": lr, "weight_decay": weight_decay, "betas": betas},
        )
        for _, parameter in matrices:
            self.state[parameter] = {"momentum_buffer": torch.zeros_like(parameter)}
        for _, parameter in others:
            self.state[parameter] = _adam_state(parameter, fused=fused)

    def _update(self, group: _Group) -> None:
        if group.get("orthogonal"):
            self._update_matrices(group)
        else:
            self._update_others(group)

    def _update_matrices(self, group: _Group) -> None:
        decay, beta1 = 1 - group["lr"] * group["weight_decay"], group["betas"][0]
        for parameter, gradient in zip(*_with_gradient(group), strict=True):
            momentum = self.state[parameter]["momentum_buffer"].lerp_(gradient, 1 - beta1)
            direction = newton_schulz(gradient.lerp(momentum, beta1))
            n_in, n_out = parameter.shape[-2:]
            parameter.mul_(decay).add_(direction, alpha=-group["lr"] * math.sqrt(max(1.0, n_out / n_in)))

    def _update_others(self, group: _Group) -> None:
        parameters, gradients = _with_gradient(group)
        if not parameters:
            return
        states = [self.state[parameter] for parameter in parameters]
        adamw(
            parameters,
            gradients,
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=group.get("fused", False),
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=ADAM_EPSILON,
            maximize=False,
        )


def _adamw(
    named: Sequence[tuple[str, Parameter]], *, lr: float, weight_decay: float, betas: tuple[float, float]
) -> torch.optim.AdamW:
    fused = _can_fuse(named)
    optimizer = torch.optim.AdamW(
        named, lr=lr, betas=betas, eps=ADAM_EPSILON, weight_decay=weight_decay, fused=fused or None
    )
    # torch would do this at the first gradient; done now, the names of the state are known from the start.
    for _, parameter in named:
        optimizer.state[parameter] = _adam_state(parameter, fused=fused)
    return optimizer


def _sgd(named: Sequence[tuple[str, Parameter]], *, lr: float, weight_decay: float, momentum: float) -> torch.optim.SGD:
    optimizer = torch.optim.SGD(named, lr=lr, weight_decay=weight_decay, momentum=momentum)
    if momentum > 0:
        for _, parameter in named:
            optimizer.state[parameter] = {"momentum_buffer": torch.zeros_like(parameter)}
    return optimizer


def _adam_state(parameter: Parameter, *, fused: bool) -> dict[str, Tensor]:
    # The fused kernel counts steps beside the parameter, the others on the host.
    return {
        "step": torch.zeros((), dtype=torch.float32, device=parameter.device if fused else "cpu"),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }


def _can_fuse(named: Sequence[tuple[str, Parameter]]) -> bool:
    return all(value.device.type in _FUSED_DEVICES and value.is_floating_point() for _, value in named)


def _with_gradient(group: _Group) -> tuple[list[Tensor], list[Tensor]]:
    pairs = [(parameter, parameter.grad) for parameter in group["params"] if parameter.grad is not None]
    return [parameter for parameter, _ in pairs], [gradient for _, gradient in pairs]


def _live_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    live = {}
    for group in optimizer.param_groups:
        if "param_names" not in group:
            raise refuse("optimizer", type(optimizer).__name__, "an optimiser built by make_optimizer")
        for name, parameter in zip(group["param_names"], group["params"], strict=True):
            for key, value in optimizer.state.get(parameter, {}).items():
                live[f"{name}/{key}"] = value
    return live


def _check_names(live: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    differences = {
        "missing": sorted(live.keys() - tensors.keys()),
        "unexpected": sorted(tensors.keys() - live.keys()),
    }
    told = [f"{kind} {', '.join(map(repr, names))}" for kind, names in differences.items() if names]
    if told:
        raise BayesticketError(f"optimizer tensors: {'; '.join(told)}")


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def _check_settings(name: str, lr: float, weight_decay: float, betas: tuple[float, float], momentum: float) -> None:
    require_number("lr", lr, above=0.0)
    require_number("weight_decay", weight_decay, least=0.0)
    for position, beta in enumerate(betas):
        require_number(f"betas[{position}]", beta, least=0.0, below=1.0)
    require_number("momentum", momentum, least=0.0, below=1.0)
    if momentum > 0 and name != "sgd":
        raise refuse("momentum", momentum, f"0 for {name!r}, whose momentum is betas[0]; or optimizer='sgd'")

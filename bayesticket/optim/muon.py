"""Muon: every hidden matrix moves along its orthogonalised momentum (Jordan et al. 2024)."""

import math
from collections.abc import Mapping
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Parameter
from torch.optim.adamw import adamw

from bayesticket.model import is_hidden_matrix
from bayesticket.optim.adamw import ADAM_EPSILON, adam_bound, adam_state, can_fuse
from bayesticket.optim.base import Optimizer, joint_norm
from bayesticket.optim.groupwise import Group, GroupwiseOptimizer, with_gradient
from bayesticket.specs import spec
from bayesticket.theory import muon_step_bound, require_betas

# The three constants of torch.optim.Muon, which are those of Muon's author.
NEWTON_SCHULZ_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_ITERATIONS = 5
NEWTON_SCHULZ_EPSILON = 1e-7


@spec
class Muon(Optimizer):
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

    betas: tuple[float, float] = (0.9, 0.999)
    """β₁ averages the momentum of matrices; both are AdamW's for all other parameters."""

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "betas", require_betas(self.betas))

    def build(self, parameters: Mapping[str, Parameter]) -> "MuonOptimizer":
        """The optimiser, with its state there from the start."""
        return MuonOptimizer(parameters, lr=self.lr_at(0), weight_decay=self.weight_decay_at(0), betas=self.betas)

    def direction_bound(self, parameters: Mapping[str, Tensor], direction: float) -> float:
        """The bound of `theory.muon_step_bound` for hidden matrices, AdamW's for all else (Prop. B.2)."""
        return joint_norm(
            muon_step_bound(value.shape) if is_hidden_matrix(name, value) else adam_bound(self.betas, value)
            for name, value in parameters.items()
        )


@final
class MuonOptimizer(GroupwiseOptimizer):
    """Muon as a torch optimiser; see `Muon`."""

    def __init__(
        self, parameters: Mapping[str, Parameter], *, lr: float, weight_decay: float, betas: tuple[float, float]
    ) -> None:
        matrices = [(name, value) for name, value in parameters.items() if is_hidden_matrix(name, value)]
        others = [(name, value) for name, value in parameters.items() if not is_hidden_matrix(name, value)]
        fused = can_fuse(value for _, value in others)
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
            self.state[parameter] = adam_state(parameter, fused=fused)

    def update(self, group: Group) -> None:
        """Orthogonalises the steps of hidden matrices; all other parameters take AdamW's."""
        if group.get("orthogonal"):
            self._update_matrices(group)
        else:
            self._update_others(group)

    def _update_matrices(self, group: Group) -> None:
        decay, beta1 = 1 - group["lr"] * group["weight_decay"], group["betas"][0]
        for parameter, gradient in zip(*with_gradient(group), strict=True):
            momentum = self.state[parameter]["momentum_buffer"].lerp_(gradient, 1 - beta1)
            direction = newton_schulz(gradient.lerp(momentum, beta1))
            n_in, n_out = parameter.shape[-2:]
            parameter.mul_(decay).add_(direction, alpha=-group["lr"] * math.sqrt(max(1.0, n_out / n_in)))

    def _update_others(self, group: Group) -> None:
        parameters, gradients = with_gradient(group)
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

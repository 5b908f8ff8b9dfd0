"""Attention targets: where the attention of the last position ought to be, or ought not to be.

| target | attention |
|---|---|
| `"oracle"` | uniform over the informative positions, `α*_i = 1/k` for `i ∈ S` (Section 4.1) |
| `"adversarial"` | uniform over the distractors |
| `"uniform"` | uniform over all positions |
| `"shifted"` | the oracle moved along each sequence: as sparse as it, and as wrong as a shift can be |
| `Permuted(target)` | another target with its positions, or its examples, permuted |
| a tensor `(T,)`, `(n, T)` or `(n, heads, T)` | itself |
| a HookedTransformer, a Run, or the path of a saved one | the attention of that teacher on the same tokens |
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse, refuse_name, require_integer
from bayesticket.model import HookedTransformer, mounted, pattern_name
from bayesticket.seeding import seeded_generator
from bayesticket.specs import Spec, spec
from bayesticket.tasks import Examples, uniform_over

NAMES = ("oracle", "adversarial", "uniform", "shifted")


@runtime_checkable
class Taught(Protocol):
    """What holds a model, such as a Run."""

    @property
    def model(self) -> HookedTransformer:
        """The model."""
        ...


@spec
class Permuted(Spec):
    """A control: another target, as sharp, with its content destroyed.

    `along="positions"` permutes the positions of each example by a permutation of its own; `along="examples"` gives
    each example the target of another, which changes something only where targets differ between examples.
    """

    target: "str | Tensor | HookedTransformer | Permuted | Taught | Path" = "oracle"
    along: Literal["positions", "examples"] = "positions"
    seed: int = 0

    def __post_init__(self):
        object.__setattr__(self, "target", as_target("target", self.target))
        if self.along not in ("positions", "examples"):
            raise refuse_name("along", self.along, ("positions", "examples"))
        require_integer("seed", self.seed, least=0)


Target = str | Tensor | HookedTransformer | Permuted | Taught | Path
"""What is taken for a target; of a Run, or the path of a saved one, the model is kept."""


def as_target(field: str, given: object) -> Target:
    """Checks what is given for a target as far as that is possible without data; a run becomes its model."""
    if isinstance(given, str) and given in NAMES:
        return given
    if isinstance(given, str) and not _holds_run(given):
        others = ("a tensor", "a HookedTransformer", "a Run or where one is saved", "Permuted(…)")
        raise refuse_name(field, given, (*NAMES, *others))
    if isinstance(given, Tensor):
        return _require_distributions(field, given).clone()  # so that later changes to what was given change nothing
    if isinstance(given, str | Path):
        from bayesticket.runs import Run

        given = Run.load(given)
    teacher = getattr(given, "model", given)
    if isinstance(teacher, HookedTransformer | Permuted):
        return teacher
    raise refuse(field, given, f"one of {NAMES}, a tensor, a HookedTransformer, a Run, or Permuted(…)")


def _holds_run(path: str) -> bool:
    try:
        return (Path(path) / "run.json").is_file()
    except OSError:  # a name that no path can have
        return False


def _require_distributions(field: str, target: Tensor) -> Tensor:
    if target.ndim not in (1, 2, 3) or not target.dtype.is_floating_point or target.numel() == 0:
        raise refuse(
            field,
            f"{target.dtype} {tuple(target.shape)}",
            "a floating-point tensor (T,), (n, T) or (n, heads, T)",
        )
    if not torch.isfinite(target).all() or (target < 0).any():
        raise refuse(field, "a tensor with negative or non-finite entries", "attention weights, none of them negative")
    sums = target.double().sum(-1)
    if (sums - 1).abs().max() > 1e-4:
        worst = sums.flatten()[(sums - 1).abs().argmax()].item()
        raise refuse(field, f"a row that sums to {worst:.6g}", "rows that sum to 1")
    return target


def resolve(
    target: Target, examples: Examples, layer: int = 0, *, query: int = -1, heads: Sequence[int] | None = None
) -> Float[Tensor, "n heads T"]:
    """The target as attention weights, `n` and `heads` being 1 where all examples or heads share them.

    Layer, query and heads say which of a teacher's attention is meant; other targets are the same for all.

    >>> from bayesticket.tasks import ModularAddition
    >>> resolve("oracle", ModularAddition(p=5).split().train)
    tensor([[[0.5000, 0.0000, 0.5000, 0.0000, 0.0000]]], dtype=torch.float64)
    """
    if isinstance(target, str):
        return _share(_NAMED[target](examples.informative)[:, None])
    if isinstance(target, Permuted):
        return _permute(target, resolve(target.target, examples, layer, query=query, heads=heads), len(examples))
    if isinstance(target, HookedTransformer):
        return _teach(target, examples, layer, query, heads)
    assert isinstance(target, Tensor)
    return _fit(target, examples)


def _fit(target: Tensor, examples: Examples) -> Tensor:
    shaped = target[None, None] if target.ndim == 1 else target[:, None] if target.ndim == 2 else target
    n, n_positions = examples.tokens.shape
    if examples.origin is not None and len(shaped) == examples.n_whole != 1:
        shaped = shaped.to(examples.origin.device)[examples.origin]  # a row for each of the task's examples
    if shaped.shape[-1] != n_positions or shaped.shape[0] not in (1, n):
        raise refuse(
            "target",
            f"shape {tuple(target.shape)}",
            f"({n_positions},), ({n}, {n_positions}) or ({n}, heads, {n_positions})",
        )
    return shaped.to(examples.tokens.device)


def _share(target: Tensor) -> Tensor:
    return target[:1] if (target == target[:1]).all() else target


def oracle(informative: Bool[Tensor, "n T"]) -> Float[Tensor, "n T"]:
    """The oracle posterior: uniform over the informative positions."""
    return uniform_over(informative, torch.float64)


def adversarial(informative: Bool[Tensor, "n T"]) -> Float[Tensor, "n T"]:
    """All attention on the distractors, uniformly."""
    if informative.all(-1).any():
        raise refuse("target", "adversarial", "a task in which every sequence has a distractor")
    return uniform_over(~informative, torch.float64)


def uniform(informative: Bool[Tensor, "n T"]) -> Float[Tensor, "n T"]:
    """Attention spread evenly over all positions."""
    return uniform_over(torch.ones_like(informative), torch.float64)


def shifted(informative: Bool[Tensor, "n T"]) -> Float[Tensor, "n T"]:
    """The oracle moved cyclically, in each sequence by the least number of positions that overlaps it least."""
    if informative.shape[-1] < 2:
        raise refuse("target", "shifted", "sequences of at least two positions")
    moved = torch.stack([informative.roll(shift, -1) for shift in range(1, informative.shape[-1])])
    best = (moved & informative).sum(-1).argmin(0)
    return uniform_over(moved[best, torch.arange(len(informative), device=informative.device)], torch.float64)


_NAMED = {"oracle": oracle, "adversarial": adversarial, "uniform": uniform, "shifted": shifted}


def _permute(spec: Permuted, target: Tensor, n: int) -> Tensor:
    generator = seeded_generator(spec.seed, f"permuted {spec.along}")
    if spec.along == "examples":
        if len(target) == 1:
            raise refuse("along", "examples", "a target that differs between examples; here all of them share it")
        return target[torch.randperm(n, generator=generator).to(target.device)]
    target = target.expand(n, *target.shape[1:])
    order = torch.rand(n, 1, target.shape[-1], generator=generator, dtype=torch.float64).argsort(-1).to(target.device)
    return target.gather(-1, order.expand_as(target))


def _teach(
    teacher: HookedTransformer, examples: Examples, layer: int, query: int, heads: Sequence[int] | None
) -> Tensor:
    n_positions, largest = examples.tokens.shape[1], int(examples.tokens.max())
    built_for = teacher.cfg.n_ctx if hasattr(teacher, "architecture") else n_positions
    if teacher.cfg.n_ctx < n_positions or built_for != n_positions:
        raise refuse("teacher", f"a model with {teacher.cfg.n_ctx} positions", f"one with {n_positions} positions")
    if teacher.cfg.d_vocab <= largest:
        raise refuse("teacher", f"a model with {teacher.cfg.d_vocab} tokens", f"one that knows token {largest}")
    if layer >= teacher.cfg.n_layers:
        raise refuse("teacher", f"a model of {teacher.cfg.n_layers} layers", f"one with a layer {layer}")
    taught = slice(None) if heads is None or teacher.cfg.n_heads == 1 else list(heads)
    if isinstance(taught, list) and max(taught) >= teacher.cfg.n_heads:
        raise refuse(
            "teacher", f"a model of {teacher.cfg.n_heads} heads", f"one with a head {max(taught)}, or one head"
        )
    kept: list[Tensor] = []
    with (
        mounted(teacher, [(pattern_name(layer), lambda pattern, hook: kept.append(pattern[:, taught, query]))]),
        torch.no_grad(),
    ):
        teacher(examples.tokens.to(teacher.cfg.device))
    return kept[0].to(examples.tokens.device)


def require_visible(target: Float[Tensor, "n heads T"], visible: slice, field: str) -> None:
    """Refuses a target with mass on keys that the query cannot attend to."""
    hidden = torch.ones(target.shape[-1], dtype=torch.bool, device=target.device)
    hidden[visible] = False
    if hidden.any() and (mass := target[..., hidden].sum(-1).max().item()) > 1e-6:
        blind = torch.nonzero(hidden)[:, 0].tolist()
        raise BayesticketError(
            f"{field}: got a target with mass {mass:.3g} on positions {blind}, which the query's causal attention "
            f"cannot see; accepted: mass on positions {visible.start} to {visible.stop - 1} only"
        )

"""Attention targets: distributions over the key positions that the attention of a query is compared with or drawn to.

| target | attention |
|---|---|
| `"oracle"` | uniform over the informative positions, `α*_i = 1/k` for `i ∈ S` (Section 4.1) |
| `"adversarial"` | uniform over the distractors |
| `"uniform"` | uniform over all positions |
| `"shifted"` | the oracle moved along each sequence: as sparse, and overlapping the oracle as little as possible |
| `Permuted(target)` | another target with its positions or its examples permuted |
| a tensor `(T,)`, `(n, T)` or `(n, heads, T)` | the tensor itself |
| a HookedTransformer, a Run, or the path of a saved run | the attention of this teacher on the same tokens |
| `Teacher(…, positions=)` | the same, where its sequences are shorter than those it teaches |

The attention of a run is that of its bare model: the edits that it was trained under, such as frozen attention, are not
in force.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable
from weakref import WeakSet

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from bayesticket.attention.named import NAMED, uniform
from bayesticket.attention.teachers import notice_of_edits, teacher_attention
from bayesticket.errors import refuse, refuse_case, refuse_name, require_choice, require_integer, require_several
from bayesticket.model import HookedTransformer, copied, made_for, task_of
from bayesticket.seeding import seeded_generator
from bayesticket.specs import Spec, spec
from bayesticket.tasks import AbstractTask, Examples, places_in


@runtime_checkable
class HoldsModel(Protocol):
    """An object that holds a model, such as a Run."""

    @property
    def model(self) -> HookedTransformer:
        """The model."""
        ...


@spec
class Permuted(Spec):
    """A control: another target, permuted, so that it is as sharp but points elsewhere.

    `along="positions"` draws a permutation of the positions for each example; `along="examples"` gives each example the
    target of another one, and raises if all examples share one target.
    """

    target: "str | Tensor | HookedTransformer | Permuted | Teacher | HoldsModel | Path" = "oracle"
    along: Literal["positions", "examples"] = "positions"
    seed: int = 0

    def __post_init__(self):
        object.__setattr__(self, "target", as_target("target", self.target))
        require_choice("along", self.along, ("positions", "examples"))
        require_integer("seed", self.seed, least=0)


@spec
class Teacher(Spec):
    """The attention of another model, where it stands on some of the positions of the sequences, or is of an epoch.

    The teacher reads the tokens at `positions`, in order, as its own sequence; its attention is placed there, and is 0
    elsewhere. In place of numbers, `positions=task` is a task whose sequences have the teacher's symbols in one place
    only. `epoch` is that of a snapshot, where a run or the path of one is given. A copy is kept of the model, as it is.

    >>> from bayesticket.model import build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> short, long = (ModularAddition(p=7, n_distractors=n) for n in (0, 4))
    >>> Teacher(build_model(short), positions=long).positions
    (0, 1, 2, 7)
    """

    model: "HookedTransformer | HoldsModel | str | Path"
    positions: tuple[int, ...] | AbstractTask | None = None
    """Where the teacher's sequence stands; None where its sequences are as long."""
    epoch: int | None = None
    """Of a run, the epoch; once given, the model is what it was then, and this is None."""

    def __post_init__(self):
        if isinstance(self.model, Permuted | Teacher | Tensor):
            raise refuse("Teacher.model", self.model, "a HookedTransformer, a Run, or the path of a saved one")
        teacher = _teacher("Teacher.model", self.model, self.epoch)
        if isinstance(self.positions, AbstractTask):
            positions = _positions_in(teacher, self.positions)
        else:
            positions = _increasing(self.positions)
        object.__setattr__(self, "model", teacher if teacher in _KEPT else _kept(teacher))
        object.__setattr__(self, "positions", positions)
        object.__setattr__(self, "epoch", None)


_KEPT: "WeakSet[HookedTransformer]" = WeakSet()
"""The models that teachers hold, which nobody trains."""


def _kept(model: HookedTransformer) -> HookedTransformer:
    own = made_for(copied(model), task_of(model))
    _KEPT.add(own)
    return own


def _increasing(given: object) -> tuple[int, ...] | None:
    """Positions as a tuple; raises unless they are whole numbers in increasing order."""
    if given is None:
        return None
    accepted = "positions in increasing order, such as (0, 1, 2, 7), a task, or None"
    positions = require_several("Teacher.positions", given, accepted)
    for place in positions:
        require_integer("Teacher.positions", place, least=0)
    if not positions or any(after <= before for before, after in pairwise(positions)):
        raise refuse("Teacher.positions", given, accepted)
    return tuple(positions)


def _positions_in(teacher: HookedTransformer, task: AbstractTask) -> tuple[int, ...]:
    """Where the sequences of the task that a teacher was made for stand in those of another."""
    if (own := task_of(teacher)) is None:
        raise refuse_case("Teacher.positions", f"{task!r} and a model whose task is not known", "numbers: (0, 1, …)")
    return places_in(own, task, "Teacher.positions")


Target = str | Tensor | HookedTransformer | Permuted | Teacher | HoldsModel | Path
"""What is accepted as a target. Of a Run, or the path of a saved one, only the model is kept."""


def as_target(field: str, given: object) -> Target:
    """Checks a target as far as possible without examples; a run is replaced by its model."""
    if isinstance(given, str) and given in NAMED:
        return given
    if isinstance(given, Tensor):
        # A copy, so that later changes to the given tensor do not change the target.
        return _require_distributions(field, given).clone()
    return given if isinstance(given, Permuted | Teacher) else _teacher(field, given)


def _teacher(field: str, given: object, epoch: int | None = None) -> HookedTransformer:
    """The model that is given, or that of a run, given itself or by its path, at the end or at an epoch."""
    run = _run_at(field, given) if isinstance(given, str | Path) else given
    if isinstance(run, HookedTransformer) and epoch is not None:
        raise refuse("epoch", epoch, "None where a model is given, or a Run and an epoch of its snapshots")
    if epoch is None:
        teacher = getattr(run, "model", run)
    elif callable(at := getattr(run, "at", None)):
        teacher = at(epoch)
    else:
        raise refuse(field, given, "a Run or the path of a saved one, where an epoch is given")
    if not isinstance(teacher, HookedTransformer):
        raise refuse(field, given, f"one of {tuple(NAMED)}, a tensor, a HookedTransformer, a Run, or Permuted(…)")
    notice_of_edits(field, run)
    return teacher


def apart_from(model: HookedTransformer, target: Target) -> Target:
    """The target, with a copy in place of a teacher that has weights of this model, which is going to be trained."""
    if isinstance(target, Permuted):
        apart = apart_from(model, target.target)
        return target if apart is target.target else replace(target, target=apart)
    if not isinstance(target, HookedTransformer):
        return target
    trained = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    is_shared = any(parameter.untyped_storage().data_ptr() in trained for parameter in target.parameters())
    return copied(target) if is_shared else target


def _run_at(field: str, given: str | Path) -> object:
    """The saved run at a path; a string that is neither a path of one nor a name raises."""
    # Runs stand above this room, and only a path needs them.
    from bayesticket.runs import Run, RunDirectory

    try:
        is_run = RunDirectory(given).has_run()
    except (OSError, ValueError):  # the string cannot be a path
        is_run = False
    if isinstance(given, str) and not is_run:
        others = ("a tensor", "a HookedTransformer", "a Run or the path of a saved one", "Permuted(…)")
        raise refuse_name(field, given, (*NAMED, *others))
    return Run.load(given)


def _require_distributions(field: str, target: Tensor) -> Tensor:
    if target.ndim not in (1, 2, 3) or not target.dtype.is_floating_point or target.numel() == 0:
        raise refuse_case(
            field,
            f"a tensor of {target.dtype} and shape {tuple(target.shape)}",
            "a floating-point tensor (T,), (n, T) or (n, heads, T)",
        )
    if not torch.isfinite(target).all() or (target < 0).any():
        raise refuse_case(field, "a tensor with negative or non-finite entries", "finite weights of at least 0")
    sums = target.double().sum(-1)
    if (sums - 1).abs().max() > 1e-4:
        worst = sums.flatten()[(sums - 1).abs().argmax()].item()
        raise refuse_case(field, f"a row that sums to {worst:.6g}", "rows that sum to 1")
    return target


def resolve(
    target: Target, examples: Examples, layer: int = 0, *, query: int = -1, heads: Sequence[int] | None = None
) -> Float[Tensor, "n heads T"]:
    """The target as attention weights; `n` or `heads` is 1 if all examples or all heads share them.

    Layer, query and heads select the attention of a teacher; other targets do not depend on them. Where examples have
    `queries`, the target is that of one of them, with no weight on positions after it; a named target other than
    "uniform" is then known where the answer is.

    >>> from bayesticket.tasks import ModularAddition
    >>> resolve("oracle", ModularAddition(p=5).split().train)
    tensor([[[0.5000, 0.0000, 0.5000, 0.0000, 0.0000]]], dtype=torch.float64)
    """
    if examples.whole is not None and not isinstance(target, str | Permuted):
        return _until_query(target, examples, layer, query, heads)
    if examples.queries is not None:
        return _resolve_at(target, examples, layer, query, heads)
    if isinstance(target, str):
        return _shared_row(rearrange(NAMED[target](examples.informative), "n key -> n 1 key"))
    if isinstance(target, Permuted):
        return _permute(target, resolve(target.target, examples, layer, query=query, heads=heads), len(examples))
    if isinstance(target, HookedTransformer | Teacher):
        return _of_teacher(target, examples, layer, query, heads)
    assert isinstance(target, Tensor)
    return _fit_to(examples, target)


def _until_query(
    target: Target, examples: Examples, layer: int, query: int, heads: Sequence[int] | None
) -> Float[Tensor, "n heads T"]:
    """A target on sequences that end at one query, of a tensor or a teacher for whole sequences."""
    assert examples.whole is not None
    if isinstance(target, Tensor) and target.shape[-1] == examples.n_positions:
        return _fit_to(examples, target)
    weights = resolve(target, examples.whole, layer, query=query % examples.n_positions, heads=heads)
    require_visible(weights, slice(0, examples.n_positions), "target")
    return weights[..., : examples.n_positions]


def _resolve_at(
    target: Target, examples: Examples, layer: int, query: int, heads: Sequence[int] | None
) -> Float[Tensor, "n heads T"]:
    """A target of one of the queries of some examples; or of another position, where it does not need an answer."""
    position = examples.position_of(query) if query == -1 else query % examples.n_positions
    if isinstance(target, HookedTransformer | Teacher):
        return _of_teacher(target, examples, layer, position, heads)
    if isinstance(target, Tensor):
        return _fit_to(examples, target)
    seen = examples.tokens[:, : position + 1]
    if target == "uniform":
        weights = rearrange(uniform(torch.ones_like(seen[:1], dtype=torch.bool)), "n key -> n 1 key")
    elif isinstance(target, str):
        weights = _shared_row(rearrange(NAMED[target](examples.at(position).informative), "n key -> n 1 key"))
    else:
        assert isinstance(target, Permuted)
        inner = resolve(target.target, examples, layer, query=position, heads=heads)
        weights = _permute(target, inner[..., : position + 1], len(examples))
    return F.pad(weights, (0, examples.n_positions - weights.shape[-1]))


def _of_teacher(
    target: HookedTransformer | Teacher, examples: Examples, layer: int, query: int, heads: Sequence[int] | None
) -> Float[Tensor, "n heads T"]:
    """The attention of a teacher, where it reads some of the positions on these alone."""
    if isinstance(target, HookedTransformer):
        return teacher_attention(target, examples, layer, query, heads)
    assert isinstance(target.model, HookedTransformer)
    assert not isinstance(target.positions, AbstractTask)
    return teacher_attention(target.model, examples, layer, query, heads, target.positions)


_AXES = {1: "key -> 1 1 key", 2: "n key -> n 1 key", 3: "n heads key -> n heads key"}


def _fit_to(examples: Examples, target: Tensor) -> Float[Tensor, "n heads T"]:
    """A tensor with the axes of a resolved target, reduced to the examples if it has a row for each of the task's."""
    shaped = rearrange(target, _AXES[target.ndim])
    n, n_positions = examples.tokens.shape
    if examples.origin is not None and len(shaped) == examples.n_whole != 1:
        shaped = shaped.to(examples.origin.device)[examples.origin]
    if shaped.shape[-1] != n_positions or shaped.shape[0] not in (1, n):
        raise refuse_case(
            "target",
            f"shape {tuple(target.shape)}",
            f"({n_positions},), ({n}, {n_positions}) or ({n}, heads, {n_positions})",
        )
    return shaped.to(examples.tokens.device)


def _shared_row(target: Float[Tensor, "n 1 T"]) -> Float[Tensor, "m 1 T"]:
    """The target with a single row if all examples share it."""
    return target[:1] if (target == target[:1]).all() else target


def _permute(spec: Permuted, target: Float[Tensor, "m heads T"], n: int) -> Float[Tensor, "n heads T"]:
    generator = seeded_generator(spec.seed, f"permuted {spec.along}")
    if spec.along == "examples":
        if len(target) == 1:
            raise refuse("along", "examples", "a target that differs between examples; here all examples share it")
        return target[torch.randperm(n, generator=generator).to(target.device)]
    target = target.expand(n, *target.shape[1:])
    order = torch.rand(n, 1, target.shape[-1], generator=generator, dtype=torch.float64).argsort(-1).to(target.device)
    return target.gather(-1, order.expand_as(target))


def require_visible(target: Float[Tensor, "n heads T"], visible: slice, field: str) -> None:
    """Raises if a target has mass on keys that the query cannot attend to."""
    hidden = torch.ones(target.shape[-1], dtype=torch.bool, device=target.device)
    hidden[visible] = False
    if hidden.any() and (mass := target[..., hidden].sum(-1).max().item()) > 1e-6:
        positions = torch.nonzero(hidden)[:, 0].tolist()
        raise refuse_case(
            field,
            f"a target with mass {mass:.3g} on positions {positions}, which the query cannot attend to",
            f"mass on positions {visible.start} to {visible.stop - 1} only",
        )

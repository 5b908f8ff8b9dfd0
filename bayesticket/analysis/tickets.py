"""Lottery tickets: the sparse network that a trained run ends as, trained again from where the run began.

A ticket is found by training, pruning the weights of least magnitude, and rewinding what is left (Figure 4; Frankle &
Carbin 2019, for grokking Minegishi et al. 2025):

    m = 1[|θ_T| among the largest],   θ'_0 = m ⊙ θ_0   (retrained),   θ'_0 = m ⊙ fresh weights   (transferred).

`find_ticket` gives the masks, `retrain` trains under them, `ticket_config` is the same as a configuration, for a sweep.
The controls ask what it is about a ticket that helps: the sparsity of its matrices (`random_ticket`), or the smaller
norm of its initial weights (`same_norm`)?

The paper's Bayesian ticket, to which all this is compared, is fresh weights and a constant prior, and needs no mask:
`train(task, KLPrior(strength=1.0), init_seed=…)`.
"""

import copy
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal, final, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from tqdm import tqdm

from bayesticket.errors import BayesticketError, refuse, refuse_name, require_integer, require_number
from bayesticket.interventions import TicketMask
from bayesticket.model import HookedTransformer, is_matrix, is_mlp, is_routing, parameter_kind
from bayesticket.runs import (
    Progress,
    Run,
    TrainConfig,
    Training,
    describe_config,
    described_hooks,
    train_config,
)
from bayesticket.seeding import seeded_generator
from bayesticket.specs import Spec, description_id, field_names, spec
from bayesticket.tasks import require_seed

Scope = Literal["global", "matrix"]


# Tickets ----------------------------------------------------------------------------------------------------------


@final
@spec
class Ticket(Spec):
    """Which weights of a network are kept, and where that was found.

    >>> masks = {"blocks.0.attn.W_Q": torch.tensor([True, False]), "blocks.0.mlp.W_in": torch.tensor([True, True])}
    >>> ticket = Ticket(masks)
    >>> ticket, ticket.routing.sparsity
    (Ticket(1 of 4 weights removed, 25.0 %, in 2 matrices), 0.5)
    """

    masks: Mapping[str, Tensor]
    """Boolean tensors by the full names of parameters (`"blocks.0.mlp.W_in"`), True where a weight is kept."""
    how: str = ""
    """How the weights were chosen, such as `"magnitude, global"`."""
    run: str | None = None
    """The id of the run that they were found in, which is the name of its directory in the store of a sweep."""
    epoch: int | None = None
    """After how many epochs of that run."""

    def __post_init__(self):
        object.__setattr__(self, "masks", self.mask.masks)  # checked, and copied

    @property
    def mask(self) -> TicketMask:
        """The intervention that holds the removed weights at zero."""
        return TicketMask(self.masks)

    @property
    def sparsity(self) -> float:
        """The fraction of weights that is removed, over all masked matrices."""
        return self._n_removed / self._n_weights

    @property
    def sparsity_by_matrix(self) -> dict[str, float]:
        """The fraction of weights that is removed in each matrix."""
        return {name: int((~mask).sum()) / mask.numel() for name, mask in self.masks.items()}

    @property
    def routing(self) -> "Ticket":
        """The routing ticket: the masks of W_Q and W_K alone, which decide where attention goes (after Thm. 4.3)."""
        return self._part("routing", "W_Q or W_K", [name for name in self.masks if is_routing(name)])

    @property
    def representation(self) -> "Ticket":
        """The representation ticket: the masks of the MLP's matrices alone (after Thm. 4.3)."""
        return self._part("representation", "the MLP's matrices", [name for name in self.masks if is_mlp(name)])

    @property
    def _n_weights(self) -> int:
        return sum(mask.numel() for mask in self.masks.values())

    @property
    def _n_removed(self) -> int:
        return sum(int((~mask).sum()) for mask in self.masks.values())

    def _part(self, part: str, of: str, names: list[str]) -> "Ticket":
        if not names:
            raise refuse(f"ticket.{part}", list(self.masks), f"a ticket with masks of {of}")
        how = f"{self.how}, {part} alone" if self.how else f"{part} alone"
        return replace(self, masks={name: self.masks[name] for name in names}, how=how)

    def __repr__(self) -> str:
        said = [
            f"{self._n_removed:,} of {self._n_weights:,} weights removed, {self.sparsity:.1%}".replace("%", " %"),
            f" in {len(self.masks)} {'matrix' if len(self.masks) == 1 else 'matrices'}",
        ]
        place = [] if self.run is None else [f"run {self.run}"]
        place += [] if self.epoch is None else [f"after {self.epoch:,} epochs"]
        return f"Ticket({'; '.join(filter(None, [','.join(said), self.how, ' '.join(place)]))})"


def find_ticket(
    run: Run,
    sparsity: float = 0.6,
    *,
    scope: Scope = "global",
    epoch: int | None = None,
    matrices: Iterable[str] | None = None,
) -> Ticket:
    """Prunes a run's weights by magnitude, `m = 1[|θ_T| among the largest]`.

    `sparsity` is the fraction that is removed, exactly `round(sparsity · n)` of `n` weights, also where magnitudes are
    equal. (In Minegishi et al.'s code it is the fraction kept: their 0.4 is 0.6 here.) `scope="global"` ranks the
    weights of all matrices together, as they do; `"matrix"` removes the same fraction of each.

    Pruned are, by default, all matrices of attention and MLP, the embedding W_E and the unembedding W_U: the same as
    in Minegishi et al.'s transformer, since what is learned about the tokens sits in the embeddings as much as in the
    layers. The position embedding, which theirs lacks, is left: it is added to every token, as a bias is, and where
    attention goes by position all of it is needed. `matrices` names others, in all layers (`"W_in"`) or in full
    (`"blocks.0.mlp.W_in"`). Biases are never pruned. A matrix whose weights are small beside the others' can lose
    most of them to the global threshold; `sparsity_by_matrix` shows it.

    `epoch=None` prunes the weights that the run has ended with. Others are not kept in a run, and are computed by
    training its configuration again up to that epoch; see `weights_after` for what that costs.

    A run that was itself trained under a ticket can be pruned again: its zeros are the smallest weights, and go first.

    >>> from bayesticket.model import Architecture
    >>> from bayesticket.tasks import ModularAddition
    >>> from bayesticket.runs import train
    >>> run = train(ModularAddition(p=5), model=Architecture(d_model=8, d_mlp=16), epochs=5)
    >>> ticket = find_ticket(run, sparsity=0.75, matrices=["W_Q", "W_K", "W_in", "W_out"])
    >>> ticket.sparsity, list(ticket.routing.masks)
    (0.75, ['blocks.0.attn.W_Q', 'blocks.0.attn.W_K'])
    """
    _require_run(run)
    require_sparsity(sparsity)
    require_scope(scope)
    epoch = run.epoch if epoch is None else epoch
    names = named_matrices(run.weights, matrices)
    weights = run.weights if epoch == run.epoch else weights_after(run, epoch)
    masks = magnitude_masks({name: weights[name] for name in names}, sparsity, scope=scope)
    return Ticket(masks, f"magnitude, {scope}", description_id(run.description), epoch)


def named_matrices(parameters: Iterable[str], matrices: Iterable[str] | None = None) -> list[str]:
    """Full names of the matrices that are pruned, in the model's order; see `find_ticket`.

    >>> parameters = ["embed.W_E", "pos_embed.W_pos", "blocks.0.attn.W_Q", "blocks.0.attn.b_Q", "blocks.1.attn.W_Q"]
    >>> named_matrices(parameters)
    ['embed.W_E', 'blocks.0.attn.W_Q', 'blocks.1.attn.W_Q']
    >>> named_matrices(parameters, ["W_pos", "blocks.1.attn.W_Q"])
    ['pos_embed.W_pos', 'blocks.1.attn.W_Q']
    """
    known = [name for name in parameters if is_matrix(name)]
    if matrices is None:
        return [name for name in known if parameter_kind(name) != "W_pos"]
    if isinstance(matrices, str) or not isinstance(matrices, Iterable) or not (chosen := list(matrices)):
        raise refuse("matrices", matrices, 'names of matrices, such as ["W_Q", "W_K"], or None')
    accepted = list(dict.fromkeys([*map(parameter_kind, known), *known]))
    for name in chosen:
        if name not in accepted:
            raise refuse_name("matrices", name, accepted)
    return [name for name in known if name in chosen or parameter_kind(name) in chosen]


def require_sparsity(sparsity: object) -> None:
    """Refuses all but a fraction that leaves something."""
    require_number("sparsity", sparsity, least=0.0, below=1.0)


def require_scope(scope: object) -> None:
    """Refuses an unknown scope."""
    if scope not in get_args(Scope):
        raise refuse_name("scope", scope, get_args(Scope))


def magnitude_masks(
    weights: Mapping[str, Tensor], sparsity: float, *, scope: Scope = "global"
) -> dict[str, Bool[Tensor, "..."]]:
    """Marks the weights of largest magnitude, all but `round(sparsity · n)` of `n`; see `find_ticket`.

    Among equal magnitudes those that come first are removed. On a model without a run, a ticket is
    `Ticket(magnitude_masks(weights, 0.6))`.

    >>> weights = {"W": torch.tensor([1.0, -5.0]), "V": torch.tensor([-2.0, 2.0])}
    >>> magnitude_masks(weights, 0.5)
    {'W': tensor([False,  True]), 'V': tensor([False,  True])}
    """
    require_sparsity(sparsity)
    require_scope(scope)
    if not weights:
        raise refuse("weights", weights, "at least one matrix by its name")
    for name, weight in weights.items():
        if not torch.isfinite(weight).all():
            raise refuse(f"weights[{name!r}]", weight[~torch.isfinite(weight)][0].item(), "finite weights")
    flat = {name: weight.detach().abs().flatten() for name, weight in weights.items()}
    if scope == "matrix":
        kept = [keep_largest(magnitudes, round(sparsity * len(magnitudes))) for magnitudes in flat.values()]
    else:
        together = torch.cat(list(flat.values()))
        sizes = [len(magnitudes) for magnitudes in flat.values()]
        kept = keep_largest(together, round(sparsity * len(together))).split(sizes)
    return {name: mask.view(weights[name].shape) for name, mask in zip(weights, kept, strict=True)}


def keep_largest(magnitudes: Float[Tensor, "n"], n_removed: int) -> Bool[Tensor, "n"]:
    """Marks all but the `n_removed` smallest, of equal ones the first.

    >>> keep_largest(torch.tensor([3.0, 1.0, 1.0, 1.0]), 2)
    tensor([ True, False, False,  True])
    """
    kept = torch.ones_like(magnitudes, dtype=torch.bool)
    kept[magnitudes.argsort(stable=True)[:n_removed]] = False
    return kept


# Rewinding --------------------------------------------------------------------------------------------------------


def weights_after(run: Run, epoch: int) -> dict[str, Tensor]:
    """A run's weights after that many epochs, `θ_epoch`, by training its configuration again up to there.

    Training is deterministic, so this is the run's own trajectory, to the bit on the same machine with as many
    threads. It takes as long as these epochs took the run. Epoch 0 are the weights that training started from, after
    the projections of the run's intervention, and takes no training.

    >>> from bayesticket.model import Architecture
    >>> from bayesticket.tasks import ModularAddition
    >>> from bayesticket.runs import train
    >>> run = train(ModularAddition(p=5), model=Architecture(d_model=8, d_mlp=8), epochs=5)
    >>> torch.equal(weights_after(run, 5)["embed.W_E"], run.weights["embed.W_E"])
    True
    """
    _require_run(run)
    require_integer("epoch", epoch, least=0)
    if epoch > run.epoch:
        raise refuse("epoch", epoch, f"at most {run.epoch}, where the run ended")
    config = _whole_config(run)
    with torch.inference_mode(False):  # which switches gradients on as well
        training = Training(config)
        for _ in tqdm(range(epoch), unit="epoch", disable=None if epoch else True, dynamic_ncols=True):
            training.take_epoch()
        return training.as_run("stopped").weights


def rewind(run: Run, *, epoch: int = 0) -> HookedTransformer:
    """A HookedTransformer with the weights that the run started from, `θ_0`, or had after `epoch` epochs.

    It is built as `run.model` is; see `weights_after`.

    >>> from bayesticket.model import Architecture, build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> from bayesticket.runs import train
    >>> run = train(ModularAddition(p=5), model=Architecture(d_model=8, d_mlp=8), epochs=5, seed=3)
    >>> torch.equal(rewind(run).W_E, build_model(ModularAddition(p=5), d_model=8, d_mlp=8, seed=3).W_E)
    True
    """
    return replace(run, weights=weights_after(run, epoch)).model


def ticket_config(config: TrainConfig, ticket: Ticket, **options: object) -> TrainConfig:
    """The configuration that trains a ticket: the given one, changed by `options`, with the ticket's mask added.

    Training then starts from `m ⊙ θ_0`, with `θ_0` the initial weights of the given configuration (rewinding). With
    `init_seed=…` these are drawn anew, while the split stays (transfer). The mask comes last in the intervention, so
    that whatever else changes weights, the removed ones are zero in the end.

    >>> ticket = Ticket({"blocks.0.mlp.W_in": torch.rand(64, 256) > 0.6})
    >>> changed = ticket_config(TrainConfig(seed=1), ticket, init_seed=2)
    >>> changed.seed_of("init"), changed.seed_of("split"), changed.intervention == ticket.mask + None
    (2, 1, True)
    """
    _require_ticket("ticket", ticket)
    for name in options:
        if name not in (known := field_names(TrainConfig)):
            raise refuse_name("option", name, known)
    changed = replace(config, **options)
    if options.get("init_seed") is not None and isinstance(changed.model, HookedTransformer):
        raise refuse(
            "init_seed", options["init_seed"], "None with a HookedTransformer, which starts as it is; or another model"
        )
    return replace(changed, intervention=changed.intervention + ticket.mask)


def retrain(
    run: Run,
    ticket: Ticket,
    *,
    store: str | os.PathLike[str] | None = None,
    progress: bool | Progress | None = None,
    **options: object,
) -> Run:
    """Trains a ticket as the run was trained, from the run's initial weights, or with `init_seed=…` from fresh ones.

    `options` are those of `train` and override the run's; see `ticket_config`.

    >>> from bayesticket.model import Architecture
    >>> from bayesticket.tasks import ModularAddition
    >>> from bayesticket.runs import train
    >>> run = train(ModularAddition(p=5), model=Architecture(d_model=8, d_mlp=8), epochs=5)
    >>> ticket = find_ticket(run, 0.5)
    >>> sparse = retrain(run, ticket, epochs=8)
    >>> sparse.epoch, bool(sparse.weights["embed.W_E"][~ticket.masks["embed.W_E"]].any())
    (8, False)
    """
    _require_run(run)
    return train_config(ticket_config(_whole_config(run), ticket, **options), store=store, progress=progress)


def _require_run(run: object) -> None:
    if not isinstance(run, Run):
        raise refuse("run", run, "a Run; for weights without one there is Ticket(magnitude_masks(weights, sparsity))")


def _whole_config(run: Run) -> TrainConfig:
    """The run's configuration, if it decides all that the run computed."""
    if hooks := described_hooks(run.description):
        raise BayesticketError(
            f"run: got one in which a model has hooks of its own on {', '.join(hooks)}, which no run keeps; accepted: "
            "a run without, or train(…, ticket.mask, model=…) with that model"
        )
    if describe_config(run.config)[0] != run.description:
        raise refuse("run", "one that was trained by a class that has been changed since", "a run of today's classes")
    return run.config


# Comparing --------------------------------------------------------------------------------------------------------


def jaccard_distance(a: Ticket, b: Ticket) -> float:
    """How different two tickets are, `1 − |A ∩ B| / |A ∪ B|` with A and B the weights that each keeps.

    0 for the same, 1 for nothing in common; about `1 − k / (2 − k)` for two that keep a fraction k at random. Two that
    keep nothing are the same.

    >>> ticket, other = (Ticket({"W": torch.tensor(kept)}) for kept in ([True, True, False], [True, False, True]))
    >>> round(jaccard_distance(ticket, other), 3)
    0.667
    """
    n_both, n_either = (sum(counts) for counts in zip(*_overlap(a, b).values(), strict=True))
    return _distance(n_both, n_either)


def jaccard_by_matrix(a: Ticket, b: Ticket) -> dict[str, float]:
    """The same, in each matrix.

    >>> ticket = Ticket({"W": torch.tensor([True, False])})
    >>> jaccard_by_matrix(ticket, ticket)
    {'W': 0.0}
    """
    return {name: _distance(*counts) for name, counts in _overlap(a, b).items()}


def _overlap(a: Ticket, b: Ticket) -> dict[str, tuple[int, int]]:
    """How many weights both keep, and how many either does, in each matrix."""
    for field, given in (("a", a), ("b", b)):
        _require_ticket(field, given)
    if a.masks.keys() != b.masks.keys():
        raise refuse("b.masks", sorted(b.masks), f"masks of the same matrices as those of a, {sorted(a.masks)}")
    _require_fit("b.masks", b, a.masks)
    pairs = {name: (mask, b.masks[name].to(mask.device)) for name, mask in a.masks.items()}
    return {name: (int((one & other).sum()), int((one | other).sum())) for name, (one, other) in pairs.items()}


def _distance(n_both: int, n_either: int) -> float:
    return 1 - n_both / n_either if n_either else 0.0


def _require_ticket(field: str, given: object) -> None:
    if not isinstance(given, Ticket):
        raise refuse(field, given, "a Ticket, such as find_ticket(run) or Ticket(masks)")


def _require_fit(field: str, ticket: Ticket, tensors: Mapping[str, Tensor]) -> None:
    """Refuses a ticket with a mask of an unknown name, or of another shape."""
    for name, mask in ticket.masks.items():
        if name not in tensors:
            raise refuse_name(field, name, tensors)
        if mask.shape != (shape := tensors[name].shape):
            raise refuse(f"{field}[{name!r}]", tuple(mask.shape), f"shape {tuple(shape)}")


# Controls ---------------------------------------------------------------------------------------------------------


def random_ticket(like: Ticket, seed: int = 0) -> Ticket:
    """A control: as many weights removed in each matrix as by another ticket, but any.

    >>> like = Ticket({"blocks.0.mlp.W_in": torch.tensor([[True, True], [True, False]])})
    >>> random_ticket(like, seed=1).sparsity == like.sparsity
    True
    """
    _require_ticket("like", like)
    require_seed(seed)
    masks = {name: _shuffled(mask, seed, name) for name, mask in like.masks.items()}
    return Ticket(masks, f"random, seed {seed}", like.run, like.epoch)


def _shuffled(mask: Bool[Tensor, "..."], seed: int, name: str) -> Bool[Tensor, "..."]:
    order = torch.randperm(mask.numel(), generator=seeded_generator(seed, f"random ticket, {name}"))
    return mask.flatten()[order.to(mask.device)].view(mask.shape)


def same_norm(model: HookedTransformer | Run, ticket: Ticket) -> HookedTransformer:
    """A control: a dense model whose weights are as small as a ticket's, `W ← W · ‖m ⊙ W‖_F / ‖W‖_F` in each matrix.

    Of a run, the model that it started from; of a model, a copy. `replace(run.config, model=same_norm(run, ticket))`
    (of `dataclasses`) trains it as the run was trained. Minegishi et al. scale all matrices by one common factor.

    >>> from bayesticket.model import build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> dense = build_model(ModularAddition(p=5), d_model=8, d_mlp=8)
    >>> ticket = Ticket(magnitude_masks({"embed.W_E": dense.W_E}, 0.9))
    >>> bool(dense.W_E.norm() > same_norm(dense, ticket).W_E.norm())
    True
    """
    if not isinstance(model, HookedTransformer | Run):
        raise refuse("model", model, "a HookedTransformer, or a Run")
    _require_ticket("ticket", ticket)
    scaled = rewind(model) if isinstance(model, Run) else copy.deepcopy(model)
    parameters = dict(scaled.named_parameters())
    _require_fit("ticket.masks", ticket, parameters)
    with torch.no_grad():
        for name, mask in ticket.masks.items():
            parameters[name].mul_(norm_kept(parameters[name], mask.to(parameters[name].device)))
    return scaled


def norm_kept(weight: Float[Tensor, "..."], mask: Bool[Tensor, "..."]) -> Float[Tensor, ""]:
    """The share of a matrix' norm that a mask leaves, `‖m ⊙ W‖_F / ‖W‖_F`; 1 where there is nothing to lose.

    >>> norm_kept(torch.tensor([3.0, 4.0]), torch.tensor([True, False]))
    tensor(0.6000)
    """
    whole = weight.norm()
    return torch.where(whole > 0, (weight * mask).norm() / torch.where(whole > 0, whole, 1.0), 1.0)

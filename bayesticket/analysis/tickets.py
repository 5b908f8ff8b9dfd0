"""Lottery tickets: the sparse network that a run ends with, trained again from the weights that the run started from.

A ticket is found by training a network, pruning its weights of smallest magnitude, and rewinding the weights that are
left (Figure 4; Frankle & Carbin 2019, and for grokking Minegishi et al. 2025):

    m = 1[|θ_T| among the largest],   θ'_0 = m ⊙ θ_0   (retrained),   θ'_0 = m ⊙ fresh weights   (transferred).

`find_ticket` returns the masks, `retrain` trains under them, and `ticket_config` gives the configuration of that
training, for a sweep.

The paper compares all this with its Bayesian ticket: fresh weights and a constant prior, without a mask, which is
`train(task, KLPrior(strength=1.0), init_seed=…)`.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import final, get_args

import torch
from torch import Tensor
from tqdm import tqdm

from bayesticket.analysis.pruning import Scope, magnitude_masks, named_matrices, require_sparsity
from bayesticket.errors import refuse, refuse_case, require_choice, require_integer
from bayesticket.interventions import TicketMask
from bayesticket.model import HookedTransformer, is_mlp, is_routing
from bayesticket.notebooks import html_lines, html_table
from bayesticket.runs import (
    ProgressFunction,
    Run,
    TrainConfig,
    Training,
    configure_from,
    describe_config,
    described_hooks,
    train_config,
)
from bayesticket.specs import Spec, description_id, spec
from bayesticket.threads import torch_threads


@final
@spec
class Ticket(Spec):
    """Which weights of a network are kept, and in which run that was found.

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
    """The id of the run in which they were found; a sweep names the run's directory by it."""
    epoch: int | None = None
    """The number of epochs of that run after which they were found."""

    def __post_init__(self):
        object.__setattr__(self, "masks", self.mask.masks)  # TicketMask checks and copies them

    def _repr_html_(self) -> str:
        """What a notebook shows: how much of each matrix is removed."""
        rows = [
            [name, f"{mask.numel():,}", f"{self.sparsity_by_matrix[name]:.1%}"] for name, mask in self.masks.items()
        ]
        return html_lines(repr(self)) + html_table(["matrix", "weights", "removed"], rows)

    @property
    def mask(self) -> TicketMask:
        """The intervention that keeps the removed weights at zero."""
        return TicketMask(self.masks)

    @property
    def sparsity(self) -> float:
        """The fraction of weights that are removed, over all masked matrices."""
        return self._n_removed / self._n_weights

    @property
    def sparsity_by_matrix(self) -> dict[str, float]:
        """The fraction of weights that are removed, in each matrix."""
        return {name: int((~mask).sum()) / mask.numel() for name, mask in self.masks.items()}

    @property
    def routing(self) -> "Ticket":
        """The routing ticket: only the masks of W_Q and W_K, which determine the attention (after Thm. 4.3)."""
        return self._part("routing", "W_Q or W_K", [name for name in self.masks if is_routing(name)])

    @property
    def representation(self) -> "Ticket":
        """The representation ticket: only the masks of the MLP's matrices (after Thm. 4.3)."""
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
        removed = [
            f"{self._n_removed:,} of {self._n_weights:,} weights removed, {self.sparsity:.1%}".replace("%", " %"),
            f" in {len(self.masks)} {'matrix' if len(self.masks) == 1 else 'matrices'}",
        ]
        place = [] if self.run is None else [f"run {self.run}"]
        place += [] if self.epoch is None else [f"after {self.epoch:,} epochs"]
        return f"Ticket({'; '.join(filter(None, [','.join(removed), self.how, ' '.join(place)]))})"


def find_ticket(
    run: Run,
    sparsity: float = 0.6,
    *,
    scope: Scope = "global",
    epoch: int | None = None,
    matrices: Iterable[str] | None = None,
) -> Ticket:
    """Prunes a run's weights by magnitude, `m = 1[|θ_T| among the largest]`.

    `sparsity` is the fraction of weights removed: exactly `round(sparsity · n)` of `n`, also if some magnitudes are
    equal, but never all. (In Minegishi et al.'s code it is the fraction kept: their 0.4 is 0.6 here.) `scope="global"`
    ranks the weights of all matrices together, as they do; `"matrix"` removes the same fraction of each matrix.

    By default all matrices of attention and MLP are pruned, and the embedding W_E and the unembedding W_U. These are
    the matrices of Minegishi et al.'s transformer; the embeddings are among them because they represent the tokens as
    much as the layers do. The position embedding, which their model lacks, is not pruned: like a bias it is added to
    every token, and a model that attends by position needs all of it. `matrices` selects other matrices, in all layers
    (`"W_in"`) or by a full name (`"blocks.0.mlp.W_in"`). Biases are never pruned. Under the global threshold a matrix
    whose weights are smaller than those of the others can lose most of them; `sparsity_by_matrix` shows it.

    `epoch=None` prunes the final weights of the run. Those of an earlier epoch are read from a snapshot where there is
    one; else they are computed by training again up to that epoch, at the cost that `weights_after` states.

    A run that was itself trained under a ticket can be pruned again; its zeros are the smallest weights and are removed
    first.

    >>> from bayesticket.model import Architecture
    >>> from bayesticket.tasks import ModularAddition
    >>> from bayesticket.runs import train
    >>> run = train(ModularAddition(p=5), model=Architecture(d_model=8, d_mlp=16), epochs=5)
    >>> ticket = find_ticket(run, sparsity=0.75, matrices=["W_Q", "W_K", "W_in", "W_out"])
    >>> ticket.sparsity, list(ticket.routing.masks)
    (0.75, ['blocks.0.attn.W_Q', 'blocks.0.attn.W_K'])
    """
    require_run(run)
    require_sparsity(sparsity)
    require_choice("scope", scope, get_args(Scope))
    if epoch is not None:
        require_integer("epoch", epoch, least=0)
    epoch = run.epoch if epoch is None else epoch
    names = named_matrices(run.weights, matrices)
    weights = run.weights if epoch == run.epoch else weights_after(run, epoch)
    masks = magnitude_masks({name: weights[name] for name in names}, sparsity, scope=scope)
    return Ticket(masks, f"magnitude, {scope}", description_id(run.description), epoch)


def weights_after(run: Run, epoch: int) -> dict[str, Tensor]:
    """A run's weights after some number of epochs, `θ_epoch`: from a snapshot, or by training its configuration again.

    Training is deterministic: on the same machine with the same number of threads these are, to the bit, the weights
    that the run had. Without a snapshot they take as long as these epochs of the run took. The weights after epoch 0
    are those that training started from, after the projections of the run's intervention; they take no training.

    >>> from bayesticket.model import Architecture
    >>> from bayesticket.tasks import ModularAddition
    >>> from bayesticket.runs import train
    >>> run = train(ModularAddition(p=5), model=Architecture(d_model=8, d_mlp=8), epochs=5)
    >>> torch.equal(weights_after(run, 5)["embed.W_E"], run.weights["embed.W_E"])
    True
    """
    require_run(run)
    require_integer("epoch", epoch, least=0)
    if epoch > run.epoch:
        raise refuse("epoch", epoch, f"at most {run.epoch}, the last epoch of the run")
    if epoch in run.snapshots:
        return dict(run.snapshots[epoch].weights)
    config = _whole_config(run)
    threads = int((run.made_with or {}).get("threads", 1))
    with torch_threads(threads), torch.inference_mode(False):  # the latter also enables gradients
        training = Training(config)
        for _ in tqdm(range(epoch), unit="epoch", disable=None if epoch else True, dynamic_ncols=True):
            training.take_epoch()
        return training.as_run("stopped").weights


def rewind(run: Run, *, epoch: int = 0) -> HookedTransformer:
    """A HookedTransformer with the weights that the run started from, `θ_0`, or had after `epoch` epochs.

    The model is built as `run.model` is; `weights_after` computes the weights.

    >>> from bayesticket.model import Architecture, build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> from bayesticket.runs import train
    >>> run = train(ModularAddition(p=5), model=Architecture(d_model=8, d_mlp=8), epochs=5, seed=3)
    >>> torch.equal(rewind(run).W_E, build_model(ModularAddition(p=5), d_model=8, d_mlp=8, seed=3).W_E)
    True
    """
    return replace(run, weights=weights_after(run, epoch)).model


def ticket_config(config: TrainConfig, ticket: Ticket, **options: object) -> TrainConfig:
    """The configuration that trains a ticket: the given one with `options` replaced and the ticket's mask added.

    Training then starts from `m ⊙ θ_0`, with `θ_0` the initial weights of the given configuration (rewinding). With
    `init_seed=…` new initial weights are drawn while the split stays the same (transfer). The mask comes last in the
    intervention, so that the removed weights are zero whatever else changes the weights.

    >>> ticket = Ticket({"blocks.0.mlp.W_in": torch.rand(64, 256) > 0.6})
    >>> changed = ticket_config(TrainConfig(seed=1), ticket, init_seed=2)
    >>> changed.seed_of("init"), changed.seed_of("split"), changed.intervention == ticket.mask + None
    (2, 1, True)
    """
    if not isinstance(config, TrainConfig):
        raise refuse("config", config, "a TrainConfig, such as run.config")
    require_ticket("ticket", ticket)
    changed = configure_from(config, options)
    if options.get("init_seed") is not None and isinstance(changed.model, HookedTransformer):
        raise refuse(
            "init_seed",
            options["init_seed"],
            "None with a HookedTransformer, which starts from its own weights; or another model",
        )
    return replace(changed, intervention=changed.intervention + ticket.mask)


def retrain(
    run: Run,
    ticket: Ticket,
    *,
    store: str | os.PathLike[str] | None = None,
    progress: bool | ProgressFunction | None = None,
    **options: object,
) -> Run:
    """Trains a ticket as the run was trained, from the run's initial weights, or with `init_seed=…` from new ones.

    `options` are those of `train`; they replace the run's options, see `ticket_config`.

    >>> from bayesticket.model import Architecture
    >>> from bayesticket.tasks import ModularAddition
    >>> from bayesticket.runs import train
    >>> run = train(ModularAddition(p=5), model=Architecture(d_model=8, d_mlp=8), epochs=5)
    >>> ticket = find_ticket(run, 0.5)
    >>> sparse = retrain(run, ticket, epochs=8)
    >>> sparse.epoch, bool(sparse.weights["embed.W_E"][~ticket.masks["embed.W_E"]].any())
    (8, False)
    """
    require_run(run)
    return train_config(ticket_config(_whole_config(run), ticket, **options), store=store, progress=progress)


def require_run(run: object) -> None:
    """Raises unless a run is given."""
    if not isinstance(run, Run):
        raise refuse("run", run, "a Run; of other weights, Ticket(magnitude_masks(weights, sparsity)) makes a ticket")


def _whole_config(run: Run) -> TrainConfig:
    """The run's configuration; raises unless it determines everything that the run computed."""
    if hooks := described_hooks(run.description):
        raise refuse_case(
            "run",
            f"one in which a model has hooks of its own on {', '.join(hooks)}, which no run keeps",
            "a run without such hooks, or train(…, ticket.mask, model=…) with that model",
        )
    if describe_config(run.config)[0] != run.description:
        raise refuse_case(
            "run", "one trained by a class that has been changed since", "a run of the classes as they are"
        )
    return run.config


def require_ticket(field: str, given: object) -> None:
    """Raises unless a ticket is given."""
    if not isinstance(given, Ticket):
        raise refuse(field, given, "a Ticket, such as find_ticket(run) or Ticket(masks)")


def require_fit(field: str, ticket: Ticket, tensors: Mapping[str, Tensor]) -> None:
    """Raises if a mask of the ticket has an unknown name or another shape."""
    for name, mask in ticket.masks.items():
        require_choice(field, name, tensors)
        if mask.shape != (shape := tensors[name].shape):
            raise refuse(f"{field}[{name!r}]", tuple(mask.shape), f"shape {tuple(shape)}")

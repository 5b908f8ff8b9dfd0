"""Controls for lottery tickets: is it the sparsity of a ticket's matrices that helps, or their smaller norm?

`random_ticket` removes as many weights of each matrix, at random; `same_norm` keeps all weights and scales each matrix
to the norm that the ticket leaves of it.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bayesticket.analysis.tickets import Ticket, require_fit, require_ticket, rewind
from bayesticket.errors import refuse, require_integer
from bayesticket.model import HookedTransformer, copied
from bayesticket.runs import Run
from bayesticket.seeding import seeded_generator


def random_ticket(like: Ticket, seed: int = 0) -> Ticket:
    """A control: a ticket that removes, in each matrix, as many weights as another ticket, chosen at random.

    >>> like = Ticket({"blocks.0.mlp.W_in": torch.tensor([[True, True], [True, False]])})
    >>> random_ticket(like, seed=1).sparsity == like.sparsity
    True
    """
    require_ticket("like", like)
    require_integer("seed", seed, least=0)
    masks = {name: _shuffled(mask, seed, name) for name, mask in like.masks.items()}
    return Ticket(masks, f"random, seed {seed}", like.run, like.epoch)


def _shuffled(mask: Bool[Tensor, "..."], seed: int, name: str) -> Bool[Tensor, "..."]:
    order = torch.randperm(mask.numel(), generator=seeded_generator(seed, f"random ticket, {name}"))
    return mask.flatten()[order.to(mask.device)].view(mask.shape)


def same_norm(model: HookedTransformer | Run, ticket: Ticket) -> HookedTransformer:
    """A control: a dense model whose matrices have the norms of a ticket's, `W ← W · ‖m ⊙ W‖_F / ‖W‖_F` for each.

    Given a run, it scales the model that the run started from; given a model, a copy of it.
    `dataclasses.replace(run.config, model=same_norm(run, ticket))` trains the scaled model as the run was trained.
    Minegishi et al. scale all matrices by one common factor instead.

    >>> from bayesticket.analysis import magnitude_masks
    >>> from bayesticket.model import build_model
    >>> from bayesticket.tasks import ModularAddition
    >>> dense = build_model(ModularAddition(p=5), d_model=8, d_mlp=8)
    >>> ticket = Ticket(magnitude_masks({"embed.W_E": dense.W_E}, 0.9))
    >>> bool(dense.W_E.norm() > same_norm(dense, ticket).W_E.norm())
    True
    """
    if not isinstance(model, HookedTransformer | Run):
        raise refuse("model", model, "a HookedTransformer or a Run")
    require_ticket("ticket", ticket)
    scaled = rewind(model) if isinstance(model, Run) else copied(model)
    parameters = dict(scaled.named_parameters())
    require_fit("ticket.masks", ticket, parameters)
    with torch.no_grad():
        for name, mask in ticket.masks.items():
            parameters[name].mul_(norm_kept(parameters[name], mask.to(parameters[name].device)))
    return scaled


def norm_kept(weight: Float[Tensor, "..."], mask: Bool[Tensor, "..."]) -> Float[Tensor, ""]:
    """The fraction of a matrix's norm that a mask leaves, `‖m ⊙ W‖_F / ‖W‖_F`; 1 for a matrix of zeros.

    >>> norm_kept(torch.tensor([3.0, 4.0]), torch.tensor([True, False]))
    tensor(0.6000)
    """
    whole = weight.norm()
    return torch.where(whole > 0, (weight * mask).norm() / torch.where(whole > 0, whole, 1.0), 1.0)

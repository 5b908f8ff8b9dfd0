"""Fresh weights for the model of a run, and weights of a trained model put among fresh ones."""

from collections.abc import Iterable

import torch

from bayesticket.model import Architecture, HookedTransformer, build, copied, is_mlp, routing_parameters
from bayesticket.runs import Run


def fresh_model(run: Run, seed: int) -> HookedTransformer:
    """Fresh weights for a model built as that of a run."""
    architecture = run.config.model
    assert isinstance(architecture, Architecture)
    return build(architecture, run.config.task, seed=seed)


def with_weights_of(model: HookedTransformer, trained: HookedTransformer, names: Iterable[str]) -> HookedTransformer:
    """A copy of a model in which these parameters are those of a trained one."""
    made = copied(model)
    own, given = dict(made.named_parameters()), dict(trained.named_parameters())
    with torch.no_grad():
        for name in names:
            own[name].copy_(given[name])
    return made


def with_routing_of(model: HookedTransformer, trained: HookedTransformer) -> HookedTransformer:
    """The same with W_Q and W_K, and their biases, of a trained model."""
    names = [name for name, _ in trained.named_parameters()]
    return with_weights_of(model, trained, routing_parameters(names, 0))


def with_mlp_of(model: HookedTransformer, trained: HookedTransformer) -> HookedTransformer:
    """The same with the MLP of a trained model."""
    return with_weights_of(model, trained, [name for name, _ in trained.named_parameters() if is_mlp(name)])

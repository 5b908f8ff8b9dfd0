"""What a training step costs: against the plain loop, against its matrix products, and with something added."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from bayesticket.cli.bench.table import Measurement, against, at_least, at_most
from bayesticket.cli.bench.timing import RECORD_EVERY, Effort, alternate, compare_steps
from bayesticket.cli.expressions import kind_names
from bayesticket.errors import BayesticketError
from bayesticket.interventions import Intervention, as_recipe
from bayesticket.measures import DEFAULT_MEASURES, Measure, NormCondition
from bayesticket.model import HookedTransformer
from bayesticket.optim import AdamW
from bayesticket.runs import TrainConfig, Training
from bayesticket.seeding import seeded_generator
from bayesticket.specs import Spec, default_values, is_library_class
from bayesticket.tasks import AutoregressiveParity, Examples

EXAMPLES: dict[type[Measure], Measure] = {NormCondition: NormCondition(r_min=20.0, r_max=40.0)}
"""Measures whose fields have no defaults."""
BATCH = 512
"""Sequences in a step on a task that asks at every position."""


def against_plain_loop(effort: Effort) -> Measurement:
    """A step of the library against a step of the usual training loop."""
    plain, ours = Training(effort.bare), Training(effort.bare)
    optimizer = plain_optimizer(plain.model, effort.bare)
    before, after = alternate(
        [lambda: plain_step(plain.model, plain.train.batch, optimizer), ours.take_epoch],
        rounds=effort.rounds,
        repeats=effort.repeats,
        warm_up=effort.warm_up,
    )
    return at_least("step, speed against the plain loop", against(after, before), before / after, 6.0)


def cost_of_answers(effort: Effort) -> Measurement:
    """A step on a task that asks at every position against the usual loop on the same task, by the same forward."""
    task = AutoregressiveParity(n=effort.bits, k=3, n_samples=2 * BATCH)
    config = replace(effort.bare, task=task, batch_size=BATCH, train_fraction=0.5)  # one step an epoch
    plain, ours = Training(config), Training(config)
    optimizer = plain_optimizer(plain.model, config)
    before, after = alternate(
        [lambda: plain_step(plain.model, plain.train.batch, optimizer), ours.take_epoch],
        rounds=effort.rounds,
        repeats=effort.repeats,
        warm_up=effort.warm_up,
    )
    name = f"step with {effort.bits + 1} answers a sequence, speed against the usual loop"
    return Measurement(name, against(after, before), before / after)


def plain_optimizer(model: HookedTransformer, config: TrainConfig) -> torch.optim.AdamW:
    """torch's AdamW with a configuration's settings."""
    settings = config.optimizer
    assert isinstance(settings, AdamW)
    return torch.optim.AdamW(
        model.parameters(),
        lr=settings.lr_at(0),
        betas=settings.betas,
        weight_decay=settings.weight_decay_at(0),
        fused=True,
    )


def plain_step(model: HookedTransformer, train: Examples, optimizer: torch.optim.Optimizer) -> Float[Tensor, ""]:
    """A full-batch step of the usual training loop; returns the loss before it."""
    logits = model(train.tokens)
    if train.queries is None:
        loss = F.cross_entropy(logits[:, -1], train.targets)
    else:
        loss = F.cross_entropy(logits[:, list(train.queries)].flatten(0, 1), train.targets.flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def against_products(effort: Effort) -> Measurement:
    """A step against the matrix products that every forward needs: a lower bound for the time of a step."""
    training = Training(effort.bare)
    products = unavoidable_products(training.model, len(training.train.batch))
    step, limit = alternate(
        [training.take_epoch, products], rounds=effort.rounds, repeats=effort.repeats, warm_up=effort.warm_up
    )
    return at_least("step, share of its matrix products", against(step, limit), limit / step, 0.5)


def unavoidable_products(model: HookedTransformer, n: int) -> Callable[[], None]:
    """The matrix products of MLP and unembedding at n query positions, on random numbers; see `multiply_through`."""
    generator = seeded_generator(0, "products")
    weights = [model.blocks[0].mlp.W_in.detach(), model.blocks[0].mlp.W_out.detach(), model.unembed.W_U.detach()]
    widths = [len(weights[0]), *(weight.shape[1] for weight in weights)]
    x = [torch.randn(n, width, generator=generator) for width in widths]
    d_x = [torch.randn(n, width, generator=generator) for width in widths]
    return functools.partial(multiply_through, weights, x, d_x, [torch.empty_like(weight) for weight in weights])


def multiply_through(
    weights: Sequence[Float[Tensor, "_ _"]],
    x: Sequence[Float[Tensor, "n _"]],
    d_x: Sequence[Float[Tensor, "n _"]],
    d_weights: Sequence[Float[Tensor, "_ _"]],
) -> None:
    """Linear layers forward, `x ← x W`, and backward, `dx ← dx Wᵀ` and `dW ← xᵀ dx`, from `x[0]` and `d_x[-1]`."""
    for layer, weight in enumerate(weights):
        torch.mm(x[layer], weight, out=x[layer + 1])
    for layer in reversed(range(len(weights))):
        torch.mm(d_x[layer + 1], weights[layer].T, out=d_x[layer])
        torch.mm(x[layer].T, d_x[layer + 1], out=d_weights[layer])


def cost_of_recording(effort: Effort) -> Measurement:
    """Training with the default records, test set included, against bare steps."""
    before, after = compare_steps(Training(effort.bare), Training(effort.recorded), effort)
    return at_most(f"recording every {RECORD_EVERY}th epoch", against(before, after), after / before, 1.15)


def cost_of_intervention(effort: Effort, intervention: Intervention) -> Measurement:
    """Training with an intervention against training without."""
    varied = Training(replace(effort.bare, intervention=as_recipe(intervention)))
    before, after = compare_steps(Training(effort.bare), varied, effort)
    return at_most(type(intervention).__name__, against(before, after), after / before, 1.10)


def cost_of_measure(effort: Effort, kind: type[Measure]) -> Measurement:
    """Training that records one more measure against training with the default records."""
    name = f"{kind.__name__} every {RECORD_EVERY}th epoch"
    if kind not in EXAMPLES and (needed := required_fields(kind)):
        return Measurement(name, f"skipped: it has no default {', '.join(needed)}")
    try:
        varied = Training(replace(effort.recorded, measures=(EXAMPLES.get(kind) or kind(),)))
    except BayesticketError as error:
        return Measurement(name, f"skipped: {error}")
    before, after = compare_steps(Training(effort.recorded), varied, effort)
    each = effort.recorded_repeats * (after - before) / before
    note = "" if varied.forward == "fast" else ", by the full forward"
    return Measurement(name, f"{against(before, after)}; {each:.1f} epochs an evaluation{note}", after / before)


def further_measures() -> list[type[Measure]]:
    """The library's measures that are not recorded by default, by name."""
    default = {type(measure) for measure in DEFAULT_MEASURES}
    kinds = [cast("type[Measure]", Spec.kinds[name]) for name in sorted(kind_names(Measure))]
    return [kind for kind in kinds if is_library_class(kind) and kind not in default]


def required_fields(kind: type[Measure]) -> list[str]:
    """The fields of a measure that have no defaults."""
    return [name for name, default in default_values(kind).items() if default is dataclasses.MISSING]

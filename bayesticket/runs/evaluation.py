"""What a run is evaluated on beside its own examples: other tasks, such as the same one in longer sequences."""

from dataclasses import replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from bayesticket.errors import refuse, refuse_case
from bayesticket.model import HookedTransformer
from bayesticket.runs.config import TrainConfig
from bayesticket.tasks import AbstractTask, Examples, Split, differing_token


def examples_of(
    given: AbstractTask | Split | Examples, config: TrainConfig, model: HookedTransformer, field: str
) -> Examples:
    """The examples that a run is evaluated on; raises unless its model can read and answer them.

    Of a task those whose inputs training has not seen. Of a split its test half, and of examples all, as they are.
    """
    if isinstance(given, AbstractTask):
        require_readable_task(given, config.task, model, field)
        return held_out(given, config, field)
    examples = given.test if isinstance(given, Split) else given
    if not isinstance(examples, Examples):
        raise refuse(field, given, "a task, a split, or examples, such as split.test")
    sizes = {
        "n_positions": examples.n_positions,
        "tokens": int(examples.tokens.max()) + 1,
        "targets": int(examples.targets.max()) + 1,
    }
    for (name, size), (most, has) in zip(sizes.items(), _sizes(model).values(), strict=True):
        if size > most:
            raise refuse_case(f"{field}.{name}", f"{size}", f"at most {most}, {has}")
    return examples


def _sizes(model: HookedTransformer) -> dict[str, tuple[int, str]]:
    """The largest sizes of a task that a model can read and answer, and what they are of the model."""
    cfg = model.cfg
    return {
        "n_positions": (cfg.n_ctx, "the model's n_ctx; Architecture(n_ctx=…) makes room for more"),
        "d_vocab": (cfg.d_vocab, "the number of the model's tokens"),
        "d_vocab_out": (cfg.d_vocab_out, "the number of the model's answers"),
    }


def require_readable_task(task: AbstractTask, own: AbstractTask, model: HookedTransformer, field: str) -> None:
    """Raises unless a task fits a model that was trained on another: in length, tokens, answers, and what tokens mean.

    What tokens mean is compared where both tasks write them as something else than their numbers.
    """
    for name, (most, has) in _sizes(model).items():
        if (size := getattr(task, name)) > most:
            raise refuse(f"{field}.{name}", size, f"at most {most}, {has}")
    if (found := differing_token(task, own)) is not None:
        token, symbol, known = found
        accepted = f"a task with the tokens of {own!r}, in which it is {known!r}"
        raise refuse_case(field, f"{task!r}, in which token {token} is {symbol!r}", accepted)


def held_out(task: AbstractTask, config: TrainConfig, field: str) -> Examples:
    """The examples of a task whose inputs training has not seen, drawn with the seed of the run's split.

    Where both tasks have the same inputs and targets, these are the inputs of the run's test half, in its order, and
    `unseen` says which of them have an orbit that training has not seen.
    """
    seed, split, own = config.seed_of("split"), config.split(), config.task
    whole, known = task.require_fitting(task.examples(seed)), own.require_fitting(own.examples(seed))
    assert split.train.origin is not None
    assert split.test.origin is not None
    inputs, own_inputs = _inputs(task, whole), _inputs(own, known)
    numbered = replace(whole, origin=torch.arange(whole.n, device=whole.tokens.device), n_whole=whole.n)
    if torch.equal(inputs, own_inputs) and torch.equal(whole.targets, known.targets):
        chosen = numbered.select(split.test.origin)
        return replace(chosen, orbit=split.test.orbit, unseen=split.test.unseen)
    fresh = ~_among(inputs, own_inputs[split.train.origin])
    if not fresh.any():
        raise refuse_case(field, f"{task!r}, whose inputs are all in training", "a task with inputs that are not")
    return numbered.select(fresh)


def _inputs(task: AbstractTask, examples: Examples) -> Int[Tensor, "n k"]:
    """What the targets are functions of; raises unless there is a row for each example."""
    given = task.inputs_of(examples)
    if not isinstance(given, Tensor) or given.ndim != 2 or len(given) != examples.n or given.is_floating_point():
        shown = tuple(given.shape) if isinstance(given, Tensor) else given
        accepted = f"a row of whole numbers for each of the {examples.n} examples"
        raise refuse(f"{type(task).__name__}.inputs_of", shown, accepted)
    return given.cpu()


def _among(rows: Int[Tensor, "n k"], others: Int[Tensor, "m j"]) -> Bool[Tensor, "n"]:
    """Which of the rows are among others; none where these are longer or shorter."""
    if rows.shape[1] != others.shape[1]:
        return torch.zeros(len(rows), dtype=torch.bool)
    number = torch.unique(torch.cat([rows, others]), dim=0, return_inverse=True)[1]
    return torch.isin(number[: len(rows)], number[len(rows) :])

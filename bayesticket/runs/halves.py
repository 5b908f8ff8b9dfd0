"""The examples that a run is trained, tested and evaluated on, with what is mounted when its model runs on them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from bayesticket.errors import BayesticketError
from bayesticket.interventions import Live, Recipe
from bayesticket.measures import Measure, Observer, of_evaluation
from bayesticket.model import (
    HookedTransformer,
    TokenRows,
    choose_forward,
    draw_position_ids,
    draws_positions,
)
from bayesticket.runs.config import TrainConfig
from bayesticket.runs.evaluation import examples_of
from bayesticket.runs.prepare import require_target_of_both_halves
from bayesticket.seeding import seeded_generator
from bayesticket.tasks import AbstractTask, Examples


@dataclass
class MountedHalf:
    """One half of the split, or other examples, with what is mounted when the model runs on them."""

    name: Literal["train", "test", "other"]
    batch: Examples
    live: Live
    observer: Observer
    rows: TokenRows | None = None

    @classmethod
    def to_train_on(
        cls, train: Examples, config: TrainConfig, model: HookedTransformer, measures: Sequence[Measure], n_test: int
    ) -> "MountedHalf":
        """The training half, under the whole recipe."""
        live = Live(config.intervention, model, train, seed=config.seed_of("batch"))
        for part in live.parts:
            if part.fills("edits"):
                require_target_of_both_halves(part, len(train), n_test)
        return cls("train", train, live, Observer(model, measures, train, "train"))

    def held_out(
        self,
        name: Literal["test", "other"],
        batch: Examples,
        measures: Sequence[Measure],
        half: Literal["test", "any"] = "test",
    ) -> "MountedHalf":
        """Examples that are not trained on, under the edits of this half; priors are not for them."""
        editing = tuple(part for part in self.live.parts if part.fills("edits"))
        live = Live(Recipe(editing), self.live.model, batch, state_of=self.live)
        return MountedHalf(name, batch, live, Observer(self.live.model, measures, batch, half))

    def evaluation(
        self, label: str, task: AbstractTask, config: TrainConfig, measures: Sequence[Measure]
    ) -> "MountedHalf":
        """The examples of another task, observed as the test half is; raises where they do not fit, by their label."""
        field = f"evaluate[{label!r}]"
        batch = examples_of(task, config, self.live.model, field).to(self.batch.tokens.device)
        try:
            return self.held_out("other", batch, measures)
        except BayesticketError as error:
            raise BayesticketError(f"{field}: {error}") from error


def forward_for(config: TrainConfig, halves: Iterable[MountedHalf]) -> Literal["fast", "full"]:
    """The forward that serves the recipe and the measures of some halves, the first of them that of training."""
    halves = list(halves)
    names = [*halves[0].live.hook_names, *(name for half in halves for name in half.observer.hook_names)]
    reasons = [reason for half in halves for reason in (*half.live.reasons(), *half.observer.reasons())]
    return choose_forward(config.forward, halves[0].live.model, names, reasons)


def columns_of(halves: Iterable[MountedHalf], evaluations: Mapping[str, MountedHalf]) -> list[str]:
    """The names of the curves as far as they are known before anything is measured."""
    own = [name for half in halves for name in half.observer.columns]
    others = {label: dict.fromkeys(half.observer.columns, 0.0) for label, half in evaluations.items()}
    return [*own, *(name for label, columns in others.items() for name in of_evaluation(label, columns))]


def rows_of(
    batch: Examples, model: HookedTransformer, forward: Literal["fast", "full"], index: Tensor | None = None
) -> TokenRows | None:
    """The rows of all or some examples, which the query-only forward needs."""
    if forward == "full":
        return None
    chosen = batch if index is None else batch.select(index)
    return TokenRows(chosen.tokens, model.cfg.n_heads, chosen.position_ids)


def is_drawn_anew(config: TrainConfig, model: HookedTransformer) -> bool:
    """Whether something about the training half is drawn before every epoch."""
    return config.task.redraw_each_epoch or draws_positions(model)


def drawn_anew(first: Examples, config: TrainConfig, model: HookedTransformer, epoch: int) -> Examples:
    """The training half with the distractors and positions of an epoch, so that a resumed run has the same."""
    batch = first
    if config.task.redraw_each_epoch:
        generator = seeded_generator(config.seed_of("split"), f"redraw, epoch {epoch}")
        seed = int(torch.randint(2**31, (), generator=generator))
        batch = config.task.require_fitting(config.task.redraw(batch, seed=seed), "redraw")
    if draws_positions(model):
        generator = seeded_generator(config.seed_of("batch"), f"positions, epoch {epoch}")
        drawn = draw_position_ids(batch.n, batch.n_positions, model.cfg.n_ctx, generator)
        batch = replace(batch, position_ids=drawn.to(batch.tokens.device))
    return batch

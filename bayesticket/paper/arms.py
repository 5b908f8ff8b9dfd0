"""What several figures run: the baseline, the prior toward the oracle, and what both record."""

from collections.abc import Mapping
from typing import Literal

from bayesticket.interventions import Intervention, KLPrior, as_recipe
from bayesticket.measures import (
    AttentionEntropy,
    ClassMargin,
    Contraction,
    ExplainingAway,
    KLToOracle,
    Measure,
    PairwiseCondition,
    PriorGradient,
    ScoreVariance,
    SeparabilityMargin,
    StructuralCondition,
)
from bayesticket.paper.figure import Scale
from bayesticket.paper.readings import THRESHOLD, UNSEEN
from bayesticket.runs import Reaches, TrainConfig, configure, configure_from
from bayesticket.tasks import ModularAddition

Distractors = Literal["random", "constant"]
NOISY, PLAIN = "random distractors", "constant distractors"
LAYOUTS: Mapping[str, Distractors] = {NOISY: "random", PLAIN: "constant"}
STRENGTH = 1.0
"""The strength of a prior where a figure is not about it."""
BOTH_HALVES = ("train", "test")
MEASURES: tuple[Measure, ...] = (
    AttentionEntropy(),
    ScoreVariance(),
    PriorGradient(),
    Contraction(),
    ExplainingAway(),
    KLToOracle(half=BOTH_HALVES),
    ClassMargin(half=BOTH_HALVES),
    StructuralCondition("derived", half=BOTH_HALVES),
    PairwiseCondition(half="test"),
    SeparabilityMargin("readings"),
)
"""What the baseline and the prior record beside the default, so that several figures are about the same runs."""


def arm(
    scale: Scale,
    intervention: Intervention | None = None,
    *,
    distractors: Distractors = "random",
    patience: int | None = 200,
    **options: object,
) -> TrainConfig:
    """A configuration of the paper's model on modular addition, stopped some epochs after it has grokked.

    It has grokked when its accuracy on unseen test examples reaches the threshold. Without patience it goes on to the
    last epoch.
    """
    common = configure(
        task=ModularAddition(p=scale.p, distractors=distractors),
        intervention=as_recipe(intervention),
        epochs=scale.epochs,
        record_every=scale.record_every,
        stop_when=None if patience is None else Reaches(UNSEEN.curve, THRESHOLD, patience=patience),
        grok_threshold=THRESHOLD,
    )
    return configure_from(common, options)


def baseline(scale: Scale, distractors: Distractors) -> TrainConfig:
    """The paper's training without any intervention, to the last epoch."""
    return arm(scale, distractors=distractors, patience=None, measures=MEASURES)


def with_prior(scale: Scale, distractors: Distractors) -> TrainConfig:
    """The same with a KL prior toward the oracle, until a thousand epochs after grokking."""
    return arm(scale, KLPrior(strength=STRENGTH), distractors=distractors, patience=1000, measures=MEASURES)

"""Structure without an oracle: which prior that one could have in practice does what the oracle does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import plotly.graph_objects as go

from bayesticket.attention import Permuted, Target
from bayesticket.interventions import Intervention, KLPrior, SelfDistillation
from bayesticket.model import Architecture
from bayesticket.paper import fig6
from bayesticket.paper.arms import NOISY, PLAIN, STRENGTH, arm, baseline, with_prior
from bayesticket.paper.best import AT_BEST, arms_of_prior, best_arms, best_of, of_teachers, transfers, with_strength
from bayesticket.paper.comparing import arm_of
from bayesticket.paper.fig6 import SHORTER, TOWARD
from bayesticket.paper.figure import Claim, PaperFigure, Scale
from bayesticket.paper.readings import Grokking, by_every_reading
from bayesticket.paper.times import DOTS, plot_accuracy, plot_times, times_of
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Configs, Runs

NONE, ORACLE, ENTROPY = "no prior", "oracle", "entropy"
SLOW, SHARP = "self-distillation", "self-distillation, sharpened"
QUIET, SMALL, EARLY = "teacher without noise", "small teacher without noise", "early teacher without noise"
SHUFFLED = "shuffled teacher without noise"
ITSELF = (0.1, STRENGTH, 10.0)
"""The strengths of self-distillation, whose target is near by what it draws to it."""
PRIORS: Mapping[str, tuple[Callable[[float], Intervention], Sequence[float]]] = {
    ORACLE: fig6.PRIORS[fig6.ORACLE],
    ENTROPY: fig6.PRIORS[fig6.ENTROPY],
    SLOW: (lambda strength: SelfDistillation(strength=strength), ITSELF),
    SHARP: (lambda strength: SelfDistillation(strength=strength, sharpness=2.0), ITSELF),
}
"""The priors that need no other run, and their strengths."""
TEACHERS = (QUIET, SMALL, EARLY, SHUFFLED)
CANDIDATES = (ENTROPY, SLOW, SHARP, QUIET, SMALL, EARLY)
ALL = (*PRIORS, *TEACHERS)
WIDTH, EPOCHS = 16, 500
"""The width of the small teacher, and how long the early one is trained."""


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """No prior and each prior at each strength, with random distractors; and the teachers, with constant ones."""
    found = {arm_of(NOISY, NONE): baseline(scale, "random")}
    for name, (made, strengths) in PRIORS.items():
        for strength in strengths:
            found[arm_of(NOISY, with_strength(name, strength))] = (
                with_prior(scale, "random") if (name, strength) == (ORACLE, STRENGTH) else arm(scale, made(strength))
            )
    quiet = baseline(scale, "constant")
    small = arm(scale, distractors="constant", model=Architecture(d_model=WIDTH), patience=1000)  # one of Figure 9
    early = replace(quiet, epochs=min(EPOCHS, scale.epochs))
    return found | {arm_of(PLAIN, name): each for name, each in zip(TEACHERS, (quiet, small, early), strict=False)}


def then(scale: Scale, runs: Runs) -> Configs:
    """The students, each of a teacher of another seed."""
    made: dict[tuple[str, int], TrainConfig] = {}
    shorter = replace(scale, epochs=max(scale.epochs // SHORTER, 1))
    for seed in runs.seeds:
        models = {
            name: runs.run(arm_of(PLAIN, name), (seed + 1) % len(runs.seeds)).model for name in (QUIET, SMALL, EARLY)
        }
        targets: Mapping[str, Target] = {**models, SHUFFLED: Permuted(models[QUIET])}
        for name, target in targets.items():
            for strength in TOWARD:
                config = arm(shorter if name == SHUFFLED else scale, KLPrior(target, strength=strength), seed=seed)
                made[arm_of(NOISY, with_strength(name, strength)), seed] = config
    return made


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Grokking times of every arm, and accuracy of each prior at its best strength."""
    times = {name: each for name, each in times_of(runs).items() if name.endswith(arm_of(NOISY, ""))}
    priors = [prior for prior in ALL if arms_of_prior(times, NOISY, prior)]
    best = [arm_of(NOISY, NONE), *(best_of(times, NOISY, prior) for prior in priors)]
    return {
        DOTS: plot_times(times),
        "Unseen accuracy, each prior at its best strength; median and quartiles over seeds.": plot_accuracy(runs, best),
    }


def judge_at(runs: Runs, reading: Grokking) -> list[Claim]:
    """For each prior that needs no oracle, whether it does what the oracle does; and the teacher's control."""
    times = times_of(runs, reading)
    of_noise = best_arms(times, NOISY, NONE, ALL)
    claims = [
        transfers(
            of_noise, f"Without an oracle: the prior “{prior}” does much of what the oracle does", prior, ORACLE, NONE,
            (), "a control",
        )
        for prior in CANDIDATES
    ]  # fmt: skip
    learned = of_noise.beats(
        "It is what a teacher without noise has learned: runs grok earlier than with its attention shuffled", QUIET,
        SHUFFLED, {"the small teacher": (SMALL, SHUFFLED), "the early teacher": (EARLY, SHUFFLED)},
    )  # fmt: skip
    claims.append(of_teachers(learned, times[arm_of(PLAIN, QUIET)]))
    return [replace(claim, rules=(*claim.rules, AT_BEST), arms=tuple(times)) for claim in claims]


FIGURE = PaperFigure(
    "practical",
    "Structure without an oracle: which practical prior comes closest",
    "With random distractors, where no run groks unaided, priors that need no oracle: an entropy penalty, at strengths "
    "0.01, 0.1 and 1; self-distillation, a KL prior toward the average of the model's own attention over some hundred "
    "past steps, as it is or sharpened (squared), at 0.1, 1 and 10; and, at 0.1 and 1, KL priors toward teachers that "
    f"were trained without a prior where the noise is constant: the model of Figure 1, one of width {WIDTH}, and one "
    f"after {EPOCHS} epochs, before it has grokked. Beside them no prior, the oracle, and, for half as many epochs, "
    "the teacher's attention with its positions permuted for each example.",
    arms,
    draw,
    by_every_reading(judge_at),
    then,
    finds_in=tuple(arm_of(PLAIN, name) for name in (QUIET, SMALL, EARLY)),
    notes=(
        "A teacher without noise has never seen a number where its student has noise. It was trained on another seed's "
        "30% of all pairs.",
        "That there is a version of the task with less noise is knowledge too, though less than the oracle's: nobody "
        "has to say which positions matter.",
    ),
)

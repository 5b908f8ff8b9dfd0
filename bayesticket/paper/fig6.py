"""Figure 6: what other priors on attention do that know less than the oracle."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import plotly.graph_objects as go

from bayesticket.analysis import Times
from bayesticket.attention import Permuted, Target
from bayesticket.interventions import EntropyPrior, Intervention, KLPrior, SparsityPrior
from bayesticket.paper.arms import LAYOUTS, NOISY, PLAIN, STRENGTH, arm, baseline, with_prior
from bayesticket.paper.best import AT_BEST, arms_of_prior, best_arms, best_of, of_teachers, transfers, with_strength
from bayesticket.paper.comparing import Arms, arm_of
from bayesticket.paper.fig4 import FRESH
from bayesticket.paper.figure import Claim, PaperFigure, Scale
from bayesticket.paper.readings import Grokking, by_every_reading
from bayesticket.paper.times import DOTS, plot_accuracy, plot_times, times_of
from bayesticket.paper.transfer import fresh_model
from bayesticket.runs import Run, TrainConfig
from bayesticket.sweeps import Configs, Runs

NONE, ORACLE = "no prior", "oracle"
ENTROPY, ROOTS, SCORES = "entropy", "sparsity, Σ√α", "sparsity, scores' ℓ1"
TEACHER, UNTRAINED, SHUFFLED = "teacher", "untrained teacher", "shuffled teacher"
TOWARD, SHARPENING = (0.1, STRENGTH), (0.01, 0.1, STRENGTH)
"""Each prior has some strengths, so that none loses by a badly chosen one; sharpness, which can hide an operand, a
weaker one too."""
PRIORS: Mapping[str, tuple[Callable[[float], Intervention], Sequence[float]]] = {
    ORACLE: (lambda strength: KLPrior(strength=strength), TOWARD),
    ENTROPY: (lambda strength: EntropyPrior(strength=strength), SHARPENING),
    ROOTS: (lambda strength: SparsityPrior(strength=strength), SHARPENING),
    SCORES: (lambda strength: SparsityPrior(strength=strength, on="scores"), SHARPENING),
}
"""The priors that need no other run, and their strengths."""
PRIORS_AND_TEACHERS = (*PRIORS, TEACHER, UNTRAINED, SHUFFLED)
TAUGHT_BY = {NOISY: with_strength(ORACLE, STRENGTH), PLAIN: NONE}
"""The arm whose runs are teachers: one that groks."""
SHORTER = 2
"""The teacher's controls have so many times fewer epochs: they are compared with its students alone."""


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """No prior, and each prior that needs no teacher at its strengths, in both layouts."""
    found: dict[str, TrainConfig] = {}
    for layout, distractors in LAYOUTS.items():
        found[arm_of(layout, NONE)] = baseline(scale, distractors)
        for prior, (made, strengths) in PRIORS.items():
            for strength in strengths:
                found[arm_of(layout, with_strength(prior, strength))] = (
                    with_prior(scale, distractors)
                    if (prior, strength) == (ORACLE, STRENGTH)
                    else arm(scale, made(strength), distractors=distractors)
                )
    return found


def then(scale: Scale, runs: Runs) -> Configs:
    """The students of teachers: of a run with another seed, of its attention shuffled, and of fresh weights."""
    made: dict[tuple[str, int], TrainConfig] = {}
    shorter = replace(scale, epochs=max(scale.epochs // SHORTER, 1))
    for layout, distractors in LAYOUTS.items():
        for seed in runs.seeds:
            teachers = _teachers(runs.run(arm_of(layout, TAUGHT_BY[layout]), (seed + 1) % len(runs.seeds)), seed)
            for name, target in teachers.items():
                for strength in TOWARD:
                    its = scale if name == TEACHER else shorter
                    config = arm(its, KLPrior(target, strength=strength), distractors=distractors, seed=seed)
                    made[arm_of(layout, with_strength(name, strength)), seed] = config
    return made


def _teachers(run: Run, seed: int) -> Mapping[str, Target]:
    return {TEACHER: run.model, UNTRAINED: fresh_model(run, FRESH + seed), SHUFFLED: Permuted(run.model)}


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Grokking times of every arm, and accuracy of each prior at its best strength."""
    times, pictures = times_of(runs), {}
    for layout in LAYOUTS:
        of_layout = {name: each for name, each in times.items() if name.endswith(arm_of(layout, ""))}
        pictures[f"{DOTS[:-1]} ({layout})."] = plot_times(of_layout)
        priors = [prior for prior in PRIORS_AND_TEACHERS if arms_of_prior(of_layout, layout, prior)]
        names = [arm_of(layout, NONE), *(best_of(times, layout, prior) for prior in priors)]
        caption = f"Unseen accuracy, each prior at its best strength ({layout}); median and quartiles over seeds."
        pictures[caption] = plot_accuracy(runs, names)
    return pictures


def judge_at(runs: Runs, reading: Grokking) -> list[Claim]:
    """What is claimed of priors, in each layout."""
    times = times_of(runs, reading)
    return [
        replace(claim, rules=(*claim.rules, AT_BEST), arms=tuple(name for name in times if name.endswith(layout + ")")))
        for layout in LAYOUTS
        for claim in _in_layout(
            best_arms(times, layout, NONE, PRIORS_AND_TEACHERS), times[arm_of(layout, TAUGHT_BY[layout])]
        )
    ]


def _in_layout(arms: Arms, teachers: Times) -> list[Claim]:
    return [
        arms.beats("An entropy penalty makes runs grok earlier than no prior", ENTROPY, NONE,
                   {"the oracle does": (ORACLE, NONE)}, "the paper"),
        arms.beats("A sparsity penalty makes runs grok earlier than no prior", ROOTS, NONE,
                   {"on the scores": (SCORES, NONE)}, "the paper"),
        arms.beats_all(
            "The oracle's prior, which is directed, makes runs grok earlier than entropy and sparsity do", ORACLE,
            (ENTROPY, ROOTS), {each: (ORACLE, each) for each in (ENTROPY, ROOTS, SCORES)}, "the paper",
        ),
        *(of_teachers(claim, teachers) for claim in (
            transfers(arms, "A teacher's attention transfers much of what the oracle does", TEACHER, ORACLE, NONE,
                      (ENTROPY, ROOTS, SCORES), "the paper"),
            arms.beats_all(
                "It is what the teacher has learned: runs grok earlier than with an untrained or a shuffled one",
                TEACHER, (UNTRAINED, SHUFFLED), {each: (TEACHER, each) for each in (UNTRAINED, SHUFFLED)}, "a control",
            ),
            arms.matches(
                "The oracle is an upper bound: it matches or outperforms the teacher", ORACLE, TEACHER,
                {each: (ORACLE, each) for each in (ENTROPY, ROOTS, SCORES)}, "the paper", NONE,
            ),
        )),
    ]  # fmt: skip


FIGURE = PaperFigure(
    "fig6",
    "Figure 6: priors on attention that know less than the oracle",
    "A KL prior toward the oracle, an entropy penalty, two sparsity penalties (on the roots of the weights, Σ√α, and "
    "on the scores, Σ|s|), and KL priors toward a teacher; and no prior. Both layouts. KL priors have strengths 0.1 "
    "and 1, the others 0.01 too. A teacher is a trained run of another seed: without a prior where runs grok so, and "
    f"with random distractors with one of strength {STRENGTH:g}. Its controls, for half as many epochs, are an "
    "untrained model and the teacher's attention with its positions permuted for each example.",
    arms,
    draw,
    by_every_reading(judge_at),
    then,
    finds_in=tuple(arm_of(layout, TAUGHT_BY[layout]) for layout in LAYOUTS),
    notes=(
        "With random distractors the teacher had the oracle, so that its student inherits it; with constant ones the "
        "teacher had none.",
        "A teacher of another seed was trained on another 30% of all pairs. Its student gets its attention "
        "on the student's own training examples, which says nothing of their answers.",
    ),
)

"""Figure 10: the same on other tasks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median

import plotly.graph_objects as go
import torch
from jaxtyping import Float
from torch import Tensor

from bayesticket.figures import PALETTE, Panel, add_band, finish_arms, stacked
from bayesticket.interventions import KLPrior, as_recipe
from bayesticket.measures import ExplainingAway
from bayesticket.model import Architecture
from bayesticket.paper.arms import STRENGTH, arm, baseline, with_prior
from bayesticket.paper.comparing import BEATS, EACH_COMPARISON, arm_of, arms_of
from bayesticket.paper.fig5 import FORMS, bound_holds, gradient_is_far
from bayesticket.paper.figure import (
    SHARES,
    Claim,
    Curves,
    PaperFigure,
    Scale,
    Verdict,
    arm_names,
    curves_of,
    verdict_of,
)
from bayesticket.paper.readings import Grokking, by_every_reading, together
from bayesticket.paper.times import BANDS, DOTS, plot_accuracy, plot_times, share, times_of
from bayesticket.paper.words import across, sentences, so_many
from bayesticket.runs import MEMORISED, TrainConfig, configure_from, first_epoch
from bayesticket.sweeps import Runs
from bayesticket.tasks import (
    AbstractTask,
    KOperandAddition,
    ModularMultiplication,
    PermutationComposition,
    SparseParity,
)

NONE, ORACLE, ORDERED = "no prior", "oracle", "oracle with unequal weights"
TWO_HEADS, APART = "no prior, two heads", "two heads, each toward one operand"
ADDITION, PARITY, PERMUTATIONS = "addition", "sparse parity", "permutations"
OTHERS: Mapping[str, Callable[[Scale], AbstractTask]] = {
    PARITY: lambda scale: SparseParity(n=min(40, scale.p), k=3),
    PERMUTATIONS: lambda scale: PermutationComposition(n=5 if scale.p > 23 else 3),
    "multiplication": lambda scale: ModularMultiplication(p=scale.p),
    "addition of three": lambda scale: KOperandAddition(k=3, p=min(23, scale.p)),
}
"""The tasks beside addition modulo p."""
OF_PAPER = (ADDITION, PARITY, PERMUTATIONS)
TASKS = (ADDITION, *OTHERS)
IN_ORDER = (ORDERED, TWO_HEADS, APART)
"""The arms of permutations alone, where attention can tell the order."""
EVERY_ARM = (
    *(arm_of(task, prior) for task in TASKS for prior in (NONE, ORACLE)),
    *(arm_of(PERMUTATIONS, prior) for prior in IN_ORDER),
)
WEIGHTS = (2 / 3, 1 / 3)
"""How much attention the first and the second permutation get where the target tells which is which."""
OPTIONS: Mapping[str, Mapping[str, object]] = {PERMUTATIONS: {"train_fraction": 0.6}}
"""How a task is trained where the paper's settings do not make it generalise in any model tried."""
FOUND = 0.9
"""A model has found the operands by itself when so much of its attention is on them as it memorises."""
CEILING = 0.529
"""The share of pairs of permutations of five things that can be answered from attention equal on both operands
(`docs/theory.md`, no. 10)."""


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """Each task without a prior and with the oracle; addition with random distractors as in the other figures."""
    found = {arm_of(ADDITION, NONE): baseline(scale, "random"), arm_of(ADDITION, ORACLE): with_prior(scale, "random")}
    for name, task in OTHERS.items():
        plain = arm(scale, task=task(scale), measures=(ExplainingAway(),))
        plain = configure_from(plain, OPTIONS.get(name, {}))
        found[arm_of(name, NONE)] = plain
        found[arm_of(name, ORACLE)] = replace(plain, intervention=as_recipe(KLPrior(strength=STRENGTH)))
    plain = found[arm_of(PERMUTATIONS, NONE)]
    two_heads = replace(plain, model=Architecture(n_heads=2))
    ordered, first, second = (on_operands(plain.task, weights) for weights in (WEIGHTS, (1, 0), (0, 1)))
    apart = KLPrior(first, strength=STRENGTH, head=0) + KLPrior(second, strength=STRENGTH, head=1)
    return found | {
        arm_of(PERMUTATIONS, ORDERED): replace(plain, intervention=as_recipe(KLPrior(ordered, strength=STRENGTH))),
        arm_of(PERMUTATIONS, TWO_HEADS): two_heads,
        arm_of(PERMUTATIONS, APART): replace(two_heads, intervention=apart),
    }


def on_operands(task: AbstractTask, weights: Sequence[float]) -> Float[Tensor, "T"]:
    """A target that is on the operands alone, with a weight for each.

    >>> on_operands(PermutationComposition(n=3), WEIGHTS)
    tensor([0.6667, 0.0000, 0.3333, 0.0000, 0.0000])
    """
    target = torch.zeros(task.n_positions)
    target[task.examples(seed=0).informative[0]] = torch.tensor(weights, dtype=target.dtype)
    return target


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Grokking times, the gradient under its bound, and accuracy, by task."""
    panels = [Panel(task, log=True) for task in TASKS]
    figure = stacked(panels, panel_height=170)
    for panel, task in enumerate(TASKS, 1):
        for colour, form in zip(PALETTE, ("loose", "local", "measured"), strict=False):
            column, label = f"explaining_away[{form}]", FORMS[form]
            add_band(figure, runs, arm_of(task, NONE), column, panel=panel, colour=colour, name=label)
    finish_arms(figure, panels, int(runs.curves["trained"].max()))
    pictures = {DOTS: plot_times(times_of(runs))}
    known = arm_names(runs)
    for task in TASKS:
        names = [name for prior in (NONE, ORACLE, *IN_ORDER) if (name := arm_of(task, prior)) in known]
        pictures[f"{BANDS[:-1]} ({task})."] = plot_accuracy(runs, names)
    return pictures | {"The gradient in attention scores and its bounds, without a prior.": figure}


def judge(runs: Runs) -> list[Claim]:
    """What is claimed of the prior and of the gradient on each task."""
    return [*by_every_reading(_judge_at)(runs), *_starvation(runs), _wrong_target(runs)]


def mass_when_memorised(curves: Curves) -> float | None:
    """The mean attention on the operands together as a run memorises; None where it does not."""
    memorised = first_epoch(curves["train_accuracy"] >= MEMORISED)
    return None if memorised is None else float(curves["informative_mass_mean"].loc[memorised])


def is_bottleneck(runs: Runs, task: str) -> bool:
    """Whether routing is the bottleneck of a task; see `BOTTLENECK`."""
    masses = [mass_when_memorised(curves) for curves in curves_of(runs, arm_of(task, NONE)).values()]
    return median(0.0 if mass is None else mass for mass in masses) < FOUND


BOTTLENECK = (
    f"Routing is the bottleneck of a task where, without a prior, less than {FOUND:.0%} of attention is on the "
    "operands as the median run memorises; a run that does not memorise counts as one that has not found them."
)
"""The rule of `is_bottleneck`, in words."""


def _judge_at(runs: Runs, reading: Grokking) -> list[Claim]:
    times = times_of(runs, reading)
    of_task = {task: arms_of(times, task) for task in TASKS}
    narrow = [task for task in TASKS if is_bottleneck(runs, task)]
    each: dict[str, Verdict] = {task: of_task[task].beat(ORACLE, NONE) for task in TASKS}
    permuted = of_task[PERMUTATIONS]
    in_order: dict[str, Verdict] = {
        "permutations, with unequal weights": permuted.beat(ORDERED, NONE),
        "permutations, two heads, each toward one operand": permuted.beat(APART, TWO_HEADS),
    }
    fitting: list[Verdict] = [each[task] for task in narrow if task != PERMUTATIONS]

    def said(task: str) -> str:
        masses = [mass_when_memorised(curves) for curves in curves_of(runs, arm_of(task, NONE)).values()]
        times, memorised = of_task[task].times, any(mass is not None for mass in masses)
        return sentences(
            f"{task}: without a prior {share(times[NONE])}; with the oracle {share(times[ORACLE])}",
            f"{across(masses, '.0%')} of attention is on the operands as runs memorise without a prior"
            if memorised
            else "",
            "routing is the bottleneck" if task in narrow else "",
            *(f"{prior}: {share(times[prior])}" for prior in IN_ORDER if task == PERMUTATIONS),
        )

    return [
        Claim(
            "The prior makes runs grok earlier on every task of which routing is the bottleneck.",
            (BOTTLENECK, BEATS, EACH_COMPARISON),
            "\n".join(map(said, TASKS)),
            together([each[task] for task in narrow]),
            arms=EVERY_ARM,
            readings={
                "without permutations, of which the oracle is a wrong target": together(fitting),
                "the three tasks that the paper ran": together([each[task] for task in OF_PAPER]),
                "every task": together(list(each.values())),
                **each,
                **in_order,
            },
        )
    ]


def _starvation(runs: Runs) -> list[Claim]:
    """That the bound holds on every task, and that the gradient is far below it."""

    def tables(tasks: Sequence[str]) -> list[Curves]:
        return [each for task in tasks for p in (NONE, ORACLE) for each in curves_of(runs, arm_of(task, p)).values()]

    far = gradient_is_far(tables(TASKS), set())
    by_task: dict[str, Verdict] = {task: gradient_is_far(tables([task]), set()).verdict for task in TASKS}
    claims = [bound_holds(tables(TASKS)), replace(far, readings={**far.readings, **by_task})]
    return [replace(claim, arms=EVERY_ARM) for claim in claims]


def _wrong_target(runs: Runs) -> Claim:
    """That the oracle of permutations leads to a model that cannot tell the order of its operands."""
    best = {
        prior: [float(each["test_accuracy"].max()) for each in curves_of(runs, arm_of(PERMUTATIONS, prior)).values()]
        for prior in (ORACLE, NONE, *IN_ORDER)
    }
    below = {prior: [accuracy <= CEILING for accuracy in each] for prior, each in best.items()}
    others: dict[str, Verdict] = {prior: verdict_of(below[prior]) for prior in below if prior != ORACLE}
    verdict = verdict_of(below[ORACLE])
    return Claim(
        "Of permutations, whose order matters, the oracle is a wrong target: with it no run answers more than "
        "attention equal on both operands allows.",
        (
            f"The best test accuracy of a run with the oracle is at most {CEILING:.1%}. Where it is, and no run of "
            f"another arm of permutations (no prior; unequal weights, {WEIGHTS[0]:.2f} and {WEIGHTS[1]:.2f}; two "
            "heads) answers more either, the claim is undecided: it need not be for the target.",
            SHARES,
        ),
        sentences(
            f"this holds in {so_many(sum(below[ORACLE]), len(below[ORACLE]))}",
            *(f"the best test accuracy of the arm “{prior}” is {across(each, '.1%')}" for prior, each in best.items()),
        ),
        "undecided" if verdict != "not reproduced" and all(all(below[prior]) for prior in others) else verdict,
        "a control",
        arms=tuple(arm_of(PERMUTATIONS, prior) for prior in best),
        readings=others,
    )


FIGURE = PaperFigure(
    "fig10",
    "Figure 10: other tasks",
    "Addition modulo 113; the parity of 3 of 40 bits; the composition of permutations of five things; and beside "
    "these, which the paper runs, multiplication modulo 113 and the addition of three numbers modulo 23. Each without "
    f"a prior and with one of strength {STRENGTH:g} toward the oracle, and with random distractors. Of permutations, "
    "whose order matters, also a prior toward unequal weights, by which it can be told, and two heads, without a prior "
    "and with one that draws each to one operand; 60% of them are for training.",
    arms,
    draw,
    judge,
    notes=(
        "Sizes were found by single runs of seed 0, in the minimal model. With the oracle, parity was grokked at epoch "
        "100 and the addition of three at 800, multiplication not within 2,500; without a prior, parity was not "
        "memorised within 3,000.",
        "Permutations, 60% for training: one head with unequal weights answered 30% after 3,000 epochs, 80% after "
        "5,000 and 98.9% after 8,250; two heads with a prior that draws each to one operand 98% after 2,500. With 30% "
        "for training the two heads memorised and stayed at chance for 3,000. Muon (learning rate 0.02, weight decay "
        "0.1) on four heads, width 128, 512 hidden units, constant distractors and no prior answered 82% after 1,250 "
        "epochs and fell back to chance at 1,500.",
    ),
)

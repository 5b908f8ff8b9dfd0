"""The claims of Figure 2, and what its arms are called."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from bayesticket.paper.figure import SHARES, Claim, Curves, Verdict, curves_of, verdict_of
from bayesticket.paper.readings import CHANCE, THRESHOLD, UNSEEN, Grokking, together
from bayesticket.paper.words import across, sentences, so_many
from bayesticket.runs import first_epoch
from bayesticket.sweeps import Runs

DECAY, FREE, HELD, ALL = "weight decay", "no norm control", "MLP held", "all weights held"
SMALLER, LARGER = "MLP held at half the radius", "MLP held at twice the radius"
OLD, QK = "MLP held, no decay elsewhere", "MLP held, QK penalty"
CONSTANT = {norm: f"{norm}, constant distractors" for norm in (DECAY, FREE)}
NORMS = (DECAY, FREE, HELD, SMALLER, LARGER, ALL, OLD, QK, *CONSTANT.values())


def name_of(norm: str, prior: str) -> str:
    """The name of an arm."""
    return f"{norm} × {prior}"


def norms_at_grokking(runs: Runs, scope: str, *, at_the_end: bool = False) -> list[float]:
    """The norm of the MLP, or of all weights, at which runs with weight decay grok, or with which they end."""
    found = []
    for prior in ("no prior", "oracle"):
        for curves in curves_of(runs, name_of(DECAY, prior)).values():
            norms = curves["mlp_norm"] if scope == "mlp" else whole_norm(curves)
            epoch = int(norms.index[-1]) if at_the_end else UNSEEN.epoch(curves)
            found += [] if epoch is None else [float(norms.loc[epoch])]
    return found


def whole_norm(curves: Curves) -> pd.Series:
    """The norm of all weights together, from that of each parameter."""
    squares = [curve.to_numpy() ** 2 for name, curve in curves.items() if name.startswith("weight_norms[")]
    return pd.Series(np.sqrt(np.sum(squares, axis=0)), index=curves["mlp_norm"].index)


@lru_cache(maxsize=64)
def _tables(runs: Runs, name: str) -> list[Curves]:
    """The curves of an arm, looked up once for all claims and readings."""
    return list(curves_of(runs, name).values())


EACH_ARM = (
    "Each arm is judged by itself. Where their verdicts differ, the claim is partly reproduced, and where one is "
    "undecided, it is undecided."
)
"""The rule of `together`, in words."""
Holds = Callable[[Curves], bool]


@dataclass(frozen=True)
class Factorial:
    """The runs of the factorial, and what counts as generalising."""

    runs: Runs
    reading: Grokking

    def tables(self, norm: str, prior: str) -> list[Curves]:
        """The curves of an arm, by seed."""
        return _tables(self.runs, name_of(norm, prior))

    def best(self, norm: str, prior: str) -> list[float]:
        """The best accuracy of each run of an arm."""
        return [self.reading.best(curves) for curves in self.tables(norm, prior)]

    def perfect(self, norm: str, prior: str) -> list[bool]:
        """Whether each run of an arm generalises perfectly."""
        return [best >= self.reading.threshold for best in self.best(norm, prior)]

    def verdict(self, arms: Sequence[tuple[str, str]], holds: Callable[[float], bool]) -> Verdict:
        """One verdict on something that should hold of the best accuracy in several arms."""
        return together([verdict_of([holds(best) for best in self.best(*each)]) for each in arms])

    def claim(
        self, said: str, rule: str, arms: Sequence[tuple[str, str]], holds: Callable[[float], bool],
        readings: Mapping[str, Sequence[tuple[str, str]]], by: str = "the paper",
    ) -> Claim:  # fmt: skip
        """A claim about the best accuracy in several arms, and about others in other readings."""
        shown = list(dict.fromkeys([*arms, *(each for others in readings.values() for each in others)]))
        best = {each: self.best(*each) for each in shown}
        measured = (
            f"{name_of(*each)}: this holds in {so_many(sum(map(holds, values)), len(values))}; best "
            f"{self.reading.accuracy} {across(values, '.1%')}."
            for each, values in best.items()
        )
        return Claim(
            said, (f"{rule}.", SHARES, EACH_ARM), "\n".join(measured), self.verdict(arms, holds), by,
            arms=tuple(name_of(*each) for each in shown),
            readings={reading: self.verdict(others, holds) for reading, others in readings.items()},
        )  # fmt: skip


def judge_at(runs: Runs, reading: Grokking) -> list[Claim]:
    """The claims of the factorial, and what the control of the attention's norm says of them."""
    given, reached = Factorial(runs, reading), f"{reading.threshold:.0%}"
    return [
        _adversarial(given),
        _improves(given),
        given.claim(
            "Norm control and the oracle together generalise perfectly.",
            f"Accuracy reaches {reached}",
            [(DECAY, "oracle"), (HELD, "oracle")],
            lambda best: best >= reading.threshold,
            {
                "with weight decay alone": [(DECAY, "oracle")],
                "the MLP held at r_max alone": [(HELD, "oracle")],
                "held at half of r_max": [(SMALLER, "oracle")],
                "all weights held": [(ALL, "oracle")],
                "the MLP held, without weight decay elsewhere": [(OLD, "oracle")],
                "weight decay, constant distractors": [(CONSTANT[DECAY], "oracle")],
            },
        ),
        given.claim(
            "Without norm control nothing generalises perfectly.",
            f"Accuracy never reaches {reached}",
            [(FREE, prior) for prior in ("no prior", "oracle", "adversarial")],
            lambda best: best < reading.threshold,
            {
                "with constant distractors": [(CONSTANT[FREE], prior) for prior in ("no prior", "oracle")],
                "with the oracle, the MLP held at twice r_max, outside of the norm condition": [(LARGER, "oracle")],
            },
        ),
        given.claim(
            "Norm control alone, without a prior toward the oracle, does not generalise perfectly.",
            f"Accuracy never reaches {reached}",
            [(DECAY, "no prior"), (HELD, "no prior")],
            lambda best: best < reading.threshold,
            {
                "all weights held": [(ALL, "no prior")],
                "the MLP held, without weight decay elsewhere": [(OLD, "no prior")],
                "weight decay, constant distractors": [(CONSTANT[DECAY], "no prior")],
            },
            by="a strong reading of the paper",
        ),
        _only_both(given),
        _without_their_norms(given),
    ]


def _adversarial(given: Factorial) -> Claim:
    norms = (HELD, DECAY, ALL, QK)
    tables = {norm: given.tables(norm, "adversarial") for norm in norms}
    below = {norm: [best < CHANCE for best in given.best(norm, "adversarial")] for norm in norms}
    memorised = {norm: [_memorises(curves) for curves in tables[norm]] for norm in norms}
    mass = {norm: [float(curves["informative_mass_mean"].iloc[-1]) for curves in tables[norm]] for norm in norms}
    measured = (
        f"{name_of(norm, 'adversarial')}: this holds in {so_many(sum(below[norm]), len(below[norm]))}; best "
        f"{given.reading.accuracy} {across(given.best(norm, 'adversarial'), '.1%')}; "
        f"{so_many(sum(memorised[norm]), len(memorised[norm]))} memorised; the informative positions have a share of "
        f"{across(mass[norm], '.2f')} of attention at the end."
        for norm in norms
    )
    return Claim(
        "Under norm matching, attention forced onto the distractors stays at chance.",
        (f"With the MLP held, accuracy never reaches {CHANCE:.0%}, whether the run memorises or not.", SHARES),
        "\n".join(measured),
        verdict_of(below[HELD]),
        arms=tuple(name_of(norm, "adversarial") for norm in norms),
        readings={
            "among the runs that memorise": verdict_of(
                [low for low, did in zip(below[HELD], memorised[HELD], strict=True) if did]
            ),
            "with weight decay in place of a held norm": verdict_of(below[DECAY]),
            "with all weights held": verdict_of(below[ALL]),
            "with the QK penalty too": verdict_of(below[QK]),
        },
    )


def _memorises(curves: Curves) -> bool:
    return first_epoch(curves["train_accuracy"] >= THRESHOLD) is not None


def _improves(given: Factorial) -> Claim:
    def partial(norm: str) -> tuple[list[bool], list[bool]]:
        pairs = list(zip(given.best(norm, "oracle"), given.best(norm, "no prior"), strict=True))
        improved = [best > other and best >= CHANCE for best, other in pairs]
        return improved, [
            better and best < given.reading.threshold for better, (best, _) in zip(improved, pairs, strict=True)
        ]

    improved, holds = partial(FREE)
    with_it, without = given.best(FREE, "oracle"), given.best(FREE, "no prior")
    return Claim(
        "The oracle without norm control improves, but does not generalise fully.",
        (
            f"The best accuracy of a run is at least {CHANCE:.0%} and above that of the same seed without a prior, and "
            f"below {given.reading.threshold:.0%}.",
            SHARES,
        ),
        sentences(
            f"best {given.reading.accuracy} is {across(with_it, '.1%')} with the oracle, {across(without, '.1%')} "
            "without a prior",
            f"it is above chance and that of the same seed without a prior in {so_many(sum(improved), len(improved))}",
            f"it is also below {given.reading.threshold:.0%} in {so_many(sum(holds), len(holds))}",
        ),
        verdict_of(holds),
        arms=tuple(name_of(norm, prior) for norm in (FREE, CONSTANT[FREE]) for prior in ("oracle", "no prior")),
        readings={"with constant distractors": verdict_of(partial(CONSTANT[FREE])[1])},
    )


def _only_both(given: Factorial) -> Claim:
    def alone(control: str, free: str) -> list[bool]:
        both = given.perfect(control, "oracle")
        others = [given.perfect(*each) for each in ((control, "no prior"), (free, "oracle"), (free, "no prior"))]
        return [perfect and not any(rest) for perfect, *rest in zip(both, *others, strict=True)]

    holds = alone(DECAY, FREE)
    cells = [(norm, prior) for norm in (DECAY, FREE) for prior in ("oracle", "no prior")]
    counts = (f"{name_of(*each)}: {so_many(sum(given.perfect(*each)), len(holds))} perfect." for each in cells)
    return Claim(
        "Generalisation is perfect only with both, norm control and the oracle.",
        (
            f"A seed reaches {given.reading.threshold:.0%} with weight decay and the oracle, and with neither and with "
            "one of them alone it does not.",
            SHARES,
        ),
        "\n".join([f"This holds with {so_many(sum(holds), len(holds), 'seed')}.", *counts]),
        verdict_of(holds),
        arms=tuple(name_of(*each) for each in cells),
        readings={
            "the MLP held in place of weight decay": verdict_of(alone(HELD, FREE)),
            "with constant distractors": verdict_of(alone(CONSTANT[DECAY], CONSTANT[FREE])),
        },
    )


def _without_their_norms(given: Factorial) -> Claim:
    free, held = given.best(HELD, "oracle"), given.best(QK, "oracle")
    least = given.reading.threshold
    pairs = [kept >= least for best, kept in zip(free, held, strict=True) if best >= least]
    masses = {
        prior: [float(curves["informative_mass_mean"].iloc[-1]) for curves in given.tables(QK, prior)]
        for prior in ("oracle", "no prior")
    }
    return Claim(
        "The oracle does not act through the norms of W_Q and W_K: with these held small, it generalises too.",
        (
            f"A seed reaches {least:.0%} with the QK penalty. Counted are the seeds that reach it with the MLP held "
            "and the oracle alone.",
            SHARES,
        ),
        sentences(
            f"without the penalty {least:.0%} was reached with {so_many(len(pairs), len(free), 'seed')}",
            f"with the penalty it was reached with {so_many(sum(pairs), len(pairs), 'seed', 'of these')}" * bool(pairs),
            f"best {given.reading.accuracy} is {across(free, '.1%')} without it, {across(held, '.1%')} with it",
            "with the penalty the informative positions get a share of "
            f"{across(masses['oracle'], '.2f')} of attention at the end with the oracle, and "
            f"{across(masses['no prior'], '.2f')} without a prior, where uniform attention would give them 0.33",
        ),
        verdict_of(pairs),
        "a control",
        arms=tuple(name_of(norm, prior) for norm, prior in ((HELD, "oracle"), (QK, "oracle"), (QK, "no prior"))),
        readings={"of all seeds": verdict_of([kept >= least for kept in held])},
    )

"""Figure 4: the lottery ticket, its halves and its controls, against fresh weights with a prior."""

from collections.abc import Mapping
from dataclasses import replace

import plotly.graph_objects as go

from bayesticket.analysis import (
    Times,
    find_ticket,
    random_ticket,
    ratio_of_medians,
    same_norm,
    ticket_config,
)
from bayesticket.interventions import KLPrior
from bayesticket.paper.figure import (
    STRENGTH,
    THRESHOLD,
    Claim,
    PaperFigure,
    Scale,
    Verdict,
    arm,
    arm_names,
    at_both_thresholds,
    baseline,
)
from bayesticket.paper.times import (
    BANDS,
    DOTS,
    EARLIER,
    SIGNIFICANT,
    compared,
    earlier,
    plot_accuracy,
    plot_times,
    shares,
    times_of,
)
from bayesticket.runs import TrainConfig
from bayesticket.sweeps import Configs, Runs

SPARSITY = 0.6
"""The fraction of weights that is removed, Minegishi et al.'s default."""
FRESH = 100
"""Fresh weights are those of seed + this; the split stays."""
MATCHES = 1.25
"""Two arms match when the ratio of their medians is surely no larger."""
DENSE, LOTTERY, TRANSFER, BAYES = "dense", "lottery ticket", "lottery ticket, fresh weights", "Bayesian ticket"
ROUTING, REPRESENTATION = "routing ticket alone", "representation ticket alone"
RANDOM, NORM = "random mask", "dense, of the ticket's norm"


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """The dense runs in which the tickets are found."""
    return {DENSE: baseline(scale, "constant")}


def then(scale: Scale, runs: Runs) -> Configs:
    """What is trained once the dense runs are: from their tickets, and from fresh weights."""
    configs: dict[tuple[str, int], TrainConfig] = {}
    for seed in range(scale.seeds):
        run = runs.run(DENSE, seed)
        ticket = find_ticket(run, SPARSITY)
        plain, fresh = replace(arm(scale, distractors="constant"), seed=seed), FRESH + seed
        prior = replace(arm(scale, KLPrior(strength=STRENGTH), distractors="constant"), seed=seed, init_seed=fresh)
        configs |= {
            (LOTTERY, seed): ticket_config(plain, ticket),
            (TRANSFER, seed): ticket_config(plain, ticket, init_seed=fresh),
            (BAYES, seed): prior,
            (ROUTING, seed): ticket_config(plain, ticket.routing),
            (REPRESENTATION, seed): ticket_config(plain, ticket.representation),
            (RANDOM, seed): ticket_config(plain, random_ticket(ticket, seed)),
            (NORM, seed): replace(plain, model=same_norm(run, ticket)),
        }
    return configs


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Grokking times by arm, and accuracy through training."""
    names = arm_names(runs)
    shown = [name for name in (DENSE, LOTTERY, TRANSFER, BAYES, RANDOM) if name in names]
    return {
        DOTS: plot_times(times_of(runs, THRESHOLD)),
        BANDS: plot_accuracy(runs, shown),
    }


def judge_at(runs: Runs, threshold: float) -> list[Claim]:
    """Whether the Bayesian ticket matches the lottery ticket, what the halves do, and whether it is a ticket at all."""
    times = times_of(runs, threshold)
    more_than = "The lottery ticket is more than"
    return [
        _matches("The Bayesian ticket matches or outperforms the lottery ticket on fresh weights.", times, TRANSFER),
        _matches("It matches or outperforms the lottery ticket on the weights it was found with.", times, LOTTERY),
        _dominates(times),
        _beats("On fresh weights the lottery ticket groks earlier than the dense model.", times, TRANSFER, DENSE,
               "Minegishi et al., after the paper"),
        _beats(f"{more_than} sparsity: it groks earlier than a random mask.", times, LOTTERY, RANDOM),
        _beats(f"{more_than} a smaller norm: it groks earlier than dense weights of its norm.", times, LOTTERY, NORM),
        _beats("Sparsity alone helps: a random mask groks earlier than the dense model.", times, RANDOM, DENSE),
        _beats("A smaller norm alone helps: dense weights of that norm grok earlier than the dense model.", times,
               NORM, DENSE),
        _beats("The Bayesian ticket groks earlier than the dense model.", times, BAYES, DENSE),
    ]  # fmt: skip


MATCHING = (
    f"Two arms match if the 95% interval of the ratio of their median grokking times ends below {MATCHES:g}, with five "
    "seeds or more."
)
DECIDED_BY_MATCH = (
    f"If they match, or the Bayesian ticket is earlier by a log-rank test with p < {SIGNIFICANT:g}, the claim is "
    "reproduced. If it is later by that test, the claim is partly reproduced where they match, and else not "
    "reproduced. All else is undecided."
)
"""The rules of `_matches`, in words."""


def _matches(said: str, times: Mapping[str, Times], other: str) -> Claim:
    ratio = ratio_of_medians(times[BAYES], times[other])
    surely = min(len(times[BAYES]), len(times[other])) >= 5 and ratio.high is not None and ratio.high <= MATCHES
    by_rank = earlier(times[BAYES], times[other])
    decided: Verdict = by_rank if not surely else "partly" if by_rank == "not reproduced" else "reproduced"
    return Claim(
        said,
        (f"{MATCHING} {DECIDED_BY_MATCH}",),
        f"{_against(times, BAYES, other)} The ratio of medians is {ratio}.",
        decided,
        arms=(BAYES, other),
    )


def _dominates(times: Mapping[str, Times]) -> Claim:
    helps, routing = (earlier(times[name], times[DENSE]) for name in (LOTTERY, ROUTING))
    between = earlier(times[ROUTING], times[REPRESENTATION])
    decided: Verdict = between if (helps, routing) == ("reproduced", "reproduced") else "undecided"
    if helps == "not reproduced" or (helps == "reproduced" and routing == "not reproduced"):
        decided = "not reproduced"
    arms = (LOTTERY, ROUTING, REPRESENTATION, DENSE)
    pairs = ((LOTTERY, DENSE), (ROUTING, DENSE), (REPRESENTATION, DENSE), (ROUTING, REPRESENTATION))
    return Claim(
        "The ticket is dominated by its routing half.",
        (
            f"By log-rank tests, p < {SIGNIFICANT:g} each. Reproduced: the whole ticket groks earlier than the dense "
            "model, the routing half alone does too, and it is earlier than the representation half alone. Not "
            "reproduced: the whole ticket or the routing half groks later than the dense model, or the routing half "
            "later than the other. All else is undecided: a ticket that does not help has no half that does.",
        ),
        "\n".join([shares(times, arms), *(compared(times, *pair) for pair in pairs)]),
        decided,
        arms=arms,
    )


def _beats(said: str, times: Mapping[str, Times], first: str, second: str, by: str = "a control") -> Claim:
    return Claim(
        said, (EARLIER,), _against(times, first, second), earlier(times[first], times[second]), by, arms=(first, second)
    )


def _against(times: Mapping[str, Times], first: str, second: str) -> str:
    return f"{shares(times, (first, second))}\n{compared(times, first, second)}"


FIGURE = PaperFigure(
    "fig4",
    "Figure 4: the lottery ticket against the Bayesian ticket",
    f"Constant distractors. The dense runs are those of Figure 1, after all epochs; {SPARSITY:.0%} of the weights of "
    "attention, MLP, embedding and unembedding are removed by magnitude, all matrices together, and the rest is "
    "trained again from the initial weights (lottery ticket), or from fresh ones. The routing ticket masks W_Q and "
    "W_K alone, the representation ticket the MLP alone. The Bayesian ticket is fresh weights, dense, with a KL prior "
    f"of strength {STRENGTH:g}. Controls: a random mask that removes as much of each matrix, and dense initial weights "
    "scaled to the norm that the ticket leaves.",
    arms,
    draw,
    at_both_thresholds(judge_at),
    then,
)

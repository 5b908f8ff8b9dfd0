"""Figure 4: the lottery ticket, its two halves and its controls, against fresh weights with a prior."""

from collections.abc import Mapping
from dataclasses import replace

import plotly.graph_objects as go

from bayesticket.analysis import find_ticket, random_ticket, same_norm, ticket_config
from bayesticket.interventions import FrozenAttention, KLPrior
from bayesticket.paper.arms import LAYOUTS, NOISY, PLAIN, STRENGTH, arm, baseline, with_prior
from bayesticket.paper.comparing import arm_of
from bayesticket.paper.figure import Claim, PaperFigure, Scale, arm_names
from bayesticket.paper.readings import HALF, Grokking, by_every_reading
from bayesticket.paper.tickets import (
    BAYES,
    BAYES_PRUNED,
    BOTH,
    DENSE,
    FROZEN,
    NORM,
    QK,
    RANDOM,
    REPRESENTATION,
    REPRESENTATION_PRUNED,
    ROUTING_MASK,
    SPARSITY,
    TAUGHT,
    TRANSFER,
    lottery,
    ticket_claims,
)
from bayesticket.paper.times import BANDS, DOTS, plot_accuracy, plot_times, times_of
from bayesticket.paper.transfer import fresh_model, with_mlp_of, with_routing_of
from bayesticket.runs import Run, TrainConfig
from bayesticket.sweeps import Configs, Runs

SPARSITIES = (0.4, SPARSITY, 0.8)
"""The fractions of weights that are removed; the middle one is Minegishi et al.'s default."""
FRESH = 100
"""Fresh weights are those of seed + this; the split stays."""


def arms(scale: Scale) -> Mapping[str, TrainConfig]:
    """The runs in which tickets are found: without a prior, and with random distractors with one."""
    return {
        arm_of(NOISY, DENSE): with_prior(scale, "random"),
        arm_of(PLAIN, DENSE): baseline(scale, "constant"),
    }


def then(scale: Scale, runs: Runs) -> Configs:
    """What is trained once those are: from their tickets, and from fresh weights."""
    configs: dict[tuple[str, int], TrainConfig] = {}
    for seed in range(scale.seeds):
        for layout, distractors in LAYOUTS.items():
            run = runs.run(arm_of(layout, DENSE), seed)
            plain = replace(arm(scale, distractors=distractors), seed=seed)
            made = shared_arms(plain, run, FRESH + seed)
            if layout == PLAIN:
                made |= more_arms(plain, run, FRESH + seed)
            configs |= {(arm_of(layout, name), seed): config for name, config in made.items()}
    return configs


def shared_arms(plain: TrainConfig, run: Run, fresh: int) -> dict[str, TrainConfig]:
    """The arms of both layouts: the winning ticket, both halves, and the Bayesian ticket with oracle and teacher."""
    ticket, anew = find_ticket(run, SPARSITY), replace(plain, init_seed=fresh)
    model = fresh_model(run, fresh)
    frozen = FrozenAttention(run.model)
    return {
        lottery(SPARSITY): ticket_config(plain, ticket),
        TRANSFER: ticket_config(plain, ticket, init_seed=fresh),
        FROZEN: replace(anew, intervention=frozen),
        TAUGHT: replace(anew, intervention=KLPrior(run.model, strength=STRENGTH)),
        QK: replace(plain, model=with_routing_of(model, run.model)),
        REPRESENTATION: replace(plain, model=with_mlp_of(model, run.model)),
        BOTH: replace(plain, model=with_mlp_of(model, run.model), intervention=frozen),
        BAYES: replace(anew, intervention=KLPrior(strength=STRENGTH)),
    }


def more_arms(plain: TrainConfig, run: Run, fresh: int) -> dict[str, TrainConfig]:
    """The arms of the layout in which runs grok without help: sparsities, masks of halves, and controls."""
    ticket = find_ticket(run, SPARSITY)
    pruned = ticket_config(plain, ticket, init_seed=fresh)
    return {
        **{
            lottery(sparsity): ticket_config(plain, find_ticket(run, sparsity))
            for sparsity in SPARSITIES
            if sparsity != SPARSITY
        },
        ROUTING_MASK: ticket_config(plain, ticket.routing),
        REPRESENTATION_PRUNED: ticket_config(plain, ticket.representation),
        BAYES_PRUNED: replace(pruned, intervention=KLPrior(strength=STRENGTH) + pruned.intervention),
        RANDOM: ticket_config(plain, random_ticket(ticket, plain.seed)),
        NORM: replace(plain, model=same_norm(run, ticket)),
    }


def draw(runs: Runs) -> Mapping[str, go.Figure]:
    """Grokking times by arm, and accuracy through training."""
    names = arm_names(runs)
    pictures = {DOTS: plot_times(times_of(runs))}
    for layout in LAYOUTS:
        wanted = (arm_of(layout, name) for name in (DENSE, lottery(SPARSITY), TRANSFER, FROZEN, TAUGHT, BOTH, BAYES))
        pictures[f"{BANDS[:-1]} ({layout})."] = plot_accuracy(runs, [name for name in wanted if name in names])
    return pictures


def judge_at(runs: Runs, reading: Grokking) -> list[Claim]:
    """Whether the Bayesian ticket matches the lottery ticket, and what its halves do, in each layout."""
    times = times_of(runs, reading)
    return [claim for layout in LAYOUTS for claim in ticket_claims(times, layout)]


def judge(runs: Runs) -> list[Claim]:
    """The claims by every reading, and by the time at which half is answered, which changes no verdict."""
    return [
        replace(
            claim,
            measured=f"{claim.measured}\nBy {HALF}: {half.verdict}.\n{half.measured}",
            readings={**claim.readings, f"by {HALF}": half.verdict},
        )
        for claim, half in zip(by_every_reading(judge_at)(runs), judge_at(runs, HALF), strict=True)
    ]


FIGURE = PaperFigure(
    "fig4",
    "Figure 4: the lottery ticket against the Bayesian ticket",
    "Tickets are found in dense runs: with constant distractors in those of Figure 1, after all epochs; with random "
    f"ones, where none groks without help, in those with a prior of strength {STRENGTH:g}. Of attention, MLP, "
    "embedding and unembedding a fraction of the weights is removed by magnitude, all matrices together, and the rest "
    "is trained again from the initial weights (winning ticket), or from fresh ones. The routing ticket is the "
    "attention of the dense run, given to fresh weights: frozen, as a teacher (a KL prior toward it), and as W_Q and "
    "W_K. The representation ticket is the weights of its MLP, or their mask. The Bayesian ticket is fresh weights, "
    f"dense, with a KL prior of strength {STRENGTH:g} toward the oracle, or toward the dense run's attention.",
    arms,
    draw,
    judge,
    then,
    finds_in=tuple(arm_of(layout, DENSE) for layout in LAYOUTS),
    notes=(
        "The oracle is knowledge that the lottery ticket lacks; an attention that was learned without a prior, with "
        "constant distractors, is not. With random distractors the dense runs had the oracle, so that what is taken "
        "from them carries it: that layout is a control. "
        "W_Q and W_K are moved without the embeddings that they read, so that on fresh ones they give other scores.",
        f"With constant distractors {', '.join(f'{sparsity:.0%}' for sparsity in SPARSITIES)} of the weights are "
        f"removed, with random ones {SPARSITY:.0%}. Controls: a random mask that removes as much of each matrix, and "
        "dense initial weights scaled to the norm that the ticket leaves.",
        "Pruned models may rise early and then stay below the threshold. Once the runs had shown that, the time at "
        f"which half of the unseen examples are answered ({HALF}) was added as a reading; no verdict counts it.",
    ),
)

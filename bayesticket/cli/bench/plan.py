"""The benchmark: what it measures, in the order of its table. Nothing fails here; a target is met or not."""

import functools
from collections.abc import Callable

import torch
from tqdm import tqdm

from bayesticket.cli.bench.contention import two_threads
from bayesticket.cli.bench.growth import growth_in_examples, growth_in_heads, growth_in_positions
from bayesticket.cli.bench.steps import (
    against_plain_loop,
    against_products,
    cost_of_answers,
    cost_of_intervention,
    cost_of_measure,
    cost_of_recording,
    further_measures,
)
from bayesticket.cli.bench.table import Measurement, format_table
from bayesticket.cli.bench.timing import FULL, QUICK, Effort
from bayesticket.cli.bench.whole_runs import cost_of_sweep, memory_of_a_run, side_by_side
from bayesticket.interventions import KLPrior, NormMatch, TicketMask
from bayesticket.model import build_model, is_matrix, is_mlp
from bayesticket.runs import keep_freed_memory
from bayesticket.seeding import seeded_generator
from bayesticket.tasks import ModularAddition
from bayesticket.threads import torch_threads


def main(quick: bool = False) -> None:
    """Measures how fast training is, and prints a table; two cores take some three minutes.

    Args:
        quick: Only show that every row can be measured.
    """
    effort = QUICK if quick else FULL
    table = format_table(bench(effort))
    print(f"torch {torch.__version__}, threads: {effort.threads}. The rows p = 113, T = 5 (random) and 1 head compare")
    print(f"the default with itself: their distance from 1 is the noise of all others.\n\n{table}")


def bench(effort: Effort) -> list[Measurement]:
    """Measures every row; with full effort, that takes some three minutes."""
    measurements = plan(effort)
    with torch_threads(effort.threads):
        keep_freed_memory()
        return [measurement() for measurement in tqdm(measurements, unit="row", disable=None, dynamic_ncols=True)]


def plan(effort: Effort) -> list[Callable[[], Measurement]]:
    """What to measure, in the order of the table."""
    masks = {
        name: torch.rand(parameter.shape, generator=seeded_generator(0, name)) < 0.5
        for name, parameter in build_model(ModularAddition(p=effort.p)).named_parameters()
        if is_mlp(name) and is_matrix(name)
    }
    interventions = (KLPrior(strength=1.0), NormMatch(radius=30.0), TicketMask(masks))
    return [
        functools.partial(against_plain_loop, effort),
        functools.partial(against_products, effort),
        functools.partial(cost_of_answers, effort),
        functools.partial(cost_of_recording, effort),
        *(functools.partial(cost_of_intervention, effort, one) for one in interventions),
        functools.partial(side_by_side, effort),
        functools.partial(cost_of_sweep, effort),
        functools.partial(memory_of_a_run, effort),
        *(functools.partial(growth_in_examples, effort, p) for p in (59, 113, 227)),
        *(
            functools.partial(growth_in_positions, effort, n_positions, distractors)
            for distractors in ("random", "constant")
            for n_positions in (5, 17, 65)
        ),
        *(functools.partial(growth_in_heads, effort, n_heads) for n_heads in (1, 2, 4)),
        *(functools.partial(cost_of_measure, effort, kind) for kind in further_measures()),
        *(functools.partial(two_threads, effort, p, busy=busy) for busy in (False, True) for p in (23, 113)),
    ]

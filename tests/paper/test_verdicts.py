"""The paper's figures: what is run is at the paper's scale, and verdicts follow the rules whatever the data."""

import numpy as np
import pytest
from stories import arms_of, runs_of, story, verdicts

import bayesticket as bt
from bayesticket.analysis import Estimate
from bayesticket.paper import NAMES, controls, fig1, fig2, fig3, fig4, fig5, find_figure
from bayesticket.paper.figure import (
    Scale,
    verdict_of_share,
)
from bayesticket.paper.words import across
from bayesticket.specs import spec_id
from bayesticket.sweeps import Runs

# What is run ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("field", "least"), [("seeds", 1), ("epochs", 1), ("p", 3), ("record_every", 1)])
def test_a_scale_has_at_least_what_a_run_needs(field, least):
    assert getattr(Scale(**{field: least}), field) == least
    with pytest.raises(bt.BayesticketError, match=rf"^{field}: got {least - 1}; accepted: .*{least}"):
        Scale(**{field: least - 1})


def test_figures_share_their_runs_and_are_at_the_papers_scale():
    scale = Scale()
    assert (scale.seeds, scale.epochs, scale.p) == (5, 10_000, 113)
    ids = {name: {spec_id(c) for c in find_figure(name).configs(scale).values()} for name in NAMES}
    assert ids["fig1"] <= ids["fig5"]
    assert ids["fig1"] < ids["fig3"]
    assert ids["fig5"] < ids["fig3"]
    assert ids["fig4"] < ids["fig1"]
    for name in NAMES:
        for (arm, seed), config in find_figure(name).configs(scale).items():
            task = config.task
            assert isinstance(task, bt.ModularAddition)
            assert (task.p, config.epochs, config.seed) == (113, 10_000, seed), arm
            assert isinstance(config.optimizer, bt.SGD if "SGD" in arm else bt.AdamW)
            assert config.optimizer.weight_decay == 1.0 or "SGD" in arm or arm.startswith("none ×")


def test_the_strengths_span_two_decades_and_more():
    assert fig3.STRENGTHS[-1] / fig3.STRENGTHS[0] >= 100
    named = fig3.arms(Scale())
    for layout in ("random", "constant"):
        for strength in fig3.STRENGTHS:
            config = named[fig3.strength_arm(f"{layout} distractors", strength)]
            assert config.task.distractors == layout
            assert config.intervention == bt.KLPrior(strength=strength) + None


def test_the_radius_is_that_of_grokked_baselines():
    name = fig2.name_of("weight decay", "no prior")
    norms = lambda value: lambda epochs: np.where(epochs >= 4000, value, 50.0)  # noqa: E731
    grokked = [story(grokked=4000, mlp_norm=norms(radius)) for radius in (18.0, 19.04, 23.0)]
    assert fig2.radius_of(runs_of({name: [*grokked, story(mlp_norm=norms(90.0))]})) == 19.0
    assert fig2.radius_of(runs_of({name: [story(mlp_norm=norms(21.0))]})) == 21.0, "where none groks, where they end"


# Verdicts ---------------------------------------------------------------------------------------------------------


def test_shares():
    assert [verdict_of_share(n, 4) for n in (4, 3, 2, 1, 0)] == [
        "reproduced", "partly", "partly", "not reproduced", "not reproduced",
    ]  # fmt: skip
    assert verdict_of_share(2, 2) == "undecided"
    assert across([None, 2.0, 4.0], ".1f") == "3.0 (from 2.0 to 4.0)"


def test_nothing_is_concluded_where_a_run_diverged():
    runs = arms_of(dict.fromkeys(controls.arms(Scale()), 2000))
    assert len(find_figure("controls").claims(runs)) == 3
    curves = runs.curves
    failed = curves.assign_coords(status=curves["status"].where(curves["seed"] != 1, "failed"))
    (claim,) = find_figure("controls").claims(Runs(failed))
    assert claim.verdict == "undecided"
    assert "no prior, seed 1, after" in claim.measured


def condensing(at):
    return lambda epochs: np.where(epochs >= at, 0.05, 1.0)


def judged_1(curves):
    """What Figure 1 says of runs that are all like this: condenses, waits, collapses, rises."""
    said = verdicts(fig1.judge(runs_of({name: [curves] * 3 for name in fig1.LAYOUTS})))
    assert said[:4] == said[4:]
    return said[:4]


def test_figure_1_tells_which_comes_first():
    assert judged_1(story(grokked=4000, kl_to_oracle=condensing(1000)))[:2] == ["reproduced"] * 2
    assert judged_1(story(grokked=4000, kl_to_oracle=condensing(4000)))[:2] == ["not reproduced"] * 2
    assert judged_1(story())[:2] == ["undecided"] * 2
    back_again = story(grokked=4000, kl_to_oracle=lambda e: np.where((e == 1000) | (e >= 4000), 0.05, 1.0))
    assert judged_1(back_again)[0] == "not reproduced", "that it was small once is not that attention has condensed"
    risen = story(kl_to_oracle=condensing(3000), test_accuracy=lambda e: np.select([e < 500, e < 4000], [0.01, 0.4], 1))
    assert judged_1(risen)[:2] == ["reproduced", "not reproduced"]


def test_figure_1_counts_from_the_first_divergence_and_says_how_much_earlier():
    """It has fallen to a tenth when it is a tenth, whatever it was at first."""
    tenth = lambda first: lambda epochs: np.where(epochs >= 1000, fig1.CONDENSED * first, first)  # noqa: E731
    for first in (10.0, 0.25):
        curves = story(grokked=4000, kl_to_oracle=tenth(first))
        (claim, *_) = fig1.judge(runs_of({name: [curves] * 3 for name in fig1.LAYOUTS}))
        assert claim.verdict == "reproduced"
        assert "before test accuracy rose in all 3 runs that reached 50%, 3,000 epochs earlier" in claim.measured


def test_figure_1_sees_the_gradient_spike_collapse_and_rise():
    def claims(factor, rises=10**9, first=0.01):
        gradient = lambda e: np.select(  # noqa: E731
            [e == 0, e < 300, e < rises], [first, 1.0, 1.0 / factor], 3.0 / factor
        )
        return judged_1(story(grokked=6000, attention_gradient=gradient, kl_to_oracle=condensing(rises)))

    assert claims(20)[2] == "reproduced"
    assert claims(20, first=0.5)[2] == "not reproduced", "no spike where it was as large before"
    assert claims(np.inf)[2] == "reproduced", "a gradient of nothing at all has collapsed"
    assert claims(5)[2] == "not reproduced"
    at_the_end = story(memorised=10_000, attention_gradient=lambda e: np.where(e < 5000, 1.0, 80.0))
    assert judged_1(at_the_end)[2] == "undecided", "nothing comes after"
    assert claims(20, rises=4000)[3] == "reproduced"
    assert claims(20)[3] == "not reproduced"


def factorial(best):
    """Arms of Figure 2 by what each reaches."""

    def table(value):
        return story(test_accuracy=lambda epochs: np.where(epochs > 5000, value, 0.01))

    return runs_of({name: [table(value)] * 3 for name, value in best.items()})


AS_CLAIMED = {
    "weight decay × no prior": 0.5, "weight decay × oracle": 1.0, "weight decay × adversarial": 0.01,
    "none × no prior": 0.02, "none × oracle": 0.6, "none × adversarial": 0.01,
    "norm matching × no prior": 0.4, "norm matching × oracle": 1.0, "norm matching × adversarial": 0.01,
    "norm matching and QK penalty × no prior": 0.4, "norm matching and QK penalty × oracle": 1.0,
}  # fmt: skip
REPRODUCED = ["reproduced"] * 6


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, REPRODUCED),
        ({"norm matching × adversarial": 0.3}, ["partly", *REPRODUCED[1:]]),
        ({"none × oracle": 1.0}, ["reproduced", "not reproduced", "reproduced", "partly", *REPRODUCED[4:]]),
        ({"none × oracle": 0.02}, ["reproduced", "not reproduced", *REPRODUCED[2:]]),
        ({"norm matching × oracle": 0.9}, ["reproduced", "reproduced", "partly", *REPRODUCED[3:5], "undecided"]),
        ({"weight decay × no prior": 1.0}, [*REPRODUCED[:4], "partly", "reproduced"]),
        ({"norm matching and QK penalty × oracle": 0.4}, [*REPRODUCED[:5], "not reproduced"]),
    ],
)
def test_figure_2_follows_the_factorial(changed, expected):
    runs = factorial(AS_CLAIMED | changed)
    assert verdicts(fig2.judge(runs)) == expected


def sweep_of(law):
    """Arms of Figure 3 with grokking times by strength."""
    times = {}
    for layout in fig3.LAYOUTS:
        times[fig3.strength_arm(layout, 0)] = None
        times |= {fig3.strength_arm(layout, strength): law(strength) for strength in fig3.STRENGTHS}
    return arms_of(times)


def test_figure_3_finds_a_law_that_is_there():
    claims = fig3.FIGURE.judge(sweep_of(lambda strength: 1000 + 60 / strength))
    assert verdicts(claims) == ["reproduced"] * 4
    flat = fig3.FIGURE.judge(sweep_of(lambda strength: 2000))
    assert verdicts(flat)[0] == "undecided"
    assert "reproduced" not in (verdicts(flat)[1], verdicts(flat)[3]), "no law at all is none in 1/strength"


def test_figure_3_does_not_decide_where_it_depends_on_the_threshold():
    runs = sweep_of(lambda strength: 1000 + 60 / strength)
    accuracy, fast = runs.curves["test_accuracy"], runs.curves["epoch"] >= 2000
    # At 95 % all grok then, whatever the strength.
    runs = Runs(runs.curves.assign(test_accuracy=accuracy.where((accuracy >= 0.95) | ~fast, 0.95)))
    assert fig3.judge_at(runs, 0.99)[1].verdict == "reproduced"
    assert fig3.judge_at(runs, 0.95)[1].verdict != "reproduced"
    claim = fig3.FIGURE.judge(runs)[1]
    assert claim.verdict == "undecided"
    assert "At 99%: reproduced.\n" in claim.measured


def test_figure_3_sees_a_prior_that_delays():
    rising = sweep_of(lambda strength: 1000 + 800 * strength)
    assert fig3.judge_at(rising, 0.99)[0].verdict == "not reproduced"


def test_the_controls_do_not_credit_structure_with_what_any_gradient_does():
    as_claimed = dict.fromkeys([controls.NONE, *controls.LIVE, *controls.FROZEN, controls.SGD_NONE])
    as_claimed |= {controls.ORACLE: 2000, "attention frozen at the oracle": 1000, controls.SGD_ORACLE: 3000}
    assert verdicts(controls.FIGURE.judge(arms_of(as_claimed))) == ["reproduced"] * 3
    as_fast = as_claimed | dict.fromkeys(controls.LIVE, 2000)
    assert verdicts(controls.FIGURE.judge(arms_of(as_fast)))[0] == "undecided"
    one_faster = as_claimed | {next(iter(controls.LIVE)): 500, controls.SGD_NONE: 500}
    assert verdicts(controls.FIGURE.judge(arms_of(one_faster))) == ["not reproduced", "reproduced", "not reproduced"]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.8, 1.2, "reproduced"),
        (0.3, 0.6, "not reproduced"),
        (-0.1, 0.2, "not reproduced"),
        (-0.1, 1.2, "undecided"),
        (-0.3, -0.1, "not reproduced"),
        (1.1, None, "not reproduced"),
        (0.9, None, "reproduced"),
        (None, 1.2, "undecided"),
    ],
)
def test_an_interval_decides_about_proportionality(low, high, expected):
    assert fig3.linear(Estimate(0.5, low, high)) == expected


def tickets(n_seeds=5, **epochs):
    """What Figure 4 says of arms by when they grok, a hundred epochs later with each seed."""
    times = {
        fig4.DENSE: 6000, fig4.LOTTERY: 4000, fig4.TRANSFER: 4500, fig4.BAYES: 2500, fig4.ROUTING: 4100,
        fig4.REPRESENTATION: 6000, fig4.RANDOM: None, fig4.NORM: 6000,
    }  # fmt: skip
    times |= {getattr(fig4, name): epoch for name, epoch in epochs.items()}
    seeds = range(n_seeds)
    runs = {
        name: [story(grokked=None if epoch is None else epoch + 100 * seed) for seed in seeds]
        for name, epoch in times.items()
    }
    return verdicts(fig4.FIGURE.judge(runs_of(runs)))


def test_figure_4_compares_grokking_times():
    assert tickets() == [*["reproduced"] * 6, "not reproduced", "undecided", "reproduced"]
    assert tickets(BAYES=7000)[:2] == ["not reproduced"] * 2
    assert tickets(BAYES=None)[0] == "not reproduced"
    assert tickets(n_seeds=2) == ["undecided"] * 9, "two seeds show nothing"
    assert tickets(BAYES=4000, LOTTERY=3990)[1] == "reproduced", "as early is a match"
    assert tickets(BAYES=4600, LOTTERY=4000)[1] == "partly", "surely later, and still within a quarter"


def test_figure_4_credits_no_half_of_a_ticket_that_does_not_help():
    assert tickets(LOTTERY=8000)[2] == "not reproduced"
    assert tickets(LOTTERY=6000, ROUTING=6000)[2] == "undecided"
    assert tickets(ROUTING=7000)[2] == "not reproduced"
    assert tickets(REPRESENTATION=3000)[2] == "not reproduced"
    assert tickets(REPRESENTATION=4100)[2] == "undecided"


def bounds(measured, local, global_, loose, paper):
    forms = {"measured": measured, "local": local, "global": global_, "loose": loose, "paper": paper}
    links = {"measured/local": measured / local, "local/global": local / global_, "global/loose": global_ / loose}
    return {f"explaining_away[{name}]": value for name, value in (forms | links).items()}


def test_figure_5_sees_a_broken_link():
    arms = [str(name) for name in fig5.arms(Scale())]
    fine = story(**bounds(0.1, 0.2, 0.5, 4.0, 2.0))
    assert verdicts(fig5.judge(runs_of({name: [fine] * 3 for name in arms})))[:2] == ["reproduced"] * 2
    broken = story(**bounds(0.3, 0.2, 0.5, 4.0, 2.0))
    assert fig5.judge(runs_of({name: [fine, fine, broken] for name in arms}))[0].verdict == "not reproduced"
    beyond = story(**bounds(0.1, 0.2, 0.5, 4.0, 0.05))
    assert fig5.judge(runs_of({name: [beyond] * 3 for name in arms}))[1].verdict == "not reproduced"
    without = fine.drop(columns="explaining_away[paper]")
    assert len(fig5.judge(runs_of({name: [without] * 3 for name in arms}))) == 2, "what is not recorded is not judged"


@pytest.mark.parametrize(
    ("before", "after", "expected"), [(50, 500, "reproduced"), (500, 50, "not reproduced"), (2, 5, "not reproduced")]
)
def test_figure_5_asks_how_far_the_bound_is(before, after, expected):
    loose = lambda epochs: np.where(epochs <= 300, 0.1 * before, 0.1 * after)  # noqa: E731
    curves = story(**(bounds(0.1, 0.1, 0.1, 0.1, 2.0) | {"explaining_away[loose]": loose}))
    runs = runs_of({str(name): [curves] * 3 for name in fig5.arms(Scale())})
    assert fig5.judge(runs)[2].verdict == expected


def test_figure_5_counts_the_record_of_memorising_as_before_it():
    """The bound is 10 × at first, 50 × until the accuracy is just reached, at epoch 300, and 500 × after."""
    loose = lambda epochs: np.select([epochs == 0, epochs <= 300], [1.0, 5.0], 50.0)  # noqa: E731
    forms = bounds(0.1, 0.1, 0.1, 0.1, 2.0) | {"explaining_away[loose]": loose}
    curves = story(grokked=400, train_accuracy=lambda epochs: np.where(epochs >= 300, fig5.MEMORISED, 0.1), **forms)
    runs = runs_of({str(name): [curves] * 3 for name in fig5.arms(Scale())})
    measured = fig5.judge(runs)[2].measured
    assert "The bound is 50 times the gradient before memorising, and 500 times after" in measured


def test_sgd_says_nothing_where_it_does_not_memorise():
    runs = arms_of({**dict.fromkeys(controls.arms(Scale()), 2000), controls.SGD_NONE: None})
    assert verdicts(controls.FIGURE.judge(runs))[2] == "reproduced"
    accuracy = runs.curves["train_accuracy"].where(runs.curves["intervention"] != controls.SGD_NONE, 0.5)
    assert verdicts(controls.FIGURE.judge(Runs(runs.curves.assign(train_accuracy=accuracy))))[2] == "undecided"

"""The findings are computed: other results give other sentences, and results that are missing give none."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from stories import arms_of, runs_of, story
from test_pages import STILTED
from worlds import AS_CLAIMED, factorial, of_strengths, of_tickets, results_of, worlds_of

import bayesticket as bt
from bayesticket.paper import MODULES, controls
from bayesticket.paper.arms import LAYOUTS
from bayesticket.paper.factorial import DECAY, FREE, name_of
from bayesticket.paper.figure import curves_of
from bayesticket.paper.findings import MIRRORED, SUBJECTS, UNAIDED, findings, mirror_figure, with_mirrored
from bayesticket.paper.results import collect
from bayesticket.sweeps import Runs

FIGURE_OF = dict(zip(SUBJECTS, ("fig1", "fig3", "controls", "fig2", "fig4"), strict=True))
"""The figure that each finding is read off."""
MIRRORS, PRIOR, CONTROLS, FACTORIAL, TICKETS = SUBJECTS


def said(heading, runs):
    """What is said of a subject, given the runs of its figure."""
    return findings({FIGURE_OF[heading]: results_of(runs)})[heading]


def leaks(mirrored, unseen, share=0.3):
    """A run that answers so many of its mirrored and of its unseen test examples once it has memorised."""
    test = share * mirrored + (1 - share) * unseen
    return story(
        test_accuracy=lambda e: np.where(e >= 300, test, 0.01),
        unseen_accuracy=lambda e: np.where(e >= 300, unseen, 0.01),
    )


def of_layouts(life):
    return runs_of(dict.fromkeys(LAYOUTS, [life] * 5))


# What is said -----------------------------------------------------------------------------------------------------


def test_test_accuracy_that_comes_from_mirror_images_is_told_from_generalising():
    leak = said(MIRRORS, of_layouts(leaks(0.9, 0.01)))
    assert "test accuracy is 28% while unseen accuracy is 1.0%: the model answers 9" in leak
    assert "30% of all test examples" in leak
    assert "it has generalised nothing" in leak
    begun = said(MIRRORS, of_layouts(leaks(0.9, 0.4)))
    assert "unseen accuracy is 40.0%" in begun
    assert "generalised nothing" not in begun
    none = said(MIRRORS, of_layouts(leaks(0.5, 0.49)))
    assert "test accuracy is at most 0.3 percentage points above unseen accuracy" in none


def test_the_prior_is_compared_with_no_prior_by_counts_medians_and_a_test():
    helps = said(PRIOR, of_strengths(lambda strength: 1000 if strength else 9000))
    assert "all 5 runs grokked without a prior, at median epoch " in helps
    assert "all 5 runs grokked with the prior, at median epoch 1,0" in helps
    assert "log-rank p = 0.00" in helps
    never = worlds_of("fig3")[4]
    nothing = "none of 5 runs grokked without a prior, and none of 5 runs grokked with the prior; log-rank p = 1."
    assert said(PRIOR, never).endswith(nothing)


@pytest.mark.parametrize("figure", ["fig3", "controls", "fig5"])
def test_the_prior_is_found_in_each_figure_that_has_it(figure):
    assert list(findings({figure: results_of(worlds_of(figure)[0])})) == (
        [PRIOR, CONTROLS] if figure == "controls" else [PRIOR]
    )


def test_controls_are_listed_by_how_many_runs_grokked():
    as_claimed = said(CONTROLS, worlds_of("controls")[0])
    assert "all 5 runs grokked with the prior and with attention frozen on the operands; none of 5 runs" in as_claimed
    assert "what decides is where attention points" in as_claimed
    four = said(CONTROLS, worlds_of("controls")[0].sel(seed=[0, 1, 2, 3]))
    assert "all 4 runs grokked" in four
    assert "what decides" not in four, "nothing is concluded from fewer than five"
    all_do = said(CONTROLS, worlds_of("controls")[2])
    assert all_do.startswith("In the minimal model, with random distractors, all 5 runs grokked with the prior, ")
    assert "none" not in all_do
    assert "what decides" not in all_do
    one = {controls.NONE: None, controls.ORACLE: 2000, **dict.fromkeys((*controls.LIVE, *controls.FROZEN))}
    noise = "gradient noise of equal norm"
    some = said(CONTROLS, arms_of(one | {noise: 3000, controls.SGD_NONE: None, controls.SGD_ORACLE: None}))
    assert "grokked with the prior and with noise as large as the prior's gradient; none of 5" in some
    assert "what decides" not in some


def test_norm_and_attention_are_said_to_be_needed_together_only_where_neither_suffices():
    both = said(FACTORIAL, factorial(AS_CLAIMED))
    assert "all 5 runs grokked with both weight decay and the prior; none of 5 runs with weight decay alone" in both
    assert both.endswith("so that it takes both.")
    one = said(FACTORIAL, factorial(AS_CLAIMED, AS_CLAIMED | {name_of(FREE, "oracle"): 1.0}))
    assert "; 2 of 5 runs with the prior alone; none of 5 runs with weight decay alone or with neither." in one
    fails = said(FACTORIAL, factorial(AS_CLAIMED, AS_CLAIMED | {name_of(DECAY, "oracle"): 0.9}))
    assert "3 of 5 runs grokked with both weight decay and the prior;" in fails
    assert "takes both" not in fails


def test_tickets_are_compared_by_medians():
    first = said(TICKETS, of_tickets())
    assert "the Bayesian ticket (fresh weights and the prior) grokked at median epoch 2,700" in first
    assert "at median epoch 4,200 on its own weights and at median epoch 4,700 on fresh ones" in first
    assert "attention of a trained model fresh weights grokked at median epoch 2,800" in first
    assert (
        "the dense model without either at median epoch 6,200. But half of the unseen examples were answered" in first
    )
    other = said(TICKETS, of_tickets(BAYES=None, TAUGHT=None))
    assert "grokked in none of 5 runs, and the winning ticket" in other


@pytest.mark.parametrize("n_seeds", [1, 2])
@pytest.mark.parametrize("heading", SUBJECTS)
def test_every_finding_reads_well_of_any_results(heading, n_seeds):
    for runs in worlds_of(FIGURE_OF[heading]):
        few = runs.sel(seed=runs.seeds[:n_seeds])
        for minimal, standard in ((runs, few), (few, runs)):
            given = {FIGURE_OF[heading]: results_of(minimal), f"{FIGURE_OF[heading]}-standard": results_of(standard)}
            text = findings(given)[heading]
            assert not STILTED.search(text), text
            assert text.startswith("In the minimal model, ")
            assert text.endswith(").")


# What has been run ------------------------------------------------------------------------------------------------


def test_what_was_not_run_is_left_out():
    everything = {name: results_of(worlds_of(name)[0]) for name in MODULES}
    assert list(findings(everything)) == list(SUBJECTS)
    for heading, figure in FIGURE_OF.items():
        rest = {name: each for name, each in everything.items() if name != figure}
        without = [heading] if heading != PRIOR else []  # the controls have its arms too
        assert list(findings(rest)) == [each for each in SUBJECTS if each not in without]
    assert findings({}) == {}
    assert mirror_figure({"fig2": everything["fig2"]}) is None


def test_both_models_are_told_apart():
    one, other = (results_of(runs) for runs in worlds_of("controls")[::2][:2])
    assert "(standard layer" not in findings({"controls": one})[CONTROLS]
    assert findings({"controls-standard": one})[CONTROLS].startswith("In a standard layer, with random distractors, ")
    both = findings({"controls": one, "controls-standard": other})[CONTROLS]
    assert both.endswith(" (standard layer: all 5 runs grokked in each case).")
    assert findings({"controls": one, "controls-standard": one})[CONTROLS].endswith(" (standard layer: the same).")


def test_nothing_is_found_in_runs_that_diverged_or_recorded_no_unseen_accuracy():
    runs = worlds_of("controls")[0]
    failed = runs.curves.assign_coords(status=runs.curves["status"].where(runs.curves["seed"] != 1, "failed"))
    unrecorded = runs.curves.assign(unseen_accuracy=runs.curves["unseen_accuracy"] * np.nan)
    assert [findings({"controls": results_of(Runs(curves))}) for curves in (failed, unrecorded)] == [{}, {}]


# Mirror images ----------------------------------------------------------------------------------------------------


def test_the_accuracy_on_mirrored_examples_is_that_of_the_model(tmp_path):
    task, options = bt.ModularAddition(p=7, distractors="constant"), {"epochs": 150, "record_every": 50}
    with ThreadPoolExecutor(1) as executor:
        runs = bt.sweep(task, {UNAIDED: None}, seeds=[0, 1], store=tmp_path, executor=executor, **options)
    mirrored, share = with_mirrored(collect(runs), UNAIDED)
    shares = []
    for seed, curves in curves_of(mirrored, UNAIDED).items():
        run = runs.run(UNAIDED, seed)
        test = run.config.split().test
        seen = ~test.unseen
        with torch.no_grad():
            right = run.model(test.tokens)[:, -1].argmax(-1) == test.targets
        assert curves[MIRRORED].iloc[-1] == pytest.approx(float(right[seen].float().mean()), abs=1e-6)
        shares.append(float(seen.float().mean()))
    assert curves[MIRRORED].iloc[-1] > curves["unseen_accuracy"].iloc[-1], "there is something to be told apart"
    assert share == pytest.approx(np.mean(shares))


def test_the_figure_shows_mirrored_unseen_and_all_test_examples_of_each_model():
    leak = results_of(of_layouts(leaks(0.9, 0.01)))
    caption, figure = mirror_figure({"fig1": leak, "fig1-standard": leak})
    assert "on the 30% of test examples whose mirror image is in training" in caption
    medians = [trace for trace in figure.data if trace.customdata is not None]
    assert [trace.name for trace in medians if trace.showlegend is not False] == [
        "b + a, where a + b is in training", "all test examples", "unseen test examples",
    ]  # fmt: skip
    assert len(medians) == 6
    heights = [trace.y[-1] for trace in medians[:3]]
    assert heights == [pytest.approx(0.9, abs=0.02), pytest.approx(0.277), pytest.approx(0.01)]

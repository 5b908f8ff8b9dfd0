"""The page about predicting: which runs are in the pool, what each measure needs, and what its tables say."""

import json
from dataclasses import replace

import numpy as np
import pytest
from stories import header_of, line, story
from worlds import results_of, worlds_of

import bayesticket as bt
import bayesticket.paper.report
from bayesticket.figures import Section, Table
from bayesticket.paper.pooling import HORIZON, needs, pooled
from bayesticket.paper.prediction import ALONE, HEADING, SETTINGS, TOGETHER, prediction_sections
from bayesticket.paper.report import write_report
from bayesticket.paper.results import SHIPPED, Results, names_in, read_results, write_results
from bayesticket.sweeps import RunSummary, assemble

KEPT = ["train_accuracy", "test_accuracy", "unseen_accuracy", "kl_to_oracle", "mlp_norm"]


def life(grokked, kl):
    """A run with few curves: its divergence is as told, and its norm falls the earlier the run groks."""
    norm = line((0, 40.0), (10_000 if grokked is None else grokked, 10.0))
    return story(grokked=grokked, kl_to_oracle=lambda epochs: np.full(len(epochs), kl), mlp_norm=norm)[KEPT]


def results_by_setting(outcomes, n_seeds=2):
    """Results of settings that differ in their learning rate, each with an outcome for each seed."""
    runs, headers = {}, {}
    for place, lives in enumerate(outcomes):
        for seed in range(n_seeds):
            curves = lives[seed % len(lives)]
            header = header_of(curves, seed=seed, lr=1e-3 * (place + 1))
            runs[f"arm {place}", seed], headers[f"arm {place}", seed] = RunSummary(header, curves), header
    return Results(assemble(runs), headers)


def outcomes(n):
    """So many settings that grok, with a small divergence, and as many that never do."""
    return [[life(1000 + 200 * k, 0.1 + 0.01 * k)] for k in range(n)] + [[life(None, 1.0 + 0.1 * k)] for k in range(n)]


@pytest.fixture(scope="module")
def sections():
    return prediction_sections([results_by_setting(outcomes(7))])


def rows_of(table, heading):
    """The rows below a heading, by what they are about."""
    starts = [*sorted(table.headings), len(table.rows)]
    at = next(place for place, name in table.headings.items() if name == heading)
    return {row[0]: row[1:] for row in table.rows[at : starts[starts.index(at) + 1]]}


# What the pages say -----------------------------------------------------------------------------------------------


def test_a_measure_that_separates_settings_is_told_from_the_first_epoch_and_not_within_a_setting(sections):
    table = sections[0].content
    assert isinstance(table, Table)
    needed, told, strongly, *aucs = rows_of(table, TOGETHER)["kl_to_oracle"]
    assert needed == "the oracle"
    assert aucs[0] == "0.00 [0.00, 0.41]"  # 1 − 0.025^(1/7): seven settings can show no more
    assert (told, strongly) == ("40, smaller", "too few settings")
    assert rows_of(table, TOGETHER)[ALONE][3] == "1.00 [0.59, 1.00]"
    within = rows_of(table, SETTINGS)
    assert within["kl_to_oracle"] == ["the oracle", "too few settings", "too few settings", *["–"] * 6]
    assert ALONE not in within
    assert rows_of(table, TOGETHER)["runs that grok, that never do"][3:] == ["14, 14"] * 3 + [
        "12, 14",
        "2, 14",
        "0, 14",
    ]


def test_a_measure_that_falls_earlier_where_runs_grok_earlier_tells_when(sections):
    table = sections[2].content
    assert isinstance(table, Table)
    assert rows_of(table, TOGETHER)["mlp_norm"][1].startswith("1.00")


def test_what_is_drawn_and_what_is_lacking_is_said(sections):
    assert [trace.name for trace in sections[1].content.data] == ["kl_to_oracle", "mlp_norm", ALONE]
    assert "28 different runs, of 14 settings in 1 layout, 14 grok and 14 do not" in sections[0].text[0]
    lacking = sections[3].text[0]
    assert (
        "recorded effective rank (none of them), Fourier Gini (none of them) and commutator defect (none of them)"
        in lacking
    )


def test_too_few_settings_of_either_kind_say_nothing():
    assert prediction_sections([]) == []
    assert prediction_sections([results_by_setting(outcomes(5))]) == []
    assert prediction_sections([results_by_setting(outcomes(7)[:7])]) == []


def test_the_report_has_what_predicts_grokking_if_there_is_something_to_say(tmp_path, monkeypatch):
    write_results(results_of(worlds_of("controls")[0].sel(seed=[0])), tmp_path, "controls")
    assert HEADING not in write_report(tmp_path, tmp_path / "none.html").read_text(encoding="utf-8")
    said = [Section("", ["This predicts it."])]
    monkeypatch.setattr(bayesticket.paper.report, "prediction_sections", lambda results: said)
    page = write_report(tmp_path, tmp_path / "some.html").read_text(encoding="utf-8")
    assert page.index(HEADING) < page.index("This predicts it.")


# Which runs -------------------------------------------------------------------------------------------------------


def test_the_pool_has_every_run_of_the_committed_results_once_or_says_why_not():
    names = names_in(SHIPPED)
    files = [json.loads((SHIPPED / f"{name}.json").read_text(encoding="utf-8")) for name in names]
    ids = {run for file in files for arm in file["runs"].values() for run in arm}
    pool = pooled(read_results(SHIPPED, name) for name in names)
    assert pool is not None
    assert len(pool.times) + sum(pool.left_out.values()) == len(ids)
    for place in range(0, len(pool.times), 10):
        reached = pool.curves[place]["unseen_accuracy"].loc[:HORIZON] >= 0.99
        assert bool(pool.times.reached[place]) == bool(reached.any())
        if reached.any():
            assert pool.times.epochs[place] == reached.idxmax()
    for setting in set(pool.settings.tolist()):
        of = pool.settings == setting
        assert len(set(pool.layouts[of].tolist())) == 1


def test_runs_that_nobody_can_judge_are_left_out_and_counted():
    never = life(None, 1.0)
    given = results_by_setting([[life(500, 0.1), never], [never.drop(columns="unseen_accuracy")], [never.loc[:4000]]])
    pool = pooled([given, given])
    assert pool is not None
    assert pool.times.reached.tolist() == [True, False]
    assert pool.times.epochs.tolist() == [500.0, 10_000.0]
    assert dict(pool.left_out) == {
        "recorded no unseen accuracy": 2,
        "ended before epoch 10,000 without having grokked": 2,
    }
    assert pool.share_of_others.tolist() == [0.0, 1.0]


def test_what_is_recorded_and_until_when_makes_no_other_setting():
    curves = life(None, 1.0)
    options = [{}, {"record_every": 5}, {"measures": [bt.EffectiveRank()]}, {"stop_after_grok": 9}, {"lr": 0.1}]
    headers = {(f"arm {n}", 0): header_of(curves, **each) for n, each in enumerate(options)}
    runs = assemble({key: RunSummary(header, curves) for key, header in headers.items()})
    pool = pooled([Results(runs, headers)])
    assert pool is not None
    assert len(set(pool.settings[:4].tolist())) == 1
    assert pool.settings[4] != pool.settings[0]
    assert len(set(pool.layouts.tolist())) == 1


# What a measure needs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "measure",
    [
        *(bt.Loss(), bt.Accuracy(), bt.MLPNorm(), bt.AttentionGradient(), bt.AttentionEntropy(), bt.ScoreVariance()),
        *(bt.EffectiveRank(), bt.ClassMargin(), bt.KLToOracle(), bt.InformativeMass(), bt.InformativeMass("least")),
        *(bt.InformativeMassByPosition(), bt.DistributedMass(), bt.SubspaceOverlap(), bt.PriorGradient()),
        bt.SeparabilityMargin(of="readings"),
    ],
    ids=lambda measure: measure.name,
)
def test_a_measure_needs_the_oracle_if_it_changes_with_the_informative_positions(measure):
    task = bt.ModularAddition(p=5, distractors="random")
    model, batch = bt.build_model(task, d_model=8, d_mlp=16, seed=0), task.split().train
    order = [1, 0, *range(2, batch.informative.shape[1])]
    other = replace(batch, informative=batch.informative[:, order])
    assert not other.informative.equal(batch.informative)
    one, two = (bt.measure(model, each, measure) for each in (batch, other))
    changes = any(one[name] != two[name] for name in one)
    assert {needs(measure.named("train")), *map(needs, one)} == {"the oracle" if changes else "training data"}

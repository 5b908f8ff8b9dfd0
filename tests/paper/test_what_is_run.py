"""The paper's figures: what is run is at the paper's scale, in both models, and shared between figures."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from stories import line, runs_of, story

import bayesticket as bt
from bayesticket.paper import (
    MODULES,
    NAMES,
    OF_BOTH_MODELS,
    autoregressive,
    equation9,
    fig2,
    fig6,
    fig10,
    find_figure,
    lost,
    practical,
)
from bayesticket.paper.arms import LAYOUTS, PLAIN
from bayesticket.paper.best import with_strength
from bayesticket.paper.comparing import arm_of
from bayesticket.paper.factorial import DECAY, FREE, HELD, OLD, name_of
from bayesticket.paper.figure import Scale
from bayesticket.paper.strengths import STRENGTHS, strength_arm
from bayesticket.paper.transfer import with_mlp_of, with_routing_of
from bayesticket.specs import spec_id
from bayesticket.sweeps import sweep_configs

APPENDIX = ("fig6", "fig7", "fig8", "fig9", "fig10", "fig11", "practical")
MAIN_TEXT = [name for name in OF_BOTH_MODELS if name not in (*APPENDIX, "autoregressive")]


@pytest.mark.parametrize(("field", "least"), [("seeds", 1), ("epochs", 1), ("p", 3), ("record_every", 1)])
def test_a_scale_has_at_least_what_a_run_needs(field, least):
    assert getattr(Scale(**{field: least}), field) == least
    with pytest.raises(bt.BayesticketError, match=rf"^{field}: got {least - 1}; accepted: .*{least}"):
        Scale(**{field: least - 1})


def ids_of(name):
    return {spec_id(config) for config in find_figure(name).configs(Scale()).values()}


@pytest.mark.parametrize("model", ["", "-standard"])
def test_figures_share_their_runs(model):
    ids = {name: ids_of(name + model) for name in OF_BOTH_MODELS}
    assert ids["fig1"] <= ids["fig5"] == ids["conditions"] < ids["fig3"]
    assert ids["fig4"] < ids["fig5"]
    for name in ("fig2", "controls", "decay"):
        assert ids[name] & ids["fig3"], name
    small = find_figure(f"practical{model}").configs(Scale())[arm_of(PLAIN, practical.SMALL), 0]
    assert spec_id(small) in ids["fig9"]


def test_every_figure_exists_for_both_models_and_they_differ_in_nothing_else():
    assert [name for name in NAMES if not name.endswith("-standard")] == list(MODULES)
    for name in OF_BOTH_MODELS:
        minimal, standard = (find_figure(each).configs(Scale(seeds=1)) for each in (name, f"{name}-standard"))
        assert minimal.keys() == standard.keys()
        for key, config in minimal.items():
            assert not config.model.has_residual
            assert standard[key].model.has_residual
            assert replace(standard[key], model=config.model) == config
        assert not ids_of(name) & ids_of(f"{name}-standard")


def test_what_is_run_is_at_the_papers_scale():
    scale = Scale()
    assert (scale.seeds, scale.epochs, scale.p) == (5, 10_000, 113)
    for name in MAIN_TEXT:
        for (arm, seed), config in find_figure(name).configs(scale).items():
            task = config.task
            assert isinstance(task, bt.ModularAddition)
            assert (task.p, config.seed) == (113, seed), arm
            if name == "decay":
                continue
            assert config.epochs == 10_000
            assert isinstance(config.optimizer, bt.SGD if "SGD" in arm else bt.AdamW)
            assert config.optimizer.weight_decay == 1.0 or "SGD" in arm or arm.startswith(FREE)


def test_the_figures_of_the_appendix_differ_from_that_in_what_they_are_about():
    for name in APPENDIX:
        for (arm, seed), config in find_figure(name).configs(Scale()).items():
            assert config.seed == seed
            is_addition = isinstance(config.task, bt.ModularAddition) and config.task.p == 113
            assert is_addition == (name != "fig10" or arm.endswith(f"({fig10.ADDITION})")), arm
            shorter = {"batches of 512": 1250, "batches of 1,024": 2500, "early teacher": 500}
            epochs = [n for start, n in shorter.items() if arm.startswith(start)] or [10_000]
            assert config.epochs == epochs[0], arm
            if name not in ("fig8", "fig9"):
                others = arm.startswith("small") or "two heads" in arm
                assert (config.model == bt.Architecture()) == (not others), arm


def test_next_tokens_are_predicted_on_the_sequences_whose_parity_is_asked_for_alone():
    for seed in (0, 1):
        tokens, alone = (
            replace(autoregressive.arms(Scale())[name], seed=seed).split()
            for name in (autoregressive.BARE, autoregressive.BARE_ALONE)
        )
        for one, other in ((tokens.train, alone.train), (tokens.test, alone.test)):
            assert torch.equal(one.tokens, other.tokens)
            assert torch.equal(one.targets[:, -1], other.targets)
            assert torch.equal(one.informative[:, -1], other.informative)
            assert one.answerable == (autoregressive.N,)
            assert len(one) == 2 * autoregressive.BATCH
    for config in autoregressive.arms(Scale()).values():
        assert (config.batch_size, config.epochs) == (autoregressive.BATCH, autoregressive.EPOCHS)


def test_each_prior_of_figure_6_has_its_strengths_and_each_teacher_is_of_another_seed(tmp_path):
    scale = Scale(seeds=2, epochs=2, p=5, record_every=1)
    runs = sweep_configs(fig6.FIGURE.configs(scale), store=tmp_path, workers=1, progress=False)
    students = fig6.FIGURE.further(scale, runs)
    named = {*fig6.FIGURE.arms(scale), *(arm for arm, _ in students)}
    n_arms = 1 + sum(len(strengths) for _, strengths in fig6.PRIORS.values()) + 3 * len(fig6.TOWARD)
    assert len(named) == len(LAYOUTS) * n_arms
    assert {config.epochs for (arm, _), config in students.items() if "untrained" in arm or "shuffled" in arm} == {1}
    arm = arm_of(PLAIN, with_strength(fig6.TEACHER, 1.0))
    for seed in runs.seeds:
        (prior,) = students[arm, seed].intervention.parts
        other = runs.run(arm_of(PLAIN, fig6.NONE), 1 - seed)
        assert torch.equal(prior.target.W_Q, other.model.W_Q)
        assert not torch.equal(prior.target.W_Q, runs.run(arm_of(PLAIN, fig6.NONE), seed).model.W_Q)


def test_the_specification_curve_has_every_setting_and_the_runs_of_other_figures_where_they_are_its_own():
    assert len(set(lost.SETTINGS)) == 24
    named = find_figure("specification").configs(Scale())
    assert len(named) == 24 * 5 * 3
    others = set().union(*(ids_of(name) for name in NAMES if name != "specification"))
    for (name, seed), config in named.items():
        arm, _, said = name.partition(": ")
        (setting,) = (each for each in lost.SETTINGS if str(each) == said)
        assert (config.seed, config.optimizer.lr, config.task.distractors) == (seed, setting.lr, said.split()[2])
        assert config.model.has_residual == ("no residual path" not in said)
        assert config.model.biases == ("no biases" not in said)
        assert config.optimizer.weight_decay == (0.0 if arm == lost.FREE else 1.0)
        alone = arm == lost.FREE and setting.is_random  # with one distractor, where Figure 2 has two
        assert (spec_id(config) in others) == (setting.is_ours and not alone), name


def test_the_variants_of_equation_9_lack_what_they_say_and_begin_alike():
    task = bt.ModularAddition(p=70)
    built = bt.build_model(task, seed=3)
    tokens = task.split(seed=0).train.tokens[:9]
    _, cache = built.run_with_cache(tokens)
    for name, variant in equation9.VARIANTS.items():
        model = variant(task, 3)
        before = {each: parameter.clone() for each, parameter in model.named_parameters()}
        trained = bt.train(task, bt.KLPrior(), model=model, epochs=12, progress=False).model
        fixed = {each for each, parameter in trained.named_parameters() if bt.specs.same(parameter, before[each])}
        all_of_them = name == "without all of these"
        assert ("b_in" in str(fixed)) == (name == "without biases" or all_of_them)
        assert ("W_O" in str(fixed)) == (name == "without W_O" or all_of_them)
        assert ("W_U" in str(fixed)) == (name == "without unembedding" or all_of_them)
        if "W_U" in str(fixed):
            assert bt.specs.same(trained.W_U.detach(), torch.eye(70))
            used = (trained.W_E, trained.W_pos, trained.blocks[0].attn.W_O)
            assert not any(weights[..., 64:].any() for weights in used), "the stream is no wider than it was"
        _, own = model.run_with_cache(tokens)
        torch.testing.assert_close(own["pattern", 0], cache["pattern", 0])
        torch.testing.assert_close(own["z", 0], cache["z", 0])


def test_the_strengths_are_nine_over_three_decades_in_both_layouts():
    assert len(STRENGTHS) == 9
    assert STRENGTHS[-1] / STRENGTHS[0] >= 1000
    named = find_figure("fig3").arms(Scale())
    for layout, distractors in LAYOUTS.items():
        for strength in STRENGTHS:
            config = named[strength_arm(layout, strength)]
            assert config.task.distractors == distractors
            assert config.intervention == bt.KLPrior(strength=strength) + None


def grokking_at(norm, whole=40.0, *, grokked=4000):
    return story(
        grokked=grokked, mlp_norm=line((0, 50), (3980, 50), (4000, norm)), **{"weight_norms[unembed.W_U]": whole}
    )


def test_the_radius_is_the_largest_norm_at_which_runs_under_weight_decay_grok():
    none, oracle = name_of(DECAY, "no prior"), name_of(DECAY, "oracle")
    runs = runs_of({none: [story(mlp_norm=90.0)] * 3, oracle: [grokking_at(norm) for norm in (18.0, 19.04, 23.0)]})
    assert fig2.radius_of(runs) == 23.0
    assert fig2.radius_of(runs, "all") == 40.0
    never = runs_of({name: [story(mlp_norm=norm) for norm in (20.0, 21.0, 30.0)] for name in (none, oracle)})
    assert fig2.radius_of(never) == 21.0, "where none groks, where they end"


def test_only_the_held_weights_are_without_decay():
    """Where the MLP is held, all else keeps its weight decay; its absence is an arm of its own."""
    runs = runs_of({name: [grokking_at(20.0)] for name in fig2.arms(Scale())})
    later = find_figure("fig2").further(Scale(seeds=1), runs)
    decay = {name: config.optimizer.weight_decay for (name, _), config in later.items()}
    assert decay[name_of(HELD, "oracle")] == 1.0
    assert decay[name_of(OLD, "oracle")] == 0.0
    held = later[name_of(HELD, "oracle"), 0].intervention
    assert held == bt.KLPrior(strength=1.0) + bt.NormMatch(radius=20.0)
    assert all(config.task.n_distractors == 2 for config in later.values())


def test_the_decay_of_weights_that_are_held_changes_nothing_but_rounding():
    """The projection follows the step, so that the decay of the MLP's weights only scales its step a little."""
    small = {"task": bt.ModularAddition(p=5), "model": bt.Architecture(d_model=8, d_mlp=8), "epochs": 10}
    run = bt.train(intervention=bt.NormMatch(radius=3.0), weight_decay=1.0, **small)
    np.testing.assert_allclose(run.curves["mlp_norm"], 3.0, rtol=1e-5)


def test_halves_of_a_trained_model_are_put_among_fresh_weights():
    task = bt.ModularAddition(p=5)
    fresh, trained = (bt.build_model(task, d_model=8, d_mlp=8, seed=seed) for seed in (0, 1))
    routed, represented = with_routing_of(fresh, trained), with_mlp_of(fresh, trained)
    assert bt.specs.same(routed.W_Q, trained.W_Q)
    assert bt.specs.same(routed.W_K, trained.W_K)
    assert bt.specs.same(routed.W_in, fresh.W_in)
    assert bt.specs.same(represented.W_in, trained.W_in)
    assert bt.specs.same(represented.W_Q, fresh.W_Q)
    assert not bt.specs.same(fresh.W_Q, trained.W_Q), "the given model is left as it was"

"""Figures of models with several layers say which layer a curve is of."""

import numpy as np
import pytest
from helpers import deep_model

import bayesticket as bt
from bayesticket.figures import plot_arms, plot_capacity, plot_gradients, plot_run, plot_runs, plot_structure
from bayesticket.figures.curves import columns_by_layer
from bayesticket.runs import Header
from bayesticket.sweeps import RunSummary, assemble

TASK = bt.ModularAddition(p=7)
LAYERED = ("kl_to_oracle", "informative_mass_mean", "informative_mass_least", "attention_gradient")


@pytest.fixture(scope="module")
def deep() -> bt.Run:
    added = [
        bt.DistributedMass(layer="each"), bt.InformativeMassByPosition(layer="each"), bt.InteractionNorm(layer="each"),
        bt.AttentionEntropy(layer="each", head="each"), bt.ScoreVariance(),
    ]  # fmt: skip
    return bt.train(TASK, bt.KLPrior(layer=1), model=deep_model(), measures=added, epochs=30)


def names_by_column(figure, run) -> dict[str, str]:
    """The names of a figure's curves by the recorded columns that they show."""
    found = {}
    for trace in figure.data:
        for column in run.curves:
            if np.array_equal(np.asarray(trace.y, dtype=float), run.curves[column].to_numpy()):
                found[column] = trace.name
    return found


def test_a_runs_figure_shows_every_layer_under_its_name(deep):
    names = names_by_column(plot_run(deep), deep)
    for measure in LAYERED:
        for layer in (0, 1):
            assert names[f"{measure}[layer=each][L{layer}]"].endswith(f", layer {layer}")
    assert names["mlp_norm"] == "norm of the MLP"
    colours = {trace.name: trace.line.color for trace in plot_run(deep).data}
    assert colours["KL, layer 0"] != colours["KL, layer 1"]
    assert colours["KL, layer 1"] == colours["attention gradient, layer 1"]


@pytest.mark.parametrize(
    ("plot", "shown"),
    [
        (plot_gradients, {"attention_gradient[layer=each][L1]": "recorded, layer 1"}),
        (plot_gradients, {"kl_to_oracle[layer=each][L0]": "KL, layer 0"}),
        (plot_structure, {"kl_to_oracle[layer=each][L1]": "the oracle, layer 1"}),
        (plot_structure, {"attention_entropy[layer=each,head=each][L1H0]": "entropy, layer 1, head 0"}),
        (plot_structure, {"informative_mass_by_position[layer=each][L1.0]": "layer 1, position 1"}),
        (plot_structure, {"distributed_mass[layer=each][L0.2]": "layer 0, least in any example"}),
        (plot_capacity, {"interaction_norm[layer=each][L1H0]": "‖M‖ of L1H0"}),
        (plot_capacity, {"score_variance[L0]": "variance over the keys, layer 0"}),
    ],
)
def test_figures_of_families_say_the_layer(deep, plot, shown):
    names = names_by_column(plot(deep), deep)
    assert {column: names[column] for column in shown} == shown


def test_heads_differ_in_colour(deep):
    colours = [trace.line.color for trace in plot_capacity(deep).data if trace.name.startswith("‖M‖")]
    assert len(colours) == len(set(colours)) == 4


def test_several_runs_have_a_dash_for_each_layer(deep):
    figure = plot_runs({"a": deep, "b": deep})
    for name in ("a", "b"):
        for axis in ("y2", "y3"):
            layers = {t.name: t.line.dash for t in figure.data if t.yaxis == axis and t.name.startswith(name)}
            assert layers == {f"{name}, layer 0": "solid", f"{name}, layer 1": "dash"}
    titles = [note.text for note in figure.layout.annotations]
    assert sum("(layer 0 solid, layer 1 dashed)" in title for title in titles) == 2


def test_arms_have_a_dash_for_each_layer(deep):
    record = RunSummary(Header({"type": "TrainConfig"}, "finished", 30, 1.0, {}), deep.curves)
    figure = plot_arms(assemble({(arm, 0): record for arm in ("none", "kl")}, axes=("intervention",)))
    for arm in ("none", "kl"):
        medians = {t.name: t for t in figure.data if t.yaxis == "y3" and t.name and t.name.startswith(arm)}
        assert {name: trace.line.dash for name, trace in medians.items()} == {
            f"{arm}, layer 0": "solid", f"{arm}, layer 1": "dash",
        }  # fmt: skip
        np.testing.assert_allclose(medians[f"{arm}, layer 1"].y, deep.curves["kl_to_oracle[layer=each][L1]"])
    assert [trace.name for trace in figure.data if trace.showlegend] == ["none", "kl"]
    assert any("(layer 0 solid, layer 1 dashed)" in note.text for note in figure.layout.annotations)


def test_other_settings_of_a_measure_are_no_places():
    names = ["kl_to_oracle[head=1]", "kl_to_oracle[layer=each,head=each][L0H0]", "kl_to_oracle_too", "kl_to_oracle[L0]"]
    assert columns_by_layer(names, "kl_to_oracle") == {"layer 0": "kl_to_oracle[L0]"}

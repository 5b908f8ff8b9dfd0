"""Pictures of families of measures: what is drawn is what was recorded, and the shading is that of the phases."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket.figures import families
from bayesticket.figures.panels import STRIP, TINTS, _place_names, apart, phases_of

PLOTS = {
    "bounds": families.plot_bounds,
    "gradients": families.plot_gradients,
    "structure": families.plot_structure,
    "capacity": families.plot_capacity,
    "frequencies": families.plot_frequencies,
}
MEASURES = [
    bt.ExplainingAway(examples=None),
    bt.LipschitzBounds(),
    bt.SeparabilityMargin(),
    bt.SeparabilityMargin("raw"),
    bt.StructuralCondition(),
    bt.StructuralCondition("derived"),
    bt.InformativeMassByPosition(),
    bt.DistributedMass(),
    bt.KLToTarget("adversarial"),
    bt.AttentionEntropy(),
    bt.ScoreVariance(),
    bt.InteractionNorm(),
    bt.WeightNorms(),
    bt.NormCondition(1.0, 100.0),
    bt.ClassMargin(),
    bt.ClassMargin("median"),
    bt.Contraction(),
    bt.EffectiveRank(),
    bt.NormalizedMLPLoss(),
    bt.RestrictedLoss(),
    bt.ExcludedLoss(),
    bt.FrequencyShares("unembed"),
    bt.KeyFrequencyCount(),
    bt.FourierGini(),
]
EXPECTED = {
    "bounds": [f"explaining_away[examples=None][{form}]" for form in ("measured", "local", "global", "loose", "unit")],
    "gradients": ["attention_gradient", "kl_to_oracle"],
    "structure": [
        *("informative_mass_mean", "informative_mass_least", "kl_to_oracle", "attention_entropy"),
        *("informative_mass_by_position[0]", "informative_mass_by_position[1]", "kl_to_target[target=adversarial]"),
        *("structural_condition", "structural_condition[tau=derived][share]"),
        *("structural_condition[tau=derived][threshold]", "separability_margin[margin]"),
        *("separability_margin[of=raw][margin]", *(f"distributed_mass[{entry}]" for entry in range(4))),
    ],
    "capacity": [
        *("mlp_norm", "norm_condition[r_min=1.0,r_max=100.0]", "class_margin", "class_margin[of=median]"),
        *(f"lipschitz_bounds[{bound}]" for bound in ("local", "steepest", "centred", "products", "factors")),
        *(f"weight_norms[blocks.0.attn.{name}]" for name in ("W_Q", "W_K", "W_V", "W_O")),
        *("weight_norms[blocks.0.mlp.W_in]", "weight_norms[blocks.0.mlp.W_out]", "weight_norms[embed.W_E]"),
        *("weight_norms[pos_embed.W_pos]", "weight_norms[unembed.W_U]", "interaction_norm[L0H0]", "score_variance"),
        *("contraction[observed]", "contraction[rate]", "effective_rank", "normalized_mlp_loss"),
        *("train_loss", "test_loss"),
    ],
    "frequencies": [
        *("train_loss", "test_loss", "test_restricted_loss", "excluded_loss", "key_frequency_count", "fourier_gini"),
        *(f"frequency_shares[of=unembed][{w}]" for w in (1, 2, 3)),
    ],
}


@pytest.fixture(scope="module")
def run() -> bt.Run:
    return bt.train(bt.ModularAddition(p=7), measures=MEASURES, epochs=60, progress=False)


EPOCHS = np.arange(0, 5001, 50)


def made(columns: dict[str, np.ndarray]) -> bt.Run:
    """A run with given curves, and accuracies."""
    accuracies = {"train_accuracy": np.where(EPOCHS >= 400, 1.0, 0.5), "test_accuracy": np.where(EPOCHS >= 3000, 1, 0)}
    curves = pd.DataFrame(accuracies | columns, index=pd.Index(EPOCHS, name="epoch"), dtype="float64")
    return bt.Run(description={}, tensors={}, weights={}, curves=curves, epoch=5000)


STORY = {
    "attention_gradient": np.select([EPOCHS < 250, EPOCHS < 900, EPOCHS < 2000], [1.0, 0.9, 0.2], 0.5),
    "kl_to_oracle": np.where(EPOCHS >= 1500, 0.3, 1.0),
}


def traces(figure: go.Figure) -> dict[str, go.Scatter]:
    return {trace.name.split("</b>")[0].removeprefix("<b>"): trace for trace in figure.data}


def columns_of(figure: go.Figure, run: bt.Run) -> set[str]:
    """The columns whose values are drawn, epoch by epoch."""
    drawn = [np.asarray(trace.y) for trace in figure.data if np.array_equal(trace.x, run.curves.index)]
    return {name for name in run.curves if any(np.array_equal(y, run.curves[name], equal_nan=True) for y in drawn)}


# What is drawn ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLOTS)
def test_what_was_recorded_is_drawn_and_nothing_else(name, run):
    figure = PLOTS[name](run)
    assert {*EXPECTED[name], "train_accuracy", "test_accuracy"} <= columns_of(figure, run)
    gradient = run.curves["attention_gradient"]
    smooth = [gradient.iloc[max(at - 5, 0) : at + 6].median() for at in range(len(gradient))]
    decay = 1 - (1 - run.curves["contraction[rate]"]) ** 2
    known = [*(run.curves[column] for column in run.curves), smooth, decay]
    for trace in figure.data:
        assert any(np.allclose(trace.y, values, rtol=1e-12, equal_nan=True) for values in known), trace.name


def test_pure_decay_is_drawn_beside_the_observed_contraction(run):
    drawn = traces(families.plot_capacity(run))
    rate = run.curves["contraction[rate]"]
    assert np.array_equal(drawn["observed"].y, run.curves["contraction[observed]"], equal_nan=True)
    assert np.allclose(drawn["pure decay, 2λ − λ²"].y, 2 * rate - rate**2, rtol=1e-9, equal_nan=True)
    assert rate.iloc[-1] == pytest.approx(1e-3)


def test_each_bound_under_its_own_name(run):
    drawn = traces(families.plot_bounds(run))
    names = {
        "measured": "measured",
        "local": "local",
        "global": "global",
        "loose": "loose",
        "unit": "the paper’s, R = 1",
    }
    for entry, name in names.items():
        assert np.array_equal(drawn[name].y, run.curves[f"explaining_away[examples=None][{entry}]"]), entry
    assert drawn["the paper’s, R = 1"].line.dash == "dot"
    assert {trace.yaxis for name, trace in drawn.items() if name not in ("train", "test")} == {"y"}
    assert {drawn[name].yaxis for name in ("train", "test")} == {"y2"}


def test_the_bounds_axis_is_logarithmic_and_holds_them_all(run):
    figure = families.plot_bounds(run)
    assert figure.layout.yaxis.type == "log"
    low, high = figure.layout.yaxis.range
    values = np.log10(run.curves[EXPECTED["bounds"]].to_numpy())
    assert low < values.min() < values.max() < high


def test_of_several_explaining_aways_the_plainest_is_shown():
    columns = {f"explaining_away{fields}[measured]": EPOCHS + 1.0 + len(fields) for fields in ("[head=1]", "")}
    shown = families.plot_bounds(made(columns))
    assert np.array_equal(traces(shown)["measured"].y, EPOCHS + 1.0)


def test_names_at_the_right_end_stand_where_curves_end():
    run = made(
        {f"explaining_away[{form}]": np.full(len(EPOCHS), 10.0**at) for at, form in enumerate(("loose", "local"))}
    )
    figure = families.plot_bounds(run)
    low, high = figure.layout.yaxis.range
    places = {note.text.split("</b>")[0]: note.y for note in figure.layout.annotations if note.yref == "y domain"}
    assert places == {
        "<b>loose": pytest.approx((0 - low) / (high - low)),
        "<b>local": pytest.approx((1 - low) / (high - low)),
    }


@given(st.lists(st.floats(-50, 450), min_size=1, max_size=6).map(sorted))
def test_moved_names_keep_their_order_and_distance(places):
    moved = apart(places, least=37, low=14, high=386)
    assert all(14 - 1e-9 <= place <= 386 + 1e-9 for place in moved)
    assert all(after - before >= 37 - 1e-9 for before, after in itertools.pairwise(moved))
    if places == sorted(np.clip(places, 14, 386)) and all(b - a >= 37 for a, b in itertools.pairwise(places)):
        assert moved == places


def test_settings_of_one_measure_are_told_apart():
    columns = {f"structural_condition{fields}": EPOCHS / 5000 for fields in ("", "[tau=0.1]", "[tau=0.1,head=1]")}
    drawn = families.plot_structure(made(columns)).data[:3]
    assert [trace.name for trace in drawn] == ["τ = 0.25", "τ = 0.1", "τ = 0.1, head 1"]
    assert len({trace.line.color for trace in drawn}) == 3
    columns = {f"attention_gradient{fields}": EPOCHS + 1.0 for fields in ("[layer=1]", "")}
    recorded = [trace for trace in families.plot_gradients(made(columns)).data if trace.name.startswith("recorded")]
    assert [(trace.name, trace.line.dash) for trace in recorded] == [
        ("recorded", "solid"),
        ("recorded, layer 1", "dash"),
    ]


def test_more_than_ten_entries_stay_in_order():
    columns = {f"distributed_mass[{entry}]": np.full(len(EPOCHS), float(entry)) for entry in range(13)}
    drawn = traces(families.plot_structure(made(dict(sorted(columns.items())))))
    assert [drawn[f"position {place}"].y[0] for place in range(1, 12)] == list(range(11))
    assert drawn["least in any example"].y[0] == 11
    assert drawn["effective number of heads"].y[0] == 12


def test_frequencies_that_are_key_at_the_end_have_names():
    shares = np.full((10, len(EPOCHS)), 0.02)
    shares[[3, 6], -1] = 0.5, 0.32  # more than three times the even share of a tenth
    shares[0, 0] = 0.9  # only at the start
    columns = {f"frequency_shares[{w}]": share for w, share in enumerate(shares, 1)}
    drawn = [trace for trace in families.plot_frequencies(made(columns)).data if trace.yaxis == "y"]
    named = [trace for trace in drawn if trace.showlegend]
    assert [trace.name for trace in named] == ["w = 4", "w = 7"]
    assert np.array_equal(named[0].y, shares[3])
    others = [trace for trace in drawn if not trace.showlegend]
    assert len(others) == 8
    assert {trace.hoverinfo for trace in others} == {"skip"}


# Phases -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bounds", "gradients", "capacity"])
def test_the_shading_is_that_of_the_phases(name):
    run = made(STORY | {"explaining_away[measured]": EPOCHS + 1.0, "mlp_norm": EPOCHS + 1.0})
    spans = run.phases().spans(0, run.epoch)
    assert list(spans) == ["memorisation", "plateau", "resurgence", "grokking"]
    figure = PLOTS[name](run)
    shapes = figure.layout.shapes
    axes = [axis.replace("yaxis", "y") for axis in figure.layout.to_plotly_json() if axis.startswith("yaxis")]
    for axis in axes:
        own = [shape for shape in shapes if shape.yref == f"{axis} domain"]
        assert {shape.name: (shape.x0, shape.x1) for shape in own} == spans
        assert {shape.name: shape.fillcolor for shape in own} == TINTS
        assert {(shape.y0, shape.y1) for shape in own} == {(0, 1)}
    strip = [shape for shape in shapes if shape.yref == "paper"]
    assert {shape.name: (shape.x0, shape.x1) for shape in strip} == spans
    assert all(1 < shape.y0 < shape.y1 for shape in strip)
    assert len(shapes) == len(spans) * (len(axes) + 1)
    assert {shape.layer for shape in shapes} == {"below"}
    names = {note.text: note.x for note in figure.layout.annotations if note.text in spans}
    assert all(spans[phase][0] <= at <= spans[phase][1] for phase, at in names.items())
    assert list(names) == list(spans)
    assert str(run.phases()) in figure.layout.title.subtitle.text


def test_a_run_without_the_curves_of_phases_is_not_shaded():
    run = made({"explaining_away[measured]": EPOCHS + 1.0})
    assert phases_of(run) is None
    figure = families.plot_bounds(run)
    assert not figure.layout.shapes
    assert np.array_equal(traces(figure)["measured"].y, EPOCHS + 1.0)


@given(
    borders=st.lists(st.integers(1, 999), min_size=3, max_size=3, unique=True).map(sorted),
)
def test_names_of_phases_do_not_overlap(borders):
    spans = dict(zip(TINTS, itertools.pairwise([0, *borders, 1000]), strict=True))
    placed = _place_names(spans, 1000)
    assert [name for name, *_ in placed] == list(spans)
    taken: dict[int, float] = {}
    shift = {"left": 0.0, "center": 0.5, "right": 1.0}
    for name, at, anchor, line in placed:
        width = 7 * len(name) / 850
        begins = at - shift[anchor] * width
        assert begins >= taken.get(line, 0) - 1e-9, (name, line)
        taken[line] = begins + width
        assert taken[line] <= 1 + 1e-9
        inside = spans[name][0] / 1000 <= begins and begins + width <= spans[name][1] / 1000
        assert (line == 0) <= inside, "on the strip only where the phase has room"


def seen_by(colour: str, matrix: np.ndarray) -> np.ndarray:
    """A colour as a colour-blind reader sees it, in CIELAB."""
    coded = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    light = np.clip(matrix @ np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4), 0, 1)
    to_xyz = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])
    x, y, z = np.cbrt(to_xyz @ light / to_xyz.sum(1))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize(
    "matrix",  # Machado, Oliveira & Fernandes (2009), at full severity
    [
        np.eye(3),
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ],
    ids=["full", "protanopia", "deuteranopia", "tritanopia"],
)
def test_colour_blind_readers_can_tell_the_phases(matrix):
    for colours, least in ((TINTS, 4), (STRIP, 14)):  # 2.3 is just noticeable
        seen = [seen_by(colour, np.asarray(matrix)) for colour in colours.values()]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > least


# What is left out, and refused ------------------------------------------------------------------------------------


def test_missing_columns_are_left_out(run):
    fewer = dataclasses.replace(run, curves=run.curves.drop(columns="explaining_away[examples=None][unit]"))
    drawn = traces(families.plot_bounds(fewer))
    assert set(drawn) == {"measured", "local", "global", "loose", "train", "test"}
    structure = [name for name in run.curves if name.startswith(("informative", "kl_to_oracle"))]
    fewer = dataclasses.replace(run, curves=run.curves[structure])
    figure = families.plot_structure(fewer)
    assert columns_of(figure, fewer) == set(structure)
    assert len([axis for axis in figure.layout.to_plotly_json() if axis.startswith("yaxis")]) == 2


def test_losses_alone_make_no_panel():
    run = made({"train_loss": EPOCHS + 1.0, "test_loss": EPOCHS + 1.0, "mlp_norm": EPOCHS + 1.0})
    assert set(traces(families.plot_capacity(run))) == {"MLP", "train", "test"}
    assert len(families.plot_capacity(run).data) == 3


def test_panels_do_not_overlap(run):
    for plot in PLOTS.values():
        layout = plot(run).layout.to_plotly_json()
        domains = sorted(axis["domain"] for name, axis in layout.items() if name.startswith("yaxis"))
        assert domains[0][0] == 0
        assert domains[-1][1] == 1
        assert all(low[1] < high[0] for low, high in itertools.pairwise(domains))


@pytest.mark.parametrize(
    ("name", "measure"),
    [
        ("bounds", r"ExplainingAway\(\)"),
        ("gradients", r"AttentionGradient\(\)"),
        ("structure", r"InformativeMass\(\)"),
        ("capacity", r"LipschitzBounds\(\)"),
        ("frequencies", r"RestrictedLoss\(\)"),
    ],
)
def test_a_run_that_recorded_nothing_of_a_family_is_refused(name, measure, tmp_path):
    bare = made({"train_loss": EPOCHS + 1.0, "test_loss": EPOCHS + 1.0})
    expected = rf"run: got \['train_accuracy', 'test_accuracy'.*\]; accepted: .*measures=\[.*{measure}"
    with pytest.raises(bt.BayesticketError, match=expected):
        PLOTS[name](bare)
    with pytest.raises(bt.BayesticketError, match=expected):
        families.write_families(bare, tmp_path / "page.html")
    empty = dataclasses.replace(bare, curves=pd.DataFrame(index=pd.Index([], name="epoch")))
    with pytest.raises(bt.BayesticketError, match=rf"run: got \[\]; accepted: .*{measure}"):
        PLOTS[name](empty)
    assert not list(tmp_path.iterdir())


def test_the_measures_to_add_are_the_librarys():
    for family in families.FAMILIES:
        for name in family.measures:
            assert isinstance(eval(name, {kind: getattr(bt, kind) for kind in bt.__all__}), bt.Measure)


# Page -------------------------------------------------------------------------------------------------------------


def test_a_page_has_a_section_for_each_family_that_was_recorded(run, tmp_path):
    path = families.write_families(run, tmp_path / "all.html")
    text = path.read_text(encoding="utf-8")
    assert text.count("Plotly.newPlot(") >= 5
    for family in families.FAMILIES:
        assert f"<h2>{family.heading}</h2>" in text
    assert str(run.phases()) in text

    plain = bt.train(bt.ModularAddition(p=7), epochs=10, progress=False)
    text = families.write_families(plain, tmp_path / "plain.html").read_text(encoding="utf-8")
    recorded = {family.heading for family in families.FAMILIES if f"<h2>{family.heading}</h2>" in text}
    assert recorded == {family.heading for family in (families.GRADIENTS, families.STRUCTURE, families.CAPACITY)}

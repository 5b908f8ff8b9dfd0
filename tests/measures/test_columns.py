"""The names of columns, written and read back, and values labelled by them."""

import pytest
import torch
from catalog import TASKS, model_of
from hypothesis import given
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket import measures
from bayesticket.measures import Column, Measured

HALVES = st.sampled_from([None, "train", "test"])
PLACES = st.integers(0, 12) | st.lists(st.integers(0, 12), min_size=1, unique=True).map(tuple) | st.just("each")
SITES = {"layer": PLACES, "head": st.none() | PLACES, "query": st.integers(-5, 5)}
ONE_LAYER = {"layer": st.integers(0, 12) | st.just("each"), "query": st.just(-1)}
SHARES = st.floats(0.0, 1.0, exclude_min=True, exclude_max=True)
OF = {
    measures.InformativeMass: ("mean", "least"),
    measures.SeparabilityMargin: ("centroid", "raw", "readings"),
    measures.ClassMargin: ("least", "median"),
    measures.FrequencyShares: ("embed", "unembed", "logits"),
    measures.KeyFrequencyCount: ("embed", "unembed", "logits"),
    measures.FourierGini: ("embed", "unembed"),
}
KEYS = st.none() | st.lists(st.integers(1, 50), min_size=1, unique=True).map(tuple)
FOURIER = {"keys": KEYS, "together": st.booleans(), "directions": st.sampled_from(["sum", "products"])}
OTHERS = {
    measures.KLToTarget: {
        "target": st.sampled_from(["oracle", "uniform", bt.Permuted("shifted", seed=3), torch.eye(3), torch.ones(1)])
    },
    measures.StructuralCondition: {"tau": SHARES | st.just("derived")},
    measures.PriorGradient: {"target": st.sampled_from(["oracle", "uniform", torch.ones(1)])},
    measures.PairwiseCondition: {"examples": st.none() | st.integers(1, 999)},
    measures.ExplainingAway: {"examples": st.none() | st.integers(1, 999)},
    measures.LipschitzBounds: {"examples": st.none() | st.integers(1, 999)},
    measures.NormalizedMLPLoss: {"radius": st.none() | SHARES},
    measures.Contraction: {"scope": st.sampled_from(["mlp", "all"])},
    measures.RestrictedLoss: FOURIER,
    measures.ExcludedLoss: FOURIER,
}
KINDS = [
    kind
    for name in measures.__all__
    if isinstance(kind := getattr(measures, name), type)
    and issubclass(kind, bt.Measure)
    and kind not in (bt.Measure, bt.AttentionMeasure)
]


@st.composite
def any_measure(draw):
    """Any measure of the library, with any fields: its class, and the fields to make it with."""
    kind = draw(st.sampled_from(KINDS))
    if kind is measures.NormCondition:
        low = draw(SHARES)
        return kind, {"r_min": low, "r_max": low + draw(SHARES)}
    fields = dict(OTHERS.get(kind, {}))
    if issubclass(kind, bt.attention.AttentionSite):
        fields |= SITES | (ONE_LAYER if kind in (bt.AttentionGradient, bt.PriorGradient) else {})
    if kind in OF:
        fields["of"] = st.sampled_from(OF[kind])
    return kind, draw(st.fixed_dictionaries({}, optional=fields))


ENTRIES = st.sampled_from(
    ["", "0", "17", "share", "measured/local", "L0H11", "L1", "H0.measured", "blocks.0.mlp.W_in", "embed.W_E"]
)


def test_the_round_trip_is_over_all_measures():
    assert len(KINDS) >= 25


@given(described=any_measure(), entry=ENTRIES, half=HALVES, evaluation=st.sampled_from(["", "T=12", "a b", "test_"]))
def test_the_column_of_every_measure_is_read_back_as_it_was_written(described, entry, half, evaluation):
    kind, fields = described
    measure = kind(**fields)
    plain = Column.parse(measure.name)
    assert str(plain) == measure.name
    assert "[" not in plain.measure
    assert plain.entry == ""
    assert plain.half is None
    column = Column(plain.measure, plain.fields, entry, half, evaluation)
    of_evaluation = f"{evaluation}/" if evaluation else ""
    written = of_evaluation + (f"{half}_" if half else "") + measure.name + (f"[{entry}]" if entry else "")
    assert str(column) == written
    assert Column.parse(written) == column


@given(st.text() | st.text(alphabet="ab=[]_1,/") | st.text(alphabet="ab=[]_1,").map("test_".__add__))
def test_any_text_is_read_as_a_column_of_that_name(text):
    assert str(Column.parse(text)) == text


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("test_loss", Column("loss", half="test")),
        ("train_accuracy", Column("accuracy", half="train")),
        ("kl_to_target[head=1]", Column("kl_to_target", "head=1")),
        ("weight_norms[blocks.0.mlp.W_in]", Column("weight_norms", entry="blocks.0.mlp.W_in")),
        ("structural_condition[tau=derived][share]", Column("structural_condition", "tau=derived", "share")),
        ("test_restricted_loss[keys=(1, 3)]", Column("restricted_loss", "keys=(1, 3)", half="test")),
        ("distributed_mass[0]", Column("distributed_mass", entry="0")),
        ("informative_mass_least[head=0]", Column("informative_mass_least", "head=0")),
        ("attention_gradient[layer=1][smooth]", Column("attention_gradient", "layer=1", "smooth")),
        ("T=12/test_accuracy", Column("accuracy", half="test", evaluation="T=12")),
        ("a/weight_norms[x/y]", Column("weight_norms", entry="x/y", evaluation="a")),
        ("bounds[measured/local]", Column("bounds", entry="measured/local")),
        ("a/", Column("a/")),
        ("/loss", Column("/loss")),
        ("", Column("")),
        ("test_", Column("test_")),
        ("loss[", Column("loss[")),
        ("loss[]", Column("loss[]")),
        ("[entry]", Column("[entry]")),
    ],
)
def test_names_and_their_parts(name, column):
    assert Column.parse(name) == column
    assert str(column) == name


@pytest.mark.parametrize(
    "parts",
    [
        {"measure": "test_loss"},
        {"measure": "loss[x]"},
        {"measure": "loss", "entry": "a=1"},
        {"measure": "loss", "fields": "a=1", "entry": "b][c"},
        {"measure": "loss", "fields": "a"},
        {"measure": "a/loss"},
        {"measure": "loss", "evaluation": "a/b"},
        {"measure": "loss", "evaluation": "a[b]"},
    ],
)
def test_a_column_that_could_not_be_read_back_is_refused(parts):
    with pytest.raises(bt.BayesticketError, match=r"^column: got the name "):
        Column(**parts)


@given(st.permutations([f"mean_pattern[{place}]" for place in range(25)]))
def test_entries_are_sorted_by_their_numbers(names):
    ordered = sorted(names, key=lambda name: Column.parse(name).order)
    assert ordered == [f"mean_pattern[{place}]" for place in range(25)]


@given(st.lists(st.text(alphabet="ab1[]=0_²१"), max_size=6))
def test_any_columns_can_be_sorted(names):
    assert len(sorted(names, key=lambda name: Column.parse(name).order)) == len(names)


SORTED = [
    "mlp_norm",
    "norm[L0H2]",
    "norm[L0H10]",
    "norm[L10H1]",
    "norm[layer=2][L2H0]",
    "norm[layer=10][L10H0]",
    "test_loss",
    "train_loss",
    "T=6/test_loss",
    "T=12/test_loss",
]


@given(st.permutations(SORTED))
def test_columns_are_sorted_by_half_measure_fields_and_entry(names):
    assert sorted(names, key=lambda name: Column.parse(name).order) == SORTED


# Values labelled by columns ---------------------------------------------------------------------------------------


def test_measured_values_are_a_mapping():
    seen = Measured({"loss": 0.5, "mass[0]": 2.0})
    assert dict(seen) == {"loss": 0.5, "mass[0]": 2.0} == seen
    assert seen == Measured({"mass[0]": 2.0, "loss": 0.5}) != Measured({"loss": 0.5})
    assert "mass" not in seen
    assert seen.get("mass") is None
    with pytest.raises(KeyError, match=r"column: got 'mass'; accepted: .*Closest: 'mass\[0\]'"):
        seen["mass"]


def test_measured_values_do_not_change_with_what_they_were_made_of():
    values = {"loss": 0.5}
    seen = Measured(values)
    values["loss"] = 1.0
    assert seen["loss"] == 0.5


def test_measured_values_print_as_an_aligned_table():
    seen = Measured({"loss": 0.123456789, "kl_to_oracle[head=1]": 1e-9, "margin": -12.5, "threshold": float("nan")})
    lines = repr(seen).splitlines()
    assert [line.split() for line in lines] == [
        ["loss", "0.123457"],
        ["kl_to_oracle[head=1]", "1e-09"],
        ["margin", "-12.5"],
        ["threshold", "nan"],
    ]
    assert len({len(line) for line in lines}) == 1
    assert repr(Measured({})) == "nothing measured"


def test_explaining_away_is_unpacked_by_its_labels():
    task = TASKS["addition"]
    seen = bt.measure(model_of(task), task.split().train, bt.measures.ExplainingAway())
    assert seen["explaining_away[measured]"] <= seen["explaining_away[local]"] <= seen["explaining_away[global]"]

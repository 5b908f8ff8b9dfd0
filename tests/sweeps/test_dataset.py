"""The dataset of a sweep: it holds what the runs recorded, and what is read off it is what the runs say."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import xarray as xr
from helpers import reseal
from jobs import SMALL, TASK, assert_same, configured, uninterrupted

import bayesticket as bt
import bayesticket.analysis
from bayesticket.analysis import Times
from bayesticket.runs import Header, Status
from bayesticket.specs import spec_id
from bayesticket.sweeps import Runs, RunSummary, assemble, load_runs, sweep, sweep_configs, train_missing

ARMS = {"none": None, "kl": bt.KLPrior(strength=0.5)}
RATES = (3e-3, 1e-2)
OPTIONS = {"model": SMALL, "epochs": 20, "record_every": 5}
SEEDS = (3, 1, 2)
UNRECORDED = r"^curve: got 'unseen_accuracy', which is NaN throughout in {}; accepted: a curve with values$"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    with ThreadPoolExecutor(1) as executor:
        store = tmp_path_factory.mktemp("sweep")
        return sweep(TASK, ARMS, seeds=SEEDS, store=store, executor=executor, lr=3e-3, **OPTIONS)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs over two axes."""
    with ThreadPoolExecutor(1) as executor:
        store, axes = tmp_path_factory.mktemp("grid"), bt.grid(intervention=ARMS, lr=RATES)
        return sweep(TASK, axes, seeds=range(2), store=store, executor=executor, **OPTIONS)


def recorded(
    grokked: int | None, *, trained: int = 100, threshold: float = 0.99, status: Status = "finished", **others: object
) -> RunSummary:
    """A run that groks at an epoch, as far as its curves tell; and its other curves."""
    epochs = np.arange(0, trained + 1, 10)
    reached = np.zeros(len(epochs)) if grokked is None else np.where(epochs >= grokked, threshold, 0.1)
    both = {"test_accuracy": reached, "train_accuracy": reached}
    curves = pd.DataFrame(both | others, index=pd.Index(epochs, name="epoch"))
    config = {"type": "TrainConfig"} | ({} if threshold == 0.99 else {"grok_threshold": threshold})
    return RunSummary(Header(config, status, trained, 1.0, {}), curves)


# One axis ---------------------------------------------------------------------------------------------------------


def test_the_curves_are_one_dataset(runs):
    assert isinstance(runs.curves, xr.Dataset)
    assert dict(runs.curves.sizes) == {"intervention": 2, "seed": 3, "epoch": 5}
    assert (runs.axes, runs.seeds) == (("intervention",), [3, 1, 2])
    assert runs.labels("intervention") == ["none", "kl"]
    for name, intervention in ARMS.items():
        for seed in SEEDS:
            run, kept = runs.run(name, seed), runs.curves.sel(intervention=name, seed=seed)
            assert_same(run, uninterrupted(configured(intervention, seed=seed)))
            pd.testing.assert_frame_equal(kept[list(run.curves)].to_dataframe()[list(run.curves)], run.curves)
            assert (kept["status"].item(), kept["trained"].item()) == (run.status, run.epoch)
            assert kept["seconds"].item() == run.seconds
            assert kept["directory"].item() == str(run.source)
            assert kept["id"].item() == spec_id(run.config)
            assert kept["grok_threshold"].item() == run.config.grok_threshold


@pytest.mark.parametrize("threshold", [0.1666666716337204, 0.2, 0.3, 0.99])
def test_grokking_epochs_are_those_of_the_runs(runs, threshold):
    for table, of_run in (
        (runs.grok_epochs(threshold), bt.Run.grok_epoch),
        (runs.memorised_epochs(threshold), bt.Run.memorised_epoch),
    ):
        assert (table.index.tolist(), table.columns.tolist()) == (["none", "kl"], [3, 1, 2])
        assert set(table.dtypes) == {pd.Int64Dtype()}
        for name in ARMS:
            for seed in SEEDS:
                epoch = table.loc[name, seed]
                assert (None if epoch is pd.NA else epoch) == of_run(runs.run(name, seed), threshold)
    missing = [runs.grok_epochs(each).isna().to_numpy().sum() for each in (0.2, 0.99)]
    assert missing[0] < missing[1], "both kinds are there"


def test_each_run_is_read_at_its_own_threshold():
    runs = assemble({("low", 0): recorded(20, threshold=0.5), ("high", 0): recorded(40, threshold=0.9)})
    assert runs.grok_epochs()[0].tolist() == [20, 40]
    assert runs.memorised_epochs(0.5)[0].tolist() == [20, 40]
    assert runs.grok_epochs(0.7)[0].tolist() == [pd.NA, 40]
    assert runs.times("low").epochs.tolist() == [20]
    assert runs.times("low", 0.7).reached.tolist() == [False]


def unseen(reached: float) -> np.ndarray:
    """An accuracy on unseen examples that is reached at an epoch."""
    return np.where(np.arange(0, 101, 10) >= reached, 1.0, 0.2)


def test_epochs_of_the_accuracy_on_unseen_examples_are_those_of_that_curve():
    runs = assemble(
        {
            ("kl", 0): recorded(20, unseen_accuracy=unseen(60)),
            ("kl", 1): recorded(30, unseen_accuracy=unseen(np.inf)),
            ("none", 0): recorded(None, unseen_accuracy=unseen(80)),
            ("none", 1): recorded(40, unseen_accuracy=unseen(90)),
        }
    )
    assert runs.grok_epochs(curve="unseen_accuracy").to_numpy(na_value=-1).tolist() == [[60, -1], [80, 90]]
    assert runs.grok_epochs(0.2, curve="unseen_accuracy").to_numpy().tolist() == [[0, 0], [0, 0]]
    assert runs.grok_epochs().to_numpy(na_value=-1).tolist() == [[20, 30], [-1, 40]]
    times = runs.times("kl", curve="unseen_accuracy")
    assert (times.epochs.tolist(), times.reached.tolist()) == ([60, 100], [True, False])
    comparison = runs.compare("kl", "none", curve="unseen_accuracy")
    assert (comparison.grokked, comparison.runs) == ((1, 2), (2, 2))
    assert runs.compare("kl", "none").grokked == (2, 1)


def test_a_curve_without_values_is_an_error_and_not_never():
    runs = assemble(
        {
            (1e-3, 0): recorded(20, unseen_accuracy=unseen(60)),
            (1e-3, 1): recorded(20, unseen_accuracy=np.nan),
        },
        axes=["lr"],
    )
    for ask in (runs.grok_epochs, runs.times):
        with pytest.raises(bt.BayesticketError, match=UNRECORDED.format("lr 0.001, seed 1")):
            ask(curve="unseen_accuracy")
    assert runs.sel(seed=0).grok_epochs(curve="unseen_accuracy")[0].tolist() == [60]
    with pytest.raises(bt.BayesticketError, match=UNRECORDED.format("lr 0.001, seed 1")):
        runs.sel(lr=1e-3).grok_epochs(curve="unseen_accuracy")
    earlier = assemble({("none", 0): recorded(20)})
    with pytest.raises(bt.BayesticketError, match=UNRECORDED.format("none, seed 0")):
        earlier.compare("none", "none", curve="unseen_accuracy")


def test_a_run_that_failed_before_its_first_record_never_reached_anything():
    values = recorded(20, unseen_accuracy=unseen(60))
    nothing = RunSummary(values.header, values.curves.iloc[:0])
    runs = assemble({("none", 0): values, ("none", 1): nothing})
    assert runs.grok_epochs(curve="unseen_accuracy").loc["none"].tolist() == [60, pd.NA]


def test_times_are_censored_where_training_ended(runs):
    times = runs.times("kl", 0.2)
    reached = [runs.run("kl", seed).grok_epoch(0.2) for seed in SEEDS]
    expected = Times.of(reached, [20] * 3)
    np.testing.assert_array_equal(times.epochs, expected.epochs)
    np.testing.assert_array_equal(times.reached, expected.reached)


def test_the_figure_has_every_arm(runs):
    figure = runs.plot()
    assert isinstance(figure, go.Figure)
    assert {trace.name for trace in figure.data if trace.showlegend} == set(ARMS)


def test_what_is_selected_is_still_a_sweep(runs):
    part = runs.sel(intervention=["kl"], seed=[2, 1])
    pd.testing.assert_frame_equal(part.grok_epochs(0.3), runs.grok_epochs(0.3).loc[["kl"], [2, 1]])
    assert_same(part.run("kl", 2), runs.run("kl", 2))


def test_one_label_drops_its_axis_and_seeds_keep_theirs(runs):
    part = runs.sel(intervention="kl", seed=1)
    assert (part.axes, part.seeds) == ((), [1])
    pd.testing.assert_frame_equal(part.grok_epochs(0.2), runs.grok_epochs(0.2).loc[["kl"], [1]])
    assert_same(part.run(), runs.run("kl", 1))
    assert part.times().epochs.tolist() == [20]


def test_runs_that_end_at_different_epochs_share_an_axis(tmp_path):
    configs = {
        (f"{epochs} epochs", seed): configured(seed=seed, epochs=epochs, record_every=every)
        for epochs, every in ((40, 20), (25, 10))
        for seed in (0, 1)
    }
    with ThreadPoolExecutor(1) as executor:
        runs = sweep_configs(configs, store=tmp_path, executor=executor)
    assert runs.curves["epoch"].to_numpy().tolist() == [0, 10, 20, 25, 40]
    known = ~runs.curves["test_loss"].sel(seed=1).isnull()
    assert known.sel(intervention="40 epochs").to_numpy().tolist() == [True, False, True, False, True]
    assert known.sel(intervention="25 epochs").to_numpy().tolist() == [True, True, True, True, False]
    assert runs.curves["trained"].to_numpy().tolist() == [[40, 40], [25, 25]]


def test_a_run_without_a_curve_that_others_have_is_nan_there(tmp_path):
    configs = {("none", seed): configured(seed=seed) for seed in (0, 1)}
    with ThreadPoolExecutor(1) as executor:
        train_missing(configs, tmp_path, executor=executor)
    path = tmp_path / spec_id(configs["none", 0]) / "curves.parquet"
    pd.read_parquet(path).drop(columns="mlp_norm").to_parquet(path)  # as of before the curve was recorded by default
    reseal(path.parent)
    assert train_missing(configs, tmp_path) is None, "it is still that run, and not trained again"
    curves = load_runs(configs, tmp_path).curves
    assert curves["mlp_norm"].isnull().any("epoch").to_numpy().tolist() == [[True, False]]
    assert not curves["test_loss"].isnull().any()


def test_what_is_not_in_the_store_is_not_loaded(tmp_path):
    with pytest.raises(bt.BayesticketError, match=r"^none, seed 3: "):
        load_runs({("none", 3): configured(seed=3)}, tmp_path)


def test_the_text_says_how_many_runs_of_each_arm_grokked():
    records = {
        ("none", 0): recorded(None),
        ("none", 1): recorded(None, status="failed"),
        ("kl", 0): recorded(50),
        ("kl", 1): recorded(None),
    }
    assert repr(assemble(records)).splitlines() == [
        "Runs(intervention: 2, seed: 2)",
        "    none: 0 of 2 grokked, 1 diverged",
        "    kl: 1 of 2 grokked",
    ]
    many = repr(assemble({(float(number), 0): recorded(None) for number in range(30)}, axes=["lr"])).splitlines()
    assert (many[0], many[1], many[-1]) == (
        "Runs(lr: 30, seed: 1)",
        "    lr 0: 0 of 1 grokked",
        "    … (30 arms in all)",
    )


# Several axes -----------------------------------------------------------------------------------------------------


def test_each_run_of_a_grid_stands_at_its_labels(wide):
    assert dict(wide.curves.sizes) == {"intervention": 2, "lr": 2, "seed": 2, "epoch": 5}
    assert wide.labels("lr") == [3e-3, 1e-2]
    for name, intervention in ARMS.items():
        for lr in RATES:
            for seed in range(2):
                expected = uninterrupted(configured(intervention, lr=lr, seed=seed))
                assert_same(wide.run(name, seed=seed, lr=lr), expected)
                at = wide.curves["test_loss"].sel(intervention=name, lr=lr, seed=seed)
                np.testing.assert_array_equal(at.to_numpy(), expected.curves["test_loss"].to_numpy())
                assert wide.grok_epochs(0.2).loc[(name, lr), seed] is pd.NA or expected.grok_epoch(0.2) is not None


def test_tables_of_a_grid_have_a_row_for_each_combination(wide):
    table = wide.memorised_epochs(0.2)
    assert table.index.names == ["intervention", "lr"]
    assert table.index.tolist() == [(name, lr) for name in ARMS for lr in RATES]
    expected = [[wide.run(name, seed, lr=lr).memorised_epoch(0.2) for seed in range(2)] for name, lr in table.index]
    assert table.astype(object).where(table.notna(), None).to_numpy().tolist() == expected
    dropped = wide.sel(lr=1e-2).memorised_epochs(0.2)
    pd.testing.assert_frame_equal(dropped, table.xs(1e-2, level="lr"))
    one = wide.sel(lr=1e-2, intervention="kl").memorised_epochs(0.2)
    assert one.index.tolist() == [("kl", 1e-2)]


def test_the_label_by_position_is_on_the_first_axis_that_is_not_named(wide):
    times = wide.times("kl", 0.2, lr=1e-2)
    for same in (
        wide.times(1e-2, 0.2, intervention="kl"),
        wide.times(threshold=0.2, intervention="kl", lr=1e-2),
        wide.sel(lr=[1e-2]).times("kl", 0.2),
        wide.sel(lr=1e-2).times("kl", 0.2),
    ):
        assert (same.epochs.tolist(), same.reached.tolist()) == (times.epochs.tolist(), times.reached.tolist())


def test_a_comparison_is_of_the_times_of_both_arms(wide, monkeypatch):
    asked = []
    monkeypatch.setattr(bayesticket.analysis, "compare_times", lambda *given, names: asked.append((given, names)))
    wide.compare("kl", "none", 0.2, lr=3e-3)
    wide.compare(1e-2, 3e-3, intervention="kl")
    ((first, other), names), (_, rates) = asked
    assert (names, rates) == (("kl", "none"), ("lr 0.01", "lr 0.003"))
    for given, name in ((first, "kl"), (other, "none")):
        assert given.epochs.tolist() == wide.times(name, 0.2, lr=3e-3).epochs.tolist()


def test_a_comparison_prints_as_one_line():
    times = {"kl": [800, 900, 850, 870, 910], "none": [1300, None, 2100, None, 1250]}
    runs = assemble(
        {(name, seed): recorded(at, trained=5000) for name, arm in times.items() for seed, at in enumerate(arm)}
    )
    assert str(runs.compare("kl", "none")).startswith("kl 870 [800, open] (5 of 5) against none 2,100")
    assert str(runs.compare("kl", "none")).endswith("log-rank p = 0.0079")


# What cannot be told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda runs: runs.times("other"), r"^intervention: got 'other'; accepted: 'none', 'kl'$"),
        (lambda runs: runs.times(), r"^intervention: got no label; accepted: one of 'none', 'kl'$"),
        (lambda runs: runs.times("kl", lr=1e-3), "^axis: got 'lr'; accepted: 'intervention', 'seed'"),
        (lambda runs: runs.run("kl", 9), "^seed: got 9; accepted: 3, 1, 2$"),
        (lambda runs: runs.run("kl"), "^seed: got no seed; accepted: one of 3, 1, 2$"),
        (lambda runs: runs.sel(intervention="kl").times("kl"), "^arm: got 'kl', where every axis has its label; "),
        (lambda runs: runs.sel(intervention="lk"), "^intervention: got 'lk'; .*Closest: 'kl'$"),
        (lambda runs: runs.sel(intervention=[]), r"^intervention: got \[\]; accepted: at least one label$"),
        (lambda runs: runs.sel(arm="kl"), "^axis: got 'arm'; accepted: 'intervention', 'seed'$"),
        (lambda runs: runs.labels("epoch"), "^axis: got 'epoch'; accepted: 'intervention', 'seed'$"),
        (
            lambda runs: Runs(runs.curves[["train_loss"]]).grok_epochs(),
            "^curve: got 'test_accuracy'; accepted: 'train_loss'$",
        ),
        (lambda runs: runs.grok_epochs(curve="unseen_acuracy"), "^curve: got .* Closest: 'unseen_accuracy'$"),
        (lambda runs: Runs(runs.curves.isel(seed=0)), "^curves: got a dataset without its dimensions seed and epoch; "),
        (lambda runs: Runs(runs.curves.drop_vars("id")), "^curves: got a dataset without id; "),
        (lambda runs: assemble({("kl", 0): recorded(None)}).run("kl"), "^run: got runs .* no weights; accepted: runs "),
    ],
)
def test_what_runs_cannot_tell_is_one_clear_error(runs, ask, said):
    with pytest.raises(bt.BayesticketError, match=said):
        ask(runs)


def test_an_axis_without_its_label_is_named(wide, tmp_path: Path):
    with pytest.raises(bt.BayesticketError, match=r"^lr: got no label; accepted: one of 0.003, 0.01$"):
        wide.times("kl")
    with pytest.raises(bt.BayesticketError, match=r"^lr: got 5; accepted: 0.003, 0.01$"):
        wide.sel(lr=5)


def test_a_default_curve_that_no_run_recorded_is_nan():
    run = uninterrupted(configured())
    earlier = RunSummary(run.header(), run.curves.drop(columns=["unseen_accuracy", "unseen_loss"]))
    curves = assemble({("none", 0): earlier}).curves
    assert curves["unseen_accuracy"].isnull().all()
    assert curves["unseen_accuracy"].sizes == curves["test_accuracy"].sizes


def test_arms_that_grok_at_epoch_0_have_no_ratio():
    run = uninterrupted(configured())
    records = {
        (arm, 0): RunSummary(run.header(), run.curves.assign(test_accuracy=accuracy))
        for arm, accuracy in (("at once", 1.0), ("never", 0.0))
    }
    assert "ratio not defined" in str(assemble(records).compare("at once", "never"))


# Predicting -------------------------------------------------------------------------------------------------------


def test_a_prediction_is_of_all_arms_and_of_each_arm_by_the_values_at_an_epoch():
    grokked = {"kl": (60, 70, None), "none": (90, None, None)}
    runs = assemble(
        {
            (name, seed): recorded(epoch, mlp_norm=np.arange(11) + (0.0 if epoch is None else epoch))
            for name, epochs in grokked.items()
            for seed, epoch in enumerate(epochs)
        }
    )
    found = runs.predict("mlp_norm", 50)
    assert (found.groks, found.never) == (3, 3)
    assert found.auc is not None
    assert found.auc_within is not None
    assert (found.auc.value, found.auc.pairs, found.auc_within.pairs) == (1.0, 9, 2 + 2)
    assert found.left is not None
    assert found.left.value == 1.0
    assert runs.predict("mlp_norm", 60).groks == 2
    assert runs.predict("mlp_norm", 50, 0.05).groks == 0
    assert runs.sel(intervention="kl").predict("mlp_norm", 50).never == 1
    with pytest.raises(bt.BayesticketError, match="epoch: got 55"):
        runs.predict("mlp_norm", 55)
    with pytest.raises(bt.BayesticketError, match="measure: got 'norm'"):
        runs.predict("norm", 50)

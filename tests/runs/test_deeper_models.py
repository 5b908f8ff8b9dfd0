"""Models of several layers: what is said of them once, and what says which layer is meant."""

import pytest

import bayesticket as bt
from bayesticket.analysis import find_phases
from bayesticket.sweeps import backends

TASK = bt.ModularAddition(p=5)
DEEP = bt.Architecture(d_model=8, d_mlp=8, n_layers=2)
FULL = "using the full forward, because the model has n_layers=2"


def first_layer(kind: str) -> str:
    return f"{kind} acts on layer 0 alone, of 2 layers; layer=(0, 1) would be all of them"


def train(intervention=None, model=DEEP, **options) -> bt.Run:
    return bt.train(TASK, intervention, model=model, epochs=20, progress=False, **options)


def said(caplog) -> list[str]:
    return sorted(record.getMessage() for record in caplog.records)


@pytest.fixture(scope="module")
def run() -> bt.Run:
    return train()


def test_training_and_measuring_say_once_what_a_deeper_model_means(caplog):
    for seed in range(2):
        run = train(bt.KLPrior() + bt.QKPenalty(), seed=seed)
        bt.measure(run.model, TASK.split().test, bt.KLToOracle())
    assert said(caplog) == [first_layer("KLPrior"), first_layer("QKPenalty"), FULL]


@pytest.mark.parametrize("prior", [bt.KLPrior(layer=1), bt.KLPrior(layer=(0, 1))])
def test_an_intervention_that_names_its_layers_goes_without_a_notice(caplog, prior):
    train(prior)
    train(bt.KLPrior(), model=bt.Architecture(d_model=8, d_mlp=8))
    assert said(caplog) == [FULL]


def test_a_sweep_says_once_what_all_its_processes_would_say(caplog, capfd, store, monkeypatch):
    monkeypatch.setattr(backends, "START_METHOD", "fork")
    arms = {"none": None, "kl": bt.KLPrior()}
    bt.sweep(TASK, arms, seeds=range(2), store=store, model=DEEP, epochs=20, workers=2, progress=False)
    assert said(caplog) == [first_layer("KLPrior"), FULL]
    assert "full forward" not in capfd.readouterr().err  # the processes themselves


def test_a_sweep_of_deeper_models_alone_has_no_curves_of_a_one_layer_model(store):
    runs = bt.sweep(TASK, {"none": None}, seeds=[0], store=store, model=DEEP, epochs=20, workers=1, progress=False)
    assert set(runs.curves.data_vars) == set(runs.run("none", seed=0).curves)
    assert "kl_to_oracle[layer=each][L1]" in runs.curves


@pytest.mark.parametrize("curve", ["kl_to_oracle", "kl_to_oracle[layer=each]", "kl_to_orakel[layer=each][L1]"])
def test_a_rule_to_stop_by_is_told_of_curves_that_it_may_name(curve):
    with pytest.raises(bt.BayesticketError, match=r"stop_when.curve: .*Closest: '(kl_to_oracle.*)'$") as caught:
        train(stop_when=bt.Reaches(curve, 100.0, direction="down"))
    closest = str(caught.value).rpartition("Closest: ")[2].strip("'")
    assert train(stop_when=bt.Reaches(closest, 100.0, direction="down")).status == "stopped"


def test_phases_are_read_off_the_layer_that_is_named(run):
    for by in ("gradient", "norm"):
        with pytest.raises(bt.BayesticketError, match=r"^layer: got a run of several layers; accepted: layer=0 or"):
            run.phases(by)
    names = {"gradient": "attention_gradient[layer=each][L1]", "divergence": "kl_to_oracle[layer=each][L1]"}
    assert run.phases(layer=1) == find_phases(run.curves, **names)
    with pytest.raises(bt.BayesticketError, match="layer: got 2; accepted: layer=0 or layer=1"):
        run.phases(layer=2)
    flat = train(model=bt.Architecture(d_model=8, d_mlp=8))
    assert flat.phases() == flat.phases(layer=0)

"""What rules to stop by refuse, without run-time type checks: values of the wrong type."""

import pytest

import bayesticket as bt

TASK, SMALL = bt.ModularAddition(p=5), bt.Architecture(d_model=8, d_mlp=8)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (bt.Reaches, r"stop_when: got <class .*accepted: a rule, such as Reaches\("),
        ("stalls", r"stop_when: got 'stalls'; accepted: a rule"),
        (3, r"stop_when: got 3; accepted: a rule"),
    ],
)
def test_what_is_no_rule_and_no_function(given, message):
    with pytest.raises(bt.BayesticketError, match=message) as caught:
        bt.train(TASK, model=SMALL, epochs=1, stop_when=given)
    assert "\n" not in str(caught.value)


def test_a_function_in_a_sweep(tmp_path):
    with pytest.raises(bt.BayesticketError, match=r"stop_when: got <function .*a function in train alone"):
        bt.sweep(TASK, {"none": None}, seeds=[0], store=tmp_path / "no", stop_when=lambda record: True)
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bt.Reaches(direction="left"), r"direction: got 'left'; accepted: 'up', 'down'"),
        (lambda: bt.Stalls(direction=None), r"direction: got None"),
        (lambda: bt.Reaches(curve=3), r"curve: got 3; accepted: the name of a curve"),
        (lambda: bt.Reaches("test_loss", "low"), r"threshold: got 'low'"),
        (lambda: bt.Reaches(patience=0.5), r"patience: got 0\.5"),
        (lambda: bt.Stalls(by="x"), r"by: got 'x'"),
        (lambda: bt.AdamW(lr="Anneal"), r"lr: got 'Anneal'"),
        (lambda: bt.Reaches("test_accuracy", 99), r"threshold: got 99; accepted: a finite number >= 0 and <= 1"),
        (lambda: bt.Reaches("unseen_accuracy", -0.1, direction="down"), r"threshold: got -0\.1"),
        (lambda: bt.Stalls("test_accuracy", by=5), r"by: got 5; accepted: a finite number >= 0 and <= 1"),
        (lambda: bt.Stalls("test_loss", memorised=99), r"memorised: got 99; accepted: a finite number >= 0 and <= 1"),
    ],
)
def test_settings_of_the_wrong_type(make, message):
    with pytest.raises(bt.BayesticketError, match=message):
        make()


def test_a_threshold_that_no_accuracy_can_reach():
    run = bt.train(TASK, model=SMALL, epochs=1)
    accepted = "accepted: a finite number > 0 and <= 1"
    with pytest.raises(bt.BayesticketError, match=f"grok_threshold: got 99; {accepted}"):
        bt.train(TASK, model=SMALL, epochs=1, grok_threshold=99)
    for ask in (run.grok_epoch, run.stable_after, run.memorised_epoch):
        with pytest.raises(bt.BayesticketError, match=f"threshold: got 1.1; {accepted}"):
            ask(1.1)
    assert run.grok_epoch(2.0, curve="mlp_norm") == 0  # no accuracy

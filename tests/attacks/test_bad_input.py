"""Whatever a public constructor or function is given, it works or says in one line what it wants instead."""

import dataclasses
import math
import typing

import pytest
import torch
from attacking import times
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket.analysis import Ticket, find_ticket, ticket_config
from bayesticket.specs import Spec

TASK, SMALL = bt.ModularAddition(p=5), bt.Architecture(d_model=8, d_mlp=8)
HUGE = 10**400
NASTY = [
    None, True, False, 0, -1, 1, 3, 2**63, -(2**63) - 1, HUGE, -HUGE, 0.0, -0.0, 0.5, 1e308, -1e308, 1e-320, math.nan,
    math.inf, -math.inf, 1j, "", "a", "oracle", "a\0b", "x" * 300, "~nobody/x", "\ud800", b"a", (), (1,), (0, 0.999),
    (1.0, 2.0, 3.0), [], [None], {}, {1: 2}, {"a": None}, set(), range(3), object, object(), len, lambda *given: None,
    torch.tensor(1.0), torch.tensor([]), torch.tensor([0.5, 0.5]), torch.tensor([math.nan]), torch.zeros(2, 3, 4, 5),
    torch.tensor([1]).as_strided((3, 2), (0, 0)), torch.ones(2, dtype=torch.bool), torch.ones(3, dtype=torch.float16),
    torch.ones(2, 2, dtype=torch.complex64), TASK, SMALL, bt.KLPrior(), bt.Accuracy(), bt.AdamW(),
    bt.Window(1.0, start=3),
]  # fmt: skip
nasty = st.sampled_from(NASTY)
PUBLIC = [getattr(bt, name) for name in bt.__all__]
CONSTRUCTORS = sorted(
    (
        kind
        for kind in Spec.kinds.values()
        if kind in PUBLIC and dataclasses.is_dataclass(kind) and not getattr(kind, "__abstractmethods__", None)
    ),
    key=lambda kind: kind.__name__,
)


def works_or_says_why(call: typing.Callable[[], object]) -> None:
    try:
        call()
    except bt.BayesticketError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 1200
        assert "\0" not in message


@pytest.mark.parametrize("kind", CONSTRUCTORS, ids=lambda kind: kind.__name__)
@settings(max_examples=times(8), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_constructors(kind, data):
    fields = [field for field in dataclasses.fields(kind) if field.init]
    chosen = data.draw(st.lists(st.sampled_from(fields), max_size=3)) if fields else []
    needed = [field for field in fields if field.default is field.default_factory is dataclasses.MISSING]
    options = {name: data.draw(nasty, label=name) for name in {field.name: None for field in [*chosen, *needed]}}
    works_or_says_why(lambda: repr(kind(**options)))


@pytest.mark.parametrize("kind", CONSTRUCTORS, ids=lambda kind: kind.__name__)
def test_every_field_with_everything(kind):
    fields = [field for field in dataclasses.fields(kind) if field.init]
    needed = [field for field in fields if field.default is field.default_factory is dataclasses.MISSING]
    if len(needed) > 1:
        pytest.skip("more than one field has to be given; drawn together above")
    for field in fields:
        if needed and needed[0] is not field:
            continue
        for value in NASTY:
            works_or_says_why(lambda name=field.name, value=value: repr(kind(**{name: value})))


@pytest.fixture(scope="module")
def run():
    return bt.train(TASK, model=SMALL, epochs=2, progress=False)


OPTIONS = [
    "seed", "init_seed", "train_fraction", "split_by", "batch_size", "optimizer", "lr", "weight_decay", "betas",
    "momentum", "loss", "warmup", "max_grad_norm", "record_every", "stop_after_grok", "grok_threshold", "forward",
    "device", "dtype", "checkpoint_every", "progress", "measures", "model", "stop_when", "intervention",
]  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_training(name):
    for value in NASTY:
        if name in ("stop_when", "progress") and callable(value):
            continue  # a function of each record may raise what it likes
        options = {"model": SMALL, "progress": False} | {name: value}
        works_or_says_why(lambda options=options: bt.train(TASK, epochs=1, **options))


def test_functions(run, tmp_path):
    calls = [
        *(lambda value=value: bt.Examples(**EXAMPLES | {"tokens": value}) for value in NASTY),
        *(lambda value=value: bt.Examples(**EXAMPLES | {"targets": value}) for value in NASTY),
        *(lambda value=value: bt.Examples(**EXAMPLES | {"informative": value}) for value in NASTY),
        *(lambda value=value: Ticket(value) for value in NASTY),
        *(lambda value=value: Ticket({"W": value}) for value in NASTY),
        *(lambda value=value: find_ticket(run, value) for value in NASTY),
        *(lambda value=value: find_ticket(value, 0.5) for value in NASTY),
        *(lambda value=value: ticket_config(value, find_ticket(run, 0.5)) for value in NASTY),
        *(lambda value=value: ticket_config(run, value) for value in NASTY),
        *(lambda value=value: bt.Recipe(value) for value in NASTY),
        *(lambda value=value: bt.Recipe((value,)) for value in NASTY),
        *(lambda value=value: run.grok_epoch(value) for value in NASTY),
        *(lambda value=value: run.grok_epoch(curve=value) for value in NASTY),
        *(lambda value=value: run.memorised_epoch(value) for value in NASTY),
        *(lambda value=value: run.phases(value) for value in NASTY),
        *(lambda value=value: run.phases(layer=value) for value in NASTY),
        *(lambda value=value: bt.Run.load(value) for value in NASTY if not isinstance(value, int)),
        *(lambda value=value: bt.resume(value) for value in NASTY if not isinstance(value, int)),
        *(lambda value=value: bt.measure(run.model, TASK, value) for value in NASTY),
        *(lambda value=value: bt.measure(run.model, value, bt.Accuracy()) for value in NASTY),
        *(lambda value=value: bt.measure(value, TASK, bt.Accuracy()) for value in NASTY),
        *(lambda value=value: bt.measure(run.model, TASK, bt.Accuracy(), intervention=value) for value in NASTY),
        *(lambda value=value: bt.measure(run.model, TASK, bt.Accuracy(), epoch=value) for value in NASTY),
        *(lambda value=value: TASK.split(seed=value) for value in NASTY),
        *(lambda value=value: TASK.examples(seed=value) for value in NASTY),
        *(lambda value=value: bt.build_model(TASK, d_model=value) for value in NASTY),
        *(lambda value=value: bt.build_model(TASK, dtype=value) for value in NASTY),
        *(lambda value=value: bt.build_model(value) for value in NASTY),
    ]
    unclear = []
    for call in calls:
        try:
            works_or_says_why(call)
        except Exception as error:
            unclear.append(
                f"{type(error).__name__}: {error}, of {call.__defaults__}, line {call.__code__.co_firstlineno}"
            )
    assert not unclear, "\n".join(unclear)


EXAMPLES = {
    "tokens": torch.tensor([[0, 1], [1, 0]]),
    "targets": torch.tensor([0, 1]),
    "informative": torch.tensor([[True, False], [True, False]]),
}


@pytest.mark.parametrize("n", [2**63 - 1, 10**9])
def test_tasks_that_no_machine_could_enumerate(n):
    for task in (lambda: bt.SparseParity(n=n, k=3), lambda: bt.ModularAddition(p=n)):
        works_or_says_why(lambda task=task: bt.train(task(), model=SMALL, epochs=1))

"""Whatever a public constructor or function is given, it works or says in one line what it wants instead."""

import dataclasses
import inspect
import math
import os
import random
import typing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from attacking import times
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket import analysis
from bayesticket.analysis import Ticket, find_ticket
from bayesticket.cli.main import main
from bayesticket.errors import shown
from bayesticket.paper.figure import Scale
from bayesticket.specs import Spec

TASK, SMALL = bt.ModularAddition(p=5), bt.Architecture(d_model=8, d_mlp=8)
HUGE = 10**400
NASTY = [
    None, True, False, 0, -1, 1, 3, 2**63, -(2**63) - 1, HUGE, -HUGE, 0.0, -0.0, 0.5, 1e308, -1e308, 1e-320, math.nan,
    math.inf, -math.inf, 1j, "", "a", "oracle", "a\0b", "x" * 300, "~nouser/x", "\ud800", b"a", (), (1,), (0, 0.999),
    (1.0, 2.0, 3.0), [], [None], {}, {1: 2}, {"a": None}, set(), range(3), object, object(), len, lambda *given: None,
    torch.tensor(1.0), torch.tensor([]), torch.tensor([0.5, 0.5]), torch.tensor([math.nan]), torch.zeros(2, 3, 4, 5),
    torch.tensor([1]).as_strided((3, 2), (0, 0)), torch.ones(2, dtype=torch.bool), torch.ones(3, dtype=torch.float16),
    torch.ones(2, 2, dtype=torch.complex64), torch.tensor([1]).as_strided((2**40,), (0,)), range(10**12), TASK, SMALL,
    bt.KLPrior(), bt.Accuracy(), bt.AdamW(), bt.Window(1.0, start=3),
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


def some(label: str) -> list[object]:
    """Eight of the values, others for each label; all of them in `make attack`."""
    return NASTY if times(1) > 1 else random.Random(label).sample(NASTY, 8)


def works_or_says_why(call: typing.Callable[[], object]) -> None:
    try:
        call()
    except bt.BayesticketError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 1200
        assert "\0" not in message


def unclear(calls: typing.Iterable[tuple[str, typing.Callable[[], object]]]) -> list[str]:
    """What became of the calls that neither worked nor said why not in a line, by label."""
    found = []
    for label, call in calls:
        try:
            works_or_says_why(call)
        except Exception as error:
            found.append(f"{label}: {type(error).__name__}: {error}")
    return found


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
def test_every_field(kind):
    fields = [field for field in dataclasses.fields(kind) if field.init]
    needed = {field.name for field in fields if field.default is field.default_factory is dataclasses.MISSING}
    # Where several fields have to be given, they are drawn together above.
    names = [field.name for field in fields if needed <= {field.name}]
    calls = (
        (f"{name}={shown(value)}", lambda name=name, value=value: repr(kind(**{name: value})))
        for name in names
        for value in some(f"{kind.__name__}.{name}")
    )
    assert not (found := unclear(calls)), "\n".join(found)


FAST = {"model": SMALL, "epochs": 1, "progress": False}
EXAMPLES = {
    "tokens": torch.tensor([[0, 1], [1, 0]]),
    "targets": torch.tensor([0, 1]),
    "informative": torch.tensor([[True, False], [True, False]]),
}
MAY_BE_A_FUNCTION = {"progress", "stop_when"}
"""Options that may be a function of each record, which may raise what it likes."""


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> SimpleNamespace:
    """What functions may be given: a run, where it is saved, a sweep, and what comes of them."""
    store, run = tmp_path_factory.mktemp("runs"), bt.train(TASK, snapshots=[0], **FAST)
    runs = bt.sweep(TASK, {"none": None, "kl": bt.KLPrior()}, seeds=[0, 1], store=store / "sweep", workers=1, **FAST)
    seen = {"model": run.model, "batch": TASK.split().test}
    at_work = {"executor": ThreadPoolExecutor(1), "workers": None, "progress": False}
    ticket, saved = find_ticket(run), run.save(store / "saved")
    return SimpleNamespace(run=run, runs=runs, seen=seen, at_work=at_work, ticket=ticket, saved=saved)


TIMES = analysis.Times.of([3, 4, 5], trained=[9, 9, 9])
LAW = {"strengths": [0.1, 1.0], "times_by_strength": [TIMES, TIMES]}
SWEPT = {"task": TASK, "interventions": {"none": None}, "seeds": [0], "store": "swept"}
FUNCTIONS: dict[str, typing.Callable[[SimpleNamespace], tuple[typing.Callable, dict]]] = {
    "train": lambda world: (bt.train, {"task": TASK, **FAST}),
    "resume": lambda world: (bt.resume, {"store": world.saved}),
    "sweep": lambda world: (bt.sweep, SWEPT | {"options": {"model": SMALL, "epochs": 1}} | world.at_work),
    "grid": lambda world: (bt.grid, {"axes": {"intervention": {"none": None}, "lr": [1e-3]}}),
    "reproduce": lambda world: (bt.reproduce, {"figures": "fig1", "scale": Scale(1, 1, 5, 1), **world.at_work}),
    "measure": lambda world: (bt.measure, {**world.seen, "measures": (bt.Accuracy(),)}),
    "key_frequencies": lambda world: (bt.key_frequencies, world.seen),
    "build_model": lambda world: (bt.build_model, {"task": TASK, "d_model": 8, "d_mlp": 8}),
    "as_optimizer": lambda world: (bt.as_optimizer, {"given": "adamw", "settings": {"lr": 1e-3}}),
    "find_ticket": lambda world: (bt.find_ticket, {"run": world.run}),
    "random_ticket": lambda world: (bt.random_ticket, {"like": world.ticket}),
    "same_norm": lambda world: (bt.same_norm, {"model": world.run, "ticket": world.ticket}),
    "jaccard_distance": lambda world: (bt.jaccard_distance, {"a": world.ticket, "b": world.ticket}),
    "rewind": lambda world: (bt.rewind, {"run": world.run}),
    "retrain": lambda world: (bt.retrain, {"run": world.run, "ticket": world.ticket, "options": {"epochs": 1}}),
    "ticket_config": lambda world: (bt.ticket_config, {"config": world.run.config, "ticket": world.ticket}),
    "spec": lambda world: (bt.spec, {}),
    "film": lambda world: (bt.film, {"runs": world.run, "path": "film.html"}),
    "Tracker": lambda world: (bt.Tracker, {"module": SimpleNamespace(init=print, log=print, finish=print)}),
    "TensorBoard": lambda world: (bt.TensorBoard, {"directory": "logs"}),
    "Run.at": lambda world: (world.run.at, {"epoch": 0}),
    "Run.nearest_epoch": lambda world: (world.run.nearest_epoch, {"epoch": 0}),
    "Run.measure": lambda world: (world.run.measure, {"measures": (bt.Accuracy(),)}),
    "Run.grok_epoch": lambda world: (world.run.grok_epoch, {}),
    "Run.memorised_epoch": lambda world: (world.run.memorised_epoch, {}),
    "Run.stable_after": lambda world: (world.run.stable_after, {}),
    "Run.phases": lambda world: (world.run.phases, {}),
    "Run.save": lambda world: (world.run.save, {"path": "saved"}),
    "Run.load": lambda world: (bt.Run.load, {"path": world.saved}),
    "Runs.sel": lambda world: (world.runs.sel, {"axes": {"seed": 0}}),
    "Runs.run": lambda world: (world.runs.run, {"arm": "kl", "seed": 0}),
    "Runs.grok_epochs": lambda world: (world.runs.grok_epochs, {}),
    "Runs.memorised_epochs": lambda world: (world.runs.memorised_epochs, {}),
    "Runs.times": lambda world: (world.runs.times, {"arm": "kl"}),
    "Runs.compare": lambda world: (world.runs.compare, {"arm": "kl", "other": "none"}),
    "Runs.predict": lambda world: (world.runs.predict, {"measure": "mlp_norm", "epoch": 0}),
    "Runs.plot": lambda world: (world.runs.plot, {}),
    "RunDirectory": lambda world: (bt.RunDirectory, {"path": "saved"}),
    "Recipe.attach": lambda world: (bt.KLPrior().attach, world.seen),
    "Times.of": lambda world: (analysis.Times.of, {"reached": [3, None, 5], "trained": [9, 9, 9]}),
    "median_time": lambda world: (analysis.median_time, {"times": TIMES}),
    "compare_times": lambda world: (analysis.compare_times, {"times": TIMES, "other": TIMES}),
    "power_law": lambda world: (analysis.power_law, LAW | {"floor": False}),
    "added_rates": lambda world: (analysis.added_rates, LAW | {"floor": False}),
    "find_phases": lambda world: (analysis.find_phases, {"curves": world.run.curves}),
    "Task.split": lambda world: (TASK.split, {}),
    "Task.examples": lambda world: (TASK.examples, {}),
    "Examples": lambda world: (bt.Examples, EXAMPLES),
    "Ticket": lambda world: (Ticket, {"masks": world.ticket.masks}),
    "Ticket of W": lambda world: (lambda mask: Ticket({"W": mask}), {}),
    "Recipe": lambda world: (lambda part: bt.Recipe((part,)), {}),
}
"""Public functions, methods of what they return, and arguments that they take."""


def with_each(name: str, function: typing.Callable, given: dict) -> typing.Iterator[tuple[str, typing.Callable]]:
    """Calls of a function in which one argument at a time is another value; the rest are arguments that it takes."""
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        for value in some(f"{name}({parameter.name})"):
            if parameter.name in MAY_BE_A_FUNCTION and callable(value):
                continue
            if parameter.name == "scale" and value is None:  # hours of training
                continue
            known = given.get(parameter.name, {})
            match parameter.kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    values: list[object] = [(value,)]
                case inspect.Parameter.VAR_KEYWORD:
                    values = [known | {option: value} for option in [*known, "nonsense", "lr"]]
                case _:
                    values = [value]
            for each in values:
                changed = given | {parameter.name: each}
                ordered = {key: changed[key] for key in signature.parameters if key in changed}
                bound, label = inspect.BoundArguments(signature, ordered), f"{name}({parameter.name}={shown(each)})"
                yield label, lambda bound=bound: function(*bound.args, **bound.kwargs)


def test_no_public_function_is_left_out():
    assert {name for name in bt.__all__ if inspect.isfunction(getattr(bt, name))} <= set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(world, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = unclear(with_each(name, *FUNCTIONS[name](world)))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("n", [2**63 - 1, 10**9])
def test_tasks_that_no_machine_could_enumerate(n):
    for task in (lambda: bt.SparseParity(n=n, k=3), lambda: bt.ModularAddition(p=n)):
        works_or_says_why(lambda task=task: bt.train(task(), model=SMALL, epochs=1))


def typed_files(directory: Path) -> dict[str, Path]:
    """Files that are no settings, by what is wrong with them."""
    (directory / "deep.toml").write_text("epochs = " + "[" * 5000 + "]" * 5000)
    (directory / "binary.toml").write_bytes(b"\xff\xfe\0")
    os.mkfifo(directory / "pipe.toml")
    names = {
        "nested": "deep.toml",
        "binary": "binary.toml",
        "a pipe": "pipe.toml",
        "a directory": ".",
        "none": "none.toml",
    }
    return {what: directory / name for what, name in names.items()} | {"endless": Path("/dev/zero")}


@pytest.mark.parametrize("what", ["nested", "binary", "a pipe", "a directory", "none", "endless"])
@pytest.mark.parametrize("command", [("train", "--config"), ("sweep",)])
def test_files_of_settings_at_the_command_line(tmp_path, capsys, command, what):
    assert main([*command, str(typed_files(tmp_path)[what])]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "options",
    [
        ("--task", "ModularAddition(" + "-" * 5000 + "5)"),
        ("--task", "(" * 3000),
        ("--intervention", "KLPrior() + " * 3000 + "KLPrior()"),
        ("--intervention", "\ud800"),
        ("--intervention", "a\0b"),
        ("--epochs", "1" * 5000),
        ("--store", "~nouser/x"),
    ],
    ids=["nested", "open", "long", "surrogate", "zero", "digits", "home"],
)
def test_odd_texts_at_the_command_line(capsys, options):
    assert main(["train", "--epochs", "1", *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1

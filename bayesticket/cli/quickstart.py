"""The first thing to run: three models at the paper's full scale, with and without the prior, and a page about them."""

import os
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bayesticket.errors import require_integer
from bayesticket.files import prepare_directory
from bayesticket.interventions import KLPrior, as_recipe
from bayesticket.model import Architecture
from bayesticket.runs import Run, RunDirectory, TrainConfig, describe_config
from bayesticket.specs import field_names, spec_id
from bayesticket.sweeps import load_runs, train_missing
from bayesticket.tasks import ModularAddition

if TYPE_CHECKING:
    from bayesticket.figures import Section

LABELS = {"none": "no intervention", "kl": "KL to the oracle", "adversarial": "KL to the distractors"}
"""The arms: the names of their directories, and what they are called."""
ORDER = ("none", "adversarial", "kl")
"""Longest first, so that two processes end at about the same time."""
STRENGTH = 1.0
PATIENCE = 300
"""Epochs that a run goes on after it has grokked."""


@dataclass(frozen=True)
class Quickstart:
    """What `quickstart` leaves: the runs by arm, and the page."""

    runs: dict[str, Run]
    page: Path


def quickstart(
    out: Path | str = Path("quickstart"),
    *,
    epochs: int = 8_000,
    seed: int = 0,
    p: int = 113,
    workers: int = 2,
    open_browser: bool = False,
) -> Quickstart:
    """Trains modular addition without a prior, with one toward the oracle, and with one toward the distractors.

    The runs are kept in `out/runs`, and `out/index.html` shows them. What is complete there is not trained again, and
    what was interrupted goes on where it was. Ctrl-C ends the program, with a line on how to continue.

    Args:
        out: Directory for the runs and the page.
        epochs: Most epochs to train; a run ends earlier, some time after it has grokked.
        seed: Decides initialisation and split, the same for all three runs.
        p: The modulus of the addition.
        workers: Processes to train in, one thread each.
        open_browser: Show the page in a browser at the end.
    """
    require_integer("workers", workers, least=1)
    directory = prepare_directory("out", out)
    arms = configurations(epochs=epochs, seed=seed, p=p)
    configs = {(LABELS[arm], seed): arms[arm] for arm in ORDER}
    store = directory / "runs"
    _require_no_others(store, arms)
    try:
        train_missing(configs, store, workers=workers, progress=True)
    except KeyboardInterrupt:
        print(f"Stopped; what was trained is in {directory}. To continue, run the same command again.", flush=True)
        raise SystemExit(130) from None
    loaded = load_runs(configs, store)
    runs = {arm: loaded.run(LABELS[arm]) for arm in arms}
    page = write_report(runs, directory / "index.html")
    print(table_of(runs))
    print(f"\n{page.resolve()}")
    if open_browser:
        webbrowser.open(page.resolve().as_uri())
    return Quickstart(runs, page)


def configurations(*, epochs: int, seed: int, p: int) -> dict[str, TrainConfig]:
    """The three runs: they differ in nothing but the prior."""
    arms = {"none": None, "kl": KLPrior(strength=STRENGTH), "adversarial": KLPrior("adversarial", strength=STRENGTH)}
    return {
        arm: TrainConfig(
            task=ModularAddition(p=p),
            intervention=as_recipe(prior),
            seed=seed,
            epochs=epochs,
            stop_after_grok=PATIENCE,
            record_every=20,
        )
        for arm, prior in arms.items()
    }


def _require_no_others(store: Path, arms: Mapping[str, TrainConfig]) -> None:
    """Raises where the store holds other runs, since the page about those would be replaced."""
    ids = {spec_id(config) for config in arms.values()}
    for path in sorted(store.iterdir()) if store.exists() else ():
        if path.name not in ids and RunDirectory(path).has_run():
            RunDirectory(path, "out").require_run(describe_config(arms["none"])[0])


# Report -----------------------------------------------------------------------------------------------------------

COLUMNS = (
    "arm",
    "memorised",
    "grokked",
    "final test accuracy",
    "informative mass least / mean",
    "epochs",
    "seconds",
)


def rows_of(runs: Mapping[str, Run]) -> list[list[str]]:
    """The numbers of each run, as text, in the order of `COLUMNS`."""

    def row(arm: str, run: Run) -> list[str]:
        last = run.curves.iloc[-1]
        reached = [
            f"not in {run.epoch:,} epochs" if epoch is None else f"{epoch:,}"
            for epoch in (run.memorised_epoch(), run.grok_epoch())
        ]
        mass = f"{last['informative_mass_least']:.3f} / {last['informative_mass_mean']:.3f}"
        accuracy = f"{last['test_accuracy']:.1%}"
        return [LABELS[arm], *reached, accuracy, mass, f"{run.epoch:,}", f"{run.seconds:.0f}"]

    return [row(arm, run) for arm, run in runs.items()]


def table_of(runs: Mapping[str, Run]) -> str:
    """The runs as a plain text table."""
    rows = [list(COLUMNS), *rows_of(runs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        " | ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([lines[0], "-+-".join("-" * width for width in widths), *lines[1:]])


def findings(runs: Mapping[str, Run]) -> list[str]:
    """What the three runs show, in paragraphs that follow from the numbers, whatever these are."""
    seed = runs["none"].config.seed
    return [
        f"{_comparison(runs['none'], runs['kl'])} {_control(runs['kl'], runs['adversarial'])}",
        f"This is one seed (seed {seed}): an illustration, not evidence. Another seed may come out differently.",
        *(_account(arm, run) for arm, run in runs.items()),
    ]


_SUBJECTS = {
    "none": "Without a prior the model",
    "kl": "With a KL prior that draws attention to the operands (the oracle) it",
    "adversarial": "With a KL prior of the same strength that draws attention to everything but the operands it",
}


def _account(arm: str, run: Run) -> str:
    memorised, grokked, last = run.memorised_epoch(), run.grok_epoch(), run.curves.iloc[-1]
    never = f"in {run.epoch:,} epochs"
    first = f"did not memorise {never}" if memorised is None else f"memorised at epoch {memorised:,}"
    second = f"did not grok {never}" if grokked is None else f"grokked at epoch {grokked:,}"
    return (
        f"{_SUBJECTS[arm]} {first} and {second}; at the end its test accuracy was {last['test_accuracy']:.1%}, "
        f"and {last['informative_mass_mean']:.1%} of its attention was on the operands."
    )


def _comparison(none: Run, kl: Run) -> str:
    without, prior = none.grok_epoch(), kl.grok_epoch()
    if without is None and prior is None:
        return "Neither the model without a prior nor the one with the prior toward the oracle grokked."
    if without is None:
        return "The model with the prior toward the oracle grokked; the one without a prior did not."
    if prior is None:
        return "The model without a prior grokked; the one with the prior toward the oracle did not."
    if without == prior:
        return f"Without a prior and with the one toward the oracle the model grokked at the same epoch, {prior:,}."
    return (
        f"With the prior toward the oracle the model grokked at epoch {prior:,}, "
        f"{abs(without - prior):,} epochs {'earlier' if prior < without else 'later'} than without a prior."
    )


def _control(kl: Run, adversarial: Run) -> str:
    oracle, distractors = kl.grok_epoch(), adversarial.grok_epoch()
    if distractors is not None:
        return f"The model with the prior toward the distractors grokked at epoch {distractors:,}."
    if oracle is None:
        return "Nor did the one with the prior toward the distractors."
    return (
        "The model with a prior of the same strength toward the distractors did not grok, "
        "so here it mattered where the prior points."
    )


def write_report(runs: Mapping[str, Run], path: Path) -> Path:
    """Writes the page about the runs; returns its path."""
    from bayesticket.figures import write_page

    return write_page(path, "With and without a prior on attention: three runs", _sections(runs))


def _sections(runs: Mapping[str, Run]) -> "list[Section]":
    from bayesticket.figures import Section, Table, mean_attention, plot_patterns, plot_runs

    config = runs["none"].config
    labels = config.task.position_labels
    split = config.split()
    patterns = {"oracle": split.test.oracle.mean(0), **{LABELS[arm]: mean_attention(run) for arm, run in runs.items()}}
    question = (
        f"A small transformer reads “{' '.join(labels)}” and is to answer, at the last position, a + b modulo "
        f"{config.task.d_vocab_out}. It sees {len(split.train):,} of the {len(split.train) + len(split.test):,} pairs "
        f"in training. Memorised means that training accuracy has reached 99%, grokked that test accuracy has."
    )
    return [
        Section("", [question, *findings(runs)]),
        Section("In numbers", [], Table(COLUMNS, rows_of(runs))),
        Section(
            "Through training",
            [
                f"A dot marks grokking; a run is stopped {PATIENCE} epochs after it, and its curves end there. "
                "Drag over a part to enlarge it, double-click to go back, click a name to hide a run."
            ],
            plot_runs({LABELS[arm]: run for arm, run in runs.items()}),
        ),
        Section(
            "Where the last position attends",
            ["Attention at the end of training, averaged over the test examples; the oracle needs only the operands."],
            plot_patterns(patterns, labels),
        ),
        Section(
            "How it was made",
            [
                "The runs differ in the prior alone. Each is stored beside this page, in the directory runs, under the "
                "id of its configuration, to be read with bayesticket.Run.load."
            ],
            Table(("setting", "value"), _settings(runs), wordy=True),
        ),
    ]


def _settings(runs: Mapping[str, Run]) -> list[list[str]]:
    config, made_with = runs["none"].config, runs["none"].made_with or {}
    split = config.split()
    return [
        ["task", f"ModularAddition(p={config.task.d_vocab_out})"],
        *([LABELS[arm], _prior_of(run)] for arm, run in runs.items()),
        ["examples", f"{len(split.train):,} to train on, {len(split.test):,} to test on"],
        ["model", f"one layer, {_sizes_of(config)}, ReLU, no LayerNorm"],
        ["optimiser", _optimizer_of(config)],
        ["schedule", f"{config.warmup} epochs of warm-up, gradient norm clipped at {config.max_grad_norm}"],
        ["epochs", f"{config.epochs:,} at most, full batch; recorded every {config.record_every}"],
        ["seed", str(config.seed)],
        ["made with", ", ".join(f"{name} {value}" for name, value in made_with.items())],
    ]


def _optimizer_of(config: TrainConfig) -> str:
    kind = type(config.optimizer)
    settings = [f"{name.replace('_', ' ')} {getattr(config.optimizer, name)}" for name in field_names(kind)]
    return ", ".join([kind.__name__, *settings])


def _prior_of(run: Run) -> str:
    priors = [part for part in run.config.intervention.parts if isinstance(part, KLPrior)]
    return " + ".join(f"KLPrior({each.target!r}, strength={each.strength})" for each in priors) or "–"


def _sizes_of(config: TrainConfig) -> str:
    assert isinstance(config.model, Architecture)
    return f"d_model {config.model.d_model}, heads {config.model.n_heads}, d_mlp {config.model.d_mlp}"


# Picture ----------------------------------------------------------------------------------------------------------


def readme_picture(runs: Mapping[str, Run], path: str | os.PathLike[str]) -> Path:
    """Writes test accuracy and informative mass of the three arms side by side, as a PNG of 1200 × 450 pixels."""
    from bayesticket.figures import side_by_side, write_picture

    figure = side_by_side({LABELS[arm]: run for arm, run in runs.items()})
    return write_picture(figure, path, width=1200, height=450)

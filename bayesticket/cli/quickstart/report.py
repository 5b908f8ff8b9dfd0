"""The page of the quick start, and the picture in the README."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bayesticket.cli.quickstart.account import COLUMNS, findings, rows_of
from bayesticket.cli.quickstart.arms import LABELS, rule_of
from bayesticket.interventions import KLPrior
from bayesticket.model import Architecture
from bayesticket.runs import Run, TrainConfig
from bayesticket.specs import field_names

if TYPE_CHECKING:
    from bayesticket.figures import Section


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
    unseen = (
        "Since a + b = b + a, a model that reads both operands alike answers (b, a) once it has memorised (a, b). "
        "Unseen pairs are the test examples whose mirror image is not in training either."
    )
    return [
        Section("", [question, unseen, *findings(runs)]),
        Section("In numbers", [rule_of(config)], Table(COLUMNS, rows_of(runs))),
        Section(
            "Through training",
            [
                "A dot marks grokking. Drag over a part to enlarge it, double-click to go back, click a name to hide a "
                "run."
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
        ["model", f"one layer, {_sizes_of(config)}, ReLU, no LayerNorm, {_path_of(config)}"],
        ["optimiser", _optimizer_of(config)],
        ["schedule", f"{config.warmup} epochs of warm-up, gradient norm clipped at {config.max_grad_norm}"],
        ["epochs", f"{config.epochs:,} at most, full batch; recorded every {config.record_every}"],
        ["seed", str(config.seed)],
        ["when a run ends", f"stop_after_grok={config.stop_after_grok}, stop_when={config.stop_when!r}"],
        ["made with", ", ".join(f"{name} {value}" for name, value in made_with.items())],
    ]


def _optimizer_of(config: TrainConfig) -> str:
    kind = type(config.optimizer)
    settings = [f"{name.replace('_', ' ')} {getattr(config.optimizer, name)}" for name in field_names(kind)]
    return ", ".join([kind.__name__, *settings])


def _prior_of(run: Run) -> str:
    priors = [part for part in run.config.intervention.parts if isinstance(part, KLPrior)]
    return " + ".join(f"KLPrior({each.target!r}, strength={each.strength})" for each in priors) or "–"


def _path_of(config: TrainConfig) -> str:
    assert isinstance(config.model, Architecture)
    return "with a residual path" if config.model.has_residual else "no residual path, as in the paper's minimal model"


def _sizes_of(config: TrainConfig) -> str:
    assert isinstance(config.model, Architecture)
    return f"d_model {config.model.d_model}, heads {config.model.n_heads}, d_mlp {config.model.d_mlp}"


# Picture ----------------------------------------------------------------------------------------------------------


def readme_picture(runs: Mapping[str, Run], path: str | os.PathLike[str]) -> Path:
    """Writes test accuracy and informative mass of the three arms side by side, as a PNG of 1200 × 450 pixels."""
    from bayesticket.figures import side_by_side, write_picture

    figure = side_by_side({LABELS[arm]: run for arm, run in runs.items()})
    return write_picture(figure, path, width=1200, height=450)

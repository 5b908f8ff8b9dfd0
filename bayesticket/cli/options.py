"""Options of the command line: from flags, and for training also from a TOML file."""

import io
import sys
import tomllib
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar, get_args

import tyro

from bayesticket.cli.expressions import parse_intervention, parse_optimizer, parse_spec
from bayesticket.errors import BayesticketError, refuse, refuse_name, require_integer
from bayesticket.files import one_line, require_path
from bayesticket.interventions import Intervention
from bayesticket.measures import Measure
from bayesticket.model import Architecture
from bayesticket.optim import LossFunction, Optimizer
from bayesticket.runs import CHECKPOINT_EVERY, StopRule, TrainConfig, configure_from
from bayesticket.schedules import Schedule
from bayesticket.specs import Spec, field_names
from bayesticket.tasks import AbstractTask

T = TypeVar("T")


@dataclass(frozen=True)
class TrainOptions:
    """Trains one model, as the paper does unless told otherwise.

    --config PATH reads options from a TOML file, named as here but with underscores; flags override it.
    """

    config: tyro.conf.OmitArgPrefixes[TrainConfig] = field(default_factory=TrainConfig)
    lr: float | Schedule | None = None
    """Learning rate of the optimiser, in place of its own; a number, or as "Anneal(1e-3, 0.0, last=10_000)"."""
    weight_decay: float | Schedule | None = None
    """Weight decay of the optimiser, in place of its own; a number or a schedule."""
    betas: tuple[float, float] | None = None
    """Averaging of AdamW, Muon and Lion, in place of their own."""
    momentum: float | None = None
    """Momentum of SGD, in place of its own."""
    store: Path | None = None
    """Directory for checkpoints and the finished run. One that holds this very run is continued."""
    checkpoint_every: int = CHECKPOINT_EVERY
    """Epochs between checkpoints."""
    threads: int = 1
    """torch threads; more than one pays only on a machine that does nothing else."""

    def configured(self) -> TrainConfig:
        """The configuration, with the settings of its optimiser."""
        settings = {name: getattr(self, name) for name in SETTINGS}
        return configure_from(self.config, settings)


SETTINGS = ("lr", "weight_decay", "betas", "momentum")
RUNNING = ("store", "checkpoint_every", "threads")
"""Options about how a run is trained, which do not decide what it computes."""


def read_train_options(arguments: Sequence[str]) -> tuple[TrainOptions, str | None]:
    """The options of `bayesticket train`, and the text of the TOML file they were read from, if any."""
    path, rest = _take_config(list(arguments))
    if path is None:
        return _in_our_words(lambda: read_options(TrainOptions, "train", rest)), None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise refuse("--config", str(path), f"a TOML file that can be read ({one_line(error)})") from error
    default = _from_toml(text, path)
    return _in_our_words(lambda: read_options(TrainOptions, "train", rest, default=default)), text


def _in_our_words(read: Callable[[], T]) -> T:
    """Reads options, and raises the library's own error where tyro would print it in a box."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return read()
    except SystemExit as stop:
        reason: BaseException | None = stop
        while reason is not None:
            if isinstance(reason, BayesticketError):
                raise reason from None
            reason = reason.__cause__ or reason.__context__
        print(said.getvalue(), end="", file=sys.stderr)
        raise


def read_options(command: Callable[..., T], name: str, arguments: Sequence[str], default: T | None = None) -> T:
    """Calls a command with options from the command line; `--help` shows every one with its default and meaning."""
    call = partial(tyro.cli, command, prog=f"bayesticket {name}", args=list(arguments), registry=_registry())
    return call() if default is None else call(default=default)  # type: ignore[arg-type]


def _take_config(arguments: list[str]) -> tuple[Path | None, list[str]]:
    for place, argument in enumerate(arguments):
        if argument == "--config":
            if place + 1 == len(arguments):
                raise refuse("--config", "nothing", "the path of a TOML file")
            return Path(arguments[place + 1]), arguments[:place] + arguments[place + 2 :]
        if argument.startswith("--config="):
            return Path(argument.removeprefix("--config=")), arguments[:place] + arguments[place + 1 :]
    return None, arguments


def _from_toml(text: str, path: Path) -> TrainOptions:
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise refuse("--config", str(path), f"a TOML file ({error})") from error
    known = [*field_names(TrainConfig), *SETTINGS]
    for name in given:
        if name not in known and name not in RUNNING:
            raise refuse_name(f"{path}: key", name, [*known, *RUNNING])
    running = {name: given.pop(name) for name in RUNNING if name in given}
    if "store" in running:
        running["store"] = require_path(f"{path}: store", running["store"], "the path of a directory, as text")
    for name in ("checkpoint_every", "threads"):
        require_integer(f"{path}: {name}", running.get(name, 1), least=1)
    # Every value is checked where the configuration is made, with an error that says what is accepted.
    config = configure_from(None, {name: _typed(name, value) for name, value in given.items()})
    return TrainOptions(config=config, **running)


KINDS: dict[str, type[Spec]] = {
    "task": AbstractTask,
    "model": Architecture,
    "loss": LossFunction,
    "stop_when": StopRule,
}
"""Options that are written as a specification, such as "ModularAddition(p=7)"."""


def _typed(name: str, value: object) -> object:
    if name == "intervention":
        return parse_intervention(str(value))
    if name == "optimizer":
        return parse_optimizer(str(value))
    if name in KINDS:
        return parse_spec(str(value), name, KINDS[name])
    if name in ("lr", "weight_decay") and isinstance(value, str):
        return parse_spec(value, name, Schedule)
    if name == "measures":
        if not isinstance(value, list):
            raise refuse(name, value, 'a list, such as ["AttentionEntropy()"]')
        return tuple(parse_spec(str(entry), name, Measure) for entry in value)
    return tuple(value) if isinstance(value, list) else value


def _registry() -> tyro.constructors.ConstructorRegistry:
    """Teaches tyro to take specifications as text, such as "KLPrior(strength=1.0)"."""
    registry = tyro.constructors.ConstructorRegistry()

    @registry.primitive_rule
    def specification(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec | None:
        kinds = get_args(info.type) or (info.type,)
        readers: dict[type, tuple[str, Callable[[str], Spec]]] = {
            Intervention: ("INTERVENTION", parse_intervention),
            Optimizer: ("OPTIMIZER", parse_optimizer),
            Measure: ("MEASURE", lambda text: parse_spec(text, "measures", Measure)),
            Schedule: ("SCHEDULE", lambda text: parse_spec(text, "schedule", Schedule)),
            **{kind: (name.upper(), partial(parse_spec, field=name, kind=kind)) for name, kind in KINDS.items()},
        }
        if kinds[0] not in readers or info.type_origin is tuple:
            return None
        metavar, read = readers[kinds[0]]
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar=metavar,
            instance_from_str=lambda given: read(given[0]),
            is_instance=lambda value: isinstance(value, (*kinds,)),
            str_from_instance=lambda value: [repr(value)],
        )

    return registry

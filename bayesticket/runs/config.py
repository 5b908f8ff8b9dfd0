"""Everything that decides what a training run computes, as one specification."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Literal, Unpack, get_args

import torch

from bayesticket.attention import require_same_tokens
from bayesticket.errors import refuse, require_choice, require_integer, require_number, require_several
from bayesticket.interventions import Intervention, Recipe, as_recipe
from bayesticket.measures import Measure, names_evaluation
from bayesticket.model import FORWARDS, Architecture, HookedTransformer, require_device
from bayesticket.optim import AdamW, CrossEntropy, LossFunction, Optimizer, as_optimizer, optimizer_kinds, require_dtype
from bayesticket.runs.options import Options
from bayesticket.runs.stopping import StopRule, require_stop_rule
from bayesticket.specs import Spec, field_names, spec
from bayesticket.tasks import AbstractTask, ModularAddition, Split, SplitBy


@spec(kw_only=True)
class TrainConfig(Spec):
    """The options of a training run; the defaults are the paper's, where it names them.

    >>> TrainConfig(seed=3)
    TrainConfig(seed=3)
    """

    task: AbstractTask = field(default_factory=ModularAddition)
    """What is learned, as "ModularAddition(p=113, distractors='constant')"."""
    intervention: Intervention = field(default_factory=Recipe)
    """What is done to the model, as "KLPrior(strength=1.0) + NormMatch(radius=30.0)"; nothing by default."""
    model: Architecture | HookedTransformer = field(default_factory=Architecture)
    """The model, as "Architecture(n_heads=4, n_layers=2)"; in Python also any HookedTransformer, which is copied."""
    measures: tuple[Measure, ...] = ()
    """What is recorded beside loss, accuracy, KL to the oracle, informative mass, MLP norm and attention gradient."""
    evaluate: Mapping[str, AbstractTask] | None = None
    """Other tasks to record loss and accuracy on, as "T=12: ModularAddition(p=113, n_distractors=8)"; by label."""
    seed: int = 0
    """Decides initialisation, split, batches and noise."""
    init_seed: int | None = None
    """Decides the initialisation alone; `seed` by default."""
    split_seed: int | None = None
    """Decides the split and the distractors alone; `seed` by default."""
    batch_seed: int | None = None
    """Decides the order of batches and the noise of interventions alone; `seed` by default."""
    train_fraction: float = 0.3
    """Share of the examples that is trained on."""
    split_by: SplitBy = "example"
    """Whether single examples are drawn for training, or whole orbits: then no test example mirrors a training one."""
    epochs: int = 10_000
    """How many times to go through the training examples."""
    batch_size: int | None = None
    """Examples in one optimiser step; all of them by default, as in the paper."""
    optimizer: Optimizer = field(default_factory=AdamW)
    """The optimiser, as "Muon(lr=0.02)", or a word, as "adamw"; its learning rate is reached after the warm-up."""
    loss: LossFunction = field(default_factory=CrossEntropy)
    """What is minimised beside penalties, as "CrossEntropy(dtype='float64')" or "StableMax()"."""
    warmup: int = 10
    """Epochs over which the learning rate rises to its value."""
    max_grad_norm: float | None = 1.0
    """Gradients of a larger norm are scaled down to it."""
    record_every: int = 10
    """Epochs between records."""
    stop_after_grok: int | None = None
    """Epochs to go on after test accuracy has reached `grok_threshold`; to the end by default."""
    grok_threshold: float = 0.99
    """The test accuracy that counts as grokking."""
    stop_when: StopRule | None = None
    """A rule by which to stop, as "Stalls('test_accuracy', over=2000)" or "Reaches('unseen_accuracy', 0.99)"."""
    forward: Literal["auto", "fast", "full"] = "auto"
    """The query-only forward, TransformerLens' full one, or the first where it serves and the second elsewhere."""
    device: str = "auto"
    """"cpu", "cuda", …; "auto" takes a GPU where there is one."""
    dtype: Literal["float32", "float64"] | None = None
    """Precision of the model; by default float32, and for a HookedTransformer that is given its own."""

    def __post_init__(self):
        object.__setattr__(self, "intervention", as_recipe(self.intervention))
        object.__setattr__(self, "optimizer", as_optimizer(self.optimizer))
        measures = require_several("measures", self.measures, "a sequence of Measure objects")
        object.__setattr__(self, "measures", tuple(measures))
        object.__setattr__(self, "evaluate", require_evaluations(self.evaluate))
        self._check_kinds()
        self._check_numbers()
        for each in (*self.intervention.parts, *self.measures):
            require_same_tokens(each, self.task)

    def _check_kinds(self) -> None:
        if not isinstance(self.task, AbstractTask):
            raise refuse("task", self.task, "a task, such as ModularAddition(p=113)")
        if not isinstance(self.model, Architecture | HookedTransformer):
            raise refuse("model", self.model, "a HookedTransformer, or an Architecture")
        for measure in self.measures:
            if not isinstance(measure, Measure):
                raise refuse("measures", measure, "Measure objects, such as AttentionEntropy()")
            _ = measure.recorded_on  # raises unless these are parts of the split
        if not isinstance(self.loss, LossFunction):
            raise refuse("loss", self.loss, "a loss, such as CrossEntropy()")
        require_choice("forward", self.forward, FORWARDS)
        require_dtype("dtype", self.dtype)
        require_choice("split_by", self.split_by, get_args(SplitBy))
        require_stop_rule(self.stop_when)
        self._check_device()

    def _check_device(self) -> None:
        if not isinstance(self.device, str | torch.device):
            raise refuse("device", self.device, '"auto", or a device that torch can use here')
        object.__setattr__(self, "device", str(self.device))
        if self.device == "auto":
            return
        require_device("device", self.device)
        if torch.device(self.device).type == "meta":
            raise refuse("device", self.device, "a device that holds numbers, such as cpu")

    def _check_numbers(self) -> None:
        for name, least in (("seed", 0), ("epochs", 1), ("warmup", 0), ("record_every", 1)):
            require_integer(name, getattr(self, name), least=least)
        optional = (("init_seed", 0), ("split_seed", 0), ("batch_seed", 0), ("batch_size", 1), ("stop_after_grok", 0))
        for name, least in optional:
            if getattr(self, name) is not None:
                require_integer(name, getattr(self, name), least=least)
        require_number("train_fraction", self.train_fraction, above=0.0, below=1.0)
        if self.max_grad_norm is not None:
            require_number("max_grad_norm", self.max_grad_norm, above=0.0)
        require_number("grok_threshold", self.grok_threshold, above=0.0, most=1.0)

    def split(self) -> Split:
        """The examples to train and to test on."""
        return self.task.split(self.train_fraction, self.seed_of("split"), self.split_by)

    def seed_of(self, purpose: Literal["init", "split", "batch"]) -> int:
        """The seed of one purpose."""
        own = getattr(self, f"{purpose}_seed")
        return self.seed if own is None else own


def require_evaluations(given: object) -> dict[str, AbstractTask] | None:
    """Tasks by label, or None; raises unless they are tasks, and curves can be named after the labels."""
    accepted = 'tasks by label, such as {"T=12": ModularAddition(p=113, n_distractors=8)}'
    if given is None:
        return None
    if not isinstance(given, Mapping) or not given:
        raise refuse("evaluate", given, f"{accepted}, or None")
    for label, task in given.items():
        if not names_evaluation(label) or label in ("type", "tensor"):  # which have a meaning in descriptions
            raise refuse("evaluate", label, f"{accepted}, and labels of printed characters without '/' and brackets")
        if not isinstance(task, AbstractTask):
            raise refuse(f"evaluate[{label!r}]", task, "a task, such as ModularAddition(p=113, n_distractors=8)")
    return dict(given)


def resolve_device(device: str) -> str:
    """The device that "auto" stands for here."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def option_names() -> list[str]:
    """The options of `train` that decide what a run computes: those of `TrainConfig`, and settings of optimisers."""
    settings = {name: None for kind in optimizer_kinds().values() for name in field_names(kind)}
    return [*field_names(TrainConfig), *settings]


def configure(base: TrainConfig | None = None, /, **options: Unpack[Options]) -> TrainConfig:
    """A configuration from the options of `train`: fields of `TrainConfig`, and settings of its optimiser.

    They replace those of `base`, by default the paper's configuration. Settings of the optimiser that are None are left
    as they are, and so are `loss` and `model`.

    >>> configure(seed=3, optimizer="muon", lr=0.02)
    TrainConfig(seed=3, optimizer=Muon(lr=0.02))
    >>> configure(configure(lr=0.02), weight_decay=0.1).optimizer
    AdamW(lr=0.02, weight_decay=0.1)
    """
    return configure_from(base, options)


def configure_from(base: TrainConfig | None, options: Mapping[str, object]) -> TrainConfig:
    """`configure` for options whose names and types no type checker has seen."""
    base = base or TrainConfig()
    known = option_names()
    for name in options:
        require_choice("option", name, known)
    fields = field_names(TrainConfig)
    own = {name: options[name] for name in options if name not in fields}
    unset = [name for name in ("loss", "model") if options.get(name) is None]
    given = {name: value for name, value in options.items() if name in fields and name not in unset}
    if "intervention" in given:
        given["intervention"] = as_recipe(given["intervention"])
    optimizer = as_optimizer(given.pop("optimizer", base.optimizer), **own)
    return replace(base, optimizer=optimizer, **given)  # type: ignore[arg-type]

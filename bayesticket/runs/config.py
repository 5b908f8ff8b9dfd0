"""Everything that decides what a training run computes, as one comparable and storable object."""

from collections.abc import Iterable
from dataclasses import field
from typing import Literal

import torch

from bayesticket.errors import refuse, refuse_name, require_integer, require_number
from bayesticket.interventions import Intervention, Recipe, as_recipe
from bayesticket.measures import Measure
from bayesticket.model import FORWARDS, Architecture, HookedTransformer, require_device
from bayesticket.optim import OPTIMIZERS
from bayesticket.specs import Spec, spec
from bayesticket.tasks import AbstractTask, ModularAddition, require_seed

DTYPES = ("float32", "float64")


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
    """The one-layer model, as "Architecture(n_heads=4)"; in Python also any HookedTransformer, which is copied."""
    measures: tuple[Measure, ...] = ()
    """What is recorded beside loss, accuracy, KL to the oracle, informative mass, MLP norm and attention gradient."""
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
    epochs: int = 10_000
    """How many times to go through the training examples."""
    batch_size: int | None = None
    """Examples in one optimiser step; all of them by default, as in the paper."""
    optimizer: Literal["adamw", "sgd", "muon", "lion"] = "adamw"
    """Optimiser."""
    lr: float = 1e-3
    """Learning rate."""
    weight_decay: float = 1.0
    """Weight decay, decoupled except for sgd, on every parameter; it contracts by lr · weight_decay a step."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Averaging of AdamW, Muon and Lion."""
    momentum: float = 0.0
    """Momentum of sgd."""
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
    forward: Literal["auto", "fast", "full"] = "auto"
    """The query-only forward, TransformerLens' full one, or the first where it serves and the second elsewhere."""
    device: str = "auto"
    """"cpu", "cuda", …; "auto" takes a GPU where there is one."""
    dtype: Literal["float32", "float64"] | None = None
    """Precision of the model; by default float32, and for a HookedTransformer that is given its own."""
    loss_dtype: Literal["float32", "float64"] | None = None
    """Precision of the loss; that of the model by default. A float32 loss stops giving gradient near 1e-7."""

    def __post_init__(self):
        object.__setattr__(self, "intervention", as_recipe(self.intervention))
        for name, accepted in (("measures", "a sequence of Measure objects"), ("betas", "two numbers")):
            if isinstance(given := getattr(self, name), str) or not isinstance(given, Iterable):
                raise refuse(name, given, accepted)
            object.__setattr__(self, name, tuple(given))
        self._check_kinds()
        self._check_numbers()

    def _check_kinds(self) -> None:
        if not isinstance(self.task, AbstractTask):
            raise refuse("task", self.task, "a task, such as ModularAddition(p=113)")
        if not isinstance(self.model, Architecture | HookedTransformer):
            raise refuse("model", self.model, "a HookedTransformer, or an Architecture")
        for measure in self.measures:
            if not isinstance(measure, Measure):
                raise refuse("measures", measure, "Measure objects, such as AttentionEntropy()")
        for name, names in (("optimizer", OPTIMIZERS), ("forward", FORWARDS)):
            if getattr(self, name) not in names:
                raise refuse_name(name, getattr(self, name), names)
        for name in ("dtype", "loss_dtype"):
            if (given := getattr(self, name)) is not None and given not in DTYPES:
                raise refuse_name(name, given, DTYPES)
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
        for seed in (self.seed, *map(self.seed_of, ("init", "split", "batch"))):
            require_seed(seed)
        require_number("train_fraction", self.train_fraction, above=0.0, below=1.0)
        require_number("lr", self.lr, above=0.0)
        require_number("weight_decay", self.weight_decay, least=0.0)
        require_number("momentum", self.momentum, least=0.0, below=1.0)
        if len(self.betas) != 2:
            raise refuse("betas", self.betas, "two numbers")
        for beta in self.betas:
            require_number("betas", beta, least=0.0, below=1.0)
        if self.max_grad_norm is not None:
            require_number("max_grad_norm", self.max_grad_norm, above=0.0)
        if self.momentum and self.optimizer != "sgd":
            raise refuse("momentum", self.momentum, f"0, since {self.optimizer} averages by its betas")
        require_number("grok_threshold", self.grok_threshold, above=0.0)

    def seed_of(self, purpose: Literal["init", "split", "batch"]) -> int:
        """The seed of one purpose."""
        own = getattr(self, f"{purpose}_seed")
        return self.seed if own is None else own


def resolve_device(device: str) -> str:
    """The device that "auto" stands for here."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"

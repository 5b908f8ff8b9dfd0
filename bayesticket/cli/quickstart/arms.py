"""What the quick start trains, and the rule that ends a run."""

from bayesticket.interventions import KLPrior, as_recipe
from bayesticket.runs import Stalls, TrainConfig, configure
from bayesticket.tasks import ModularAddition

LABELS = {"none": "no intervention", "kl": "KL to the oracle", "adversarial": "KL to the distractors"}
"""The arms: the names of their directories, and what they are called."""
ORDER = ("kl", "none", "adversarial")
"""In which order they are started: the one that groks first, since it has the most to show."""
STRENGTH = 1.0
EPOCHS = 3_000
PATIENCE = 300
"""Epochs that a run goes on after it has grokked."""
STALLED = Stalls("test_accuracy", over=2_000, by=0.02, memorised=0.0)
"""When a run that does not grok is stopped: after more epochs than the one with the prior toward the oracle takes."""


def configurations(*, epochs: int, seed: int, p: int) -> dict[str, TrainConfig]:
    """The three runs: they differ in nothing but the prior. The model is the paper's minimal one."""
    arms = {"none": None, "kl": KLPrior(strength=STRENGTH), "adversarial": KLPrior("adversarial", strength=STRENGTH)}
    return {
        arm: configure(
            task=ModularAddition(p=p),
            intervention=as_recipe(prior),
            seed=seed,
            epochs=epochs,
            record_every=20,
            stop_after_grok=PATIENCE,
            stop_when=STALLED,
        )
        for arm, prior in arms.items()
    }


def rule_of(config: TrainConfig) -> str:
    """When a run ends, in a sentence."""
    return (
        f"A run ends {config.stop_after_grok:,} epochs after it has grokked. One whose test accuracy has risen by no "
        f"more than {100 * STALLED.by:g} percentage points in the last {STALLED.over:,} epochs is stopped. The last "
        f"epoch is {config.epochs:,}."
    )

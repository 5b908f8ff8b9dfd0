"""Made-up curves of runs that memorise and grok when they are told to, and datasets of them."""

import numpy as np
import pandas as pd

from bayesticket.runs import Header, configure, describe_config
from bayesticket.sweeps import RunSummary, assemble

EPOCHS = np.arange(0, 10_001, 20)


def story(memorised=300, grokked=None, **columns):
    """The curves of a run that memorises and groks at these epochs, all else as told."""
    end = 10_000 if grokked is None else min(10_000, grokked + 200)
    epochs = EPOCHS[end >= EPOCHS]
    never = 10**9
    base = {
        "train_accuracy": np.where(epochs >= (never if memorised is None else memorised), 1.0, 0.1),
        "test_accuracy": np.where(epochs >= (never if grokked is None else grokked), 1.0, 0.01),
        "kl_to_oracle": np.full(len(epochs), 1.0),
        "informative_mass_mean": np.full(len(epochs), 0.5),
        "attention_gradient": np.full(len(epochs), 0.1),
        "mlp_norm": np.full(len(epochs), 20.0),
        "test_loss": np.full(len(epochs), 1.0),
        "train_loss": np.full(len(epochs), 1.0),
    }
    made = {name: value(epochs) if callable(value) else value for name, value in columns.items()}
    return pd.DataFrame(base | made, index=pd.Index(epochs, name="epoch"), dtype="float64")


def runs_of(arms):
    """A dataset of arms, each a list of curves, one for each seed."""
    runs = {
        (name, seed): RunSummary(header_of(curves, seed=seed), curves)
        for name, tables in arms.items()
        for seed, curves in enumerate(tables)
    }
    return assemble(runs)


def header_of(curves, **options):
    """The header of a run with these curves."""
    description, _ = describe_config(configure(**options))
    return Header(description, "finished", int(curves.index[-1]), 1.5, {"torch": "2"})


def verdicts(claims):
    return [claim.verdict for claim in claims]


def arms_of(epochs, jitter=0.03):
    """Arms by about when they grok; None never does."""
    rng = np.random.default_rng(0)

    def arm(epoch, n=5):
        if epoch is None or epoch > 9500:
            return [story()] * n
        return [story(grokked=int(20 * round(epoch * np.exp(jitter * rng.normal()) / 20))) for _ in range(n)]

    return runs_of({name: arm(epoch) for name, epoch in epochs.items()})

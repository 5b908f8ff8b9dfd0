"""Made-up curves of runs that memorise and grok when they are told to, and datasets of them."""

import numpy as np
import pandas as pd

from bayesticket.runs import Header, configure, describe_config
from bayesticket.sweeps import RunSummary, assemble

EPOCHS = np.arange(0, 10_001, 20)
NEVER = 10**9
FLAT = {
    "kl_to_oracle": 1.0, "test_kl_to_oracle": 1.0, "informative_mass_mean": 0.5, "informative_mass_least": 0.4,
    "attention_gradient": 0.1, "prior_gradient": 0.1, "attention_entropy": 1.0, "score_variance": 1.0,
    "mlp_norm": 20.0, "weight_norms[unembed.W_U]": 30.0, "test_loss": 1.0, "train_loss": 1.0,
    "contraction[rate]": 1e-3, "contraction[slack]": 1.5,
    **{f"explaining_away[{form}]": 1.0 for form in ("measured", "local", "global", "loose", "paper", "scaled")},
    **{f"explaining_away[{link}]": 1.0 for link in ("measured/local", "local/global", "global/loose")},
    **{f"{half}structural_condition[tau=derived][{entry}]": value for half in ("", "test_")
       for entry, value in (("share", 1.0), ("threshold", 0.05), ("share/distractors", 1.0),
                            ("threshold/distractors", 0.05))},
    **{f"test_pairwise_condition[{entry}]": value
       for entry, value in (("share", 1.0), ("least", 0.5), ("threshold", 0.05), ("share/distractors", 1.0))},
    "commutator_defect": 100.0, "effective_rank": 40.0, "fourier_gini": 0.1,
    "subspace_overlap": 0.5, "distributed_mass[2]": 0.5,
    **{f"informative_mass_least[head=each][H{head}]": 0.2 for head in range(4)},
    **{f"T={length}/{kind}_accuracy": 0.1 for length in (8, 12, 16, 24) for kind in ("test", "unseen")},
    "train_loss[query=20]": 1.0,
    **{f"separability_margin[of=readings][{entry}]": 1.0 for entry in ("least/distractors", "least/others")},
}  # fmt: skip
"""What is recorded beside accuracies, where a story says nothing of it."""


def story(memorised=300, grokked=None, **columns):
    """The curves of a run that memorises and groks at these epochs, all else as told; unseen accuracy as on all."""
    end = 10_000 if grokked is None else min(10_000, grokked + 200)
    epochs = EPOCHS[end >= EPOCHS]
    base = {
        "train_accuracy": np.where(epochs >= (NEVER if memorised is None else memorised), 1.0, 0.1),
        "test_accuracy": np.where(epochs >= (NEVER if grokked is None else grokked), 1.0, 0.01),
        **{name: np.full(len(epochs), value) for name, value in FLAT.items()},
    }
    made = {name: value(epochs) if callable(value) else value for name, value in columns.items()}
    together = base | made
    together.setdefault("unseen_accuracy", together["test_accuracy"])
    return pd.DataFrame(together, index=pd.Index(epochs, name="epoch"), dtype="float64")


def line(*points):
    """A curve through these points (epoch, value), straight between them."""
    at, values = zip(*points, strict=True)
    return lambda epochs: np.interp(epochs, at, values)


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


def arms_of(epochs, jitter=0.03, n_seeds=5):
    """Arms by about when they grok; None never does."""
    rng = np.random.default_rng(0)

    def arm(epoch):
        if epoch is None or epoch > 9500:
            return [story()] * n_seeds
        return [story(grokked=int(20 * round(epoch * np.exp(jitter * rng.normal()) / 20))) for _ in range(n_seeds)]

    return runs_of({name: arm(epoch) for name, epoch in epochs.items()})

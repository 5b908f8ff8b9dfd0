"""
Can a cap on norms take the place of weight decay?
==================================================

An intervention of one's own, with state: each weight matrix may not grow beyond a multiple of its first norm. The norms
are kept as state, which is checkpointed with the run.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import torch

import bayesticket as bt
from bayesticket.figures import plot_runs
from bayesticket.model import is_matrix

FULL = "--full" in sys.argv


@bt.spec
class NormCap(bt.Intervention):
    """Holds each matrix at no more than a multiple of its first norm."""

    factor: float = 1.0

    def init(self, context):
        matrices = {name: weight for name, weight in context.parameters.items() if is_matrix(name)}
        return {name: weight.detach().norm() for name, weight in matrices.items()}

    def project(self, context):
        with torch.no_grad():
            for name, first in context.state.items():
                weight = context.parameters[name]
                weight.mul_((self.factor * first / weight.norm()).clamp(max=1.0))


# %%
# ``init`` gives the state, ``project`` changes the parameters after each step. All other ports of
# :class:`~bayesticket.Intervention` do nothing unless they are written.

options = {
    "seeds": [0],
    "store": "runs",
    "epochs": 5_000 if FULL else 30,
    "model": bt.Architecture(residual=False),
    "stop_after_grok": 300,
    "executor": ThreadPoolExecutor(2),
}
task = bt.ModularAddition(p=113 if FULL else 5, distractors="constant")
capped = bt.sweep(
    task, {"cap 1.0": NormCap(), "cap 0.5": NormCap(factor=0.5), "neither": None}, weight_decay=0.0, **options
)
decayed = bt.sweep(task, {"decay 1.0": None}, weight_decay=1.0, **options)
runs = {arm: capped.run(arm, 0) for arm in capped.labels("intervention")} | {"decay 1.0": decayed.run("decay 1.0", 0)}
plot_runs(runs)

# %%
# In part. Without decay and without a cap, the model fits the training pairs and generalises to nothing. A cap at the
# first norms keeps it from fitting all of them, and most of what it can answer it can answer unseen. A tighter cap
# keeps it from fitting at all. With weight decay alone it fits and generalises. This is one seed.

for arm, run in runs.items():
    end = run.curves.iloc[-1]
    print(f"{arm}: generalised at {run.grok_epoch()}; at the end", end=" ")
    print(f"{end['train_accuracy']:.0%} of training pairs, {end['unseen_accuracy']:.0%} of unseen pairs")

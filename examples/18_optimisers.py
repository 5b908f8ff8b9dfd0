"""
Is it the optimiser?
====================

AdamW, Muon, Lion, and two methods that change gradients on their way into AdamW, on one task and one first set of
weights. Each has one setting; a fair comparison would sweep the settings of all.
"""

import sys

import bayesticket as bt
from bayesticket.figures import plot_runs

FULL = "--full" in sys.argv
arms = {
    "AdamW": {"optimizer": bt.AdamW(lr=1e-3, weight_decay=1.0)},
    "Muon": {"optimizer": bt.Muon(lr=0.02, weight_decay=0.1)},
    "Lion": {"optimizer": bt.Lion(lr=3e-4, weight_decay=1.0)},
    "Grokfast": {"intervention": bt.Grokfast(alpha=0.98, gain=2.0)},
    "⊥Grad": {"intervention": bt.OrthoGrad(), "weight_decay": 0.0},
}
options = {
    "epochs": 4_000 if FULL else 20,
    "model": bt.Architecture(residual=False),
    "stop_after_grok": 200,
}
task = bt.ModularAddition(p=113 if FULL else 5, distractors="constant")
runs = {}
for arm, settings in arms.items():
    runs[arm] = bt.train(task, store=f"runs/{'' if FULL else 'small-'}{arm}", **settings, **options)
plot_runs(runs)

# %%
# Muon is first in both. Grokfast adds an average of past gradients, which changes little here; AdamW divides a common
# factor of gradients out. Lion memorises late at this rate. ⊥Grad, without weight decay, has not memorised all, and
# most of what it answers it answers unseen. Whether another rate suits them is the next sweep: ``bt.grid(optimizer=…,
# lr=…)``.

for arm, run in runs.items():
    end = run.curves.iloc[-1]
    print(f"{arm}: memorised at {run.memorised_epoch()}, generalised at {run.grok_epoch()}; at the end", end=" ")
    print(f"{end['train_accuracy']:.0%} of training pairs and {end['unseen_accuracy']:.0%} of unseen pairs")

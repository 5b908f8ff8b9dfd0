"""
Can one head of a deeper model be told where to look?
=====================================================

A model of two layers with two heads each. The prior acts on one head of the first layer; what the others do is their
own affair.
"""

import sys

import bayesticket as bt
from bayesticket.figures import plot_structure

FULL = "--full" in sys.argv
task = bt.ModularAddition(p=41 if FULL else 5, distractors="constant")
options = {
    "model": bt.Architecture(n_layers=2, n_heads=2),
    "epochs": 1_500 if FULL else 30,
    "train_fraction": 0.6,
    "lr": 3e-3,
    "stop_after_grok": 200,
    "measures": [bt.InformativeMass("mean", layer="each", head="each")],
}
told = bt.train(task, bt.KLPrior(strength=1.0, layer=0, head=0), store=f"runs/two-layers-prior-{task.p}", **options)
free = bt.train(task, store=f"runs/two-layers-{task.p}", **options)
plot_structure(told)

# %%
# The head is where the prior wants it. In this one run the heads of the first layer look at the operands without a
# prior too, and nine tenths of the unseen pairs are answered no sooner. Neither run has come to 99 % of the test pairs
# yet.

for name, run in {"no prior": free, "prior on head 0 of layer 0": told}.items():
    end = run.curves.iloc[-1]
    by_head = "informative_mass_mean[layer=each,head=each][L{}H{}]"
    mass = ", ".join(f"L{layer}H{head} {end[by_head.format(layer, head)]:.2f}" for layer in (0, 1) for head in (0, 1))
    print(f"{name}: 90 % of unseen pairs at epoch {run.grok_epoch(0.9, curve='unseen_accuracy')}")
    print(f"  attention on the operands at the end: {mass}")

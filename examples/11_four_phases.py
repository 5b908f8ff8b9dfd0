"""
What happens inside, while nothing seems to happen?
===================================================

The paper tells of four phases: memorising, a plateau on which weight decay shrinks the weights, a return of the
gradient in the attention, generalising. One run, and where its phases begin by two readings.
"""

import sys

import bayesticket as bt
from bayesticket.analysis import find_phases, find_phases_by_norm
from bayesticket.figures import plot_norms, plot_pattern

FULL = "--full" in sys.argv
run = bt.train(
    bt.ModularAddition(p=113 if FULL else 7, distractors="constant"),
    model=bt.Architecture(residual=False),
    epochs=10_000 if FULL else 60,
    stop_after_grok=500,
    snapshots=bt.LogSpaced(60 if FULL else 5),
    store="runs/no-prior" if FULL else "runs/small-no-prior",
)
run.plot()

# %%
# One reading takes the phases from the gradient in the attention, the other from the training loss and the norm of the
# MLP. They nearly agree on where the plateau begins. A return is seen by the first alone, which asks for twice the
# least gradient so far: a small one, far below where the plateau began. :doc:`/results` judges the paper's claim over
# seeds.

print("by the gradient:", find_phases(run.curves))
print("by the norm:    ", find_phases_by_norm(run.curves))

# %%
# Attention on each position, mean over the test examples. It has left the other positions before the plateau begins;
# what is left to do is to look at both operands alike.

plot_pattern(run)

# %%
# The norms of the weights: on the plateau most shrink, as weight decay has it.

plot_norms(run)

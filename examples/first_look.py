"""
Does a prior on attention bring grokking forward?
=================================================

A small transformer learns modular addition twice, once with a prior that draws its attention to the operands.
The figure shows the test accuracy of both runs.
"""

import sys

import bayesticket as bt

FULL = "--full" in sys.argv
task = bt.ModularAddition(p=113 if FULL else 13, distractors="constant")
runs = bt.sweep(
    task,
    {"none": None, "kl": bt.KLPrior(strength=1.0)},
    seeds=[0],
    model=bt.Architecture(residual=False),
    store="runs/first_look",
    epochs=5_000 if FULL else 50,
    stop_after_grok=300,
)
runs.plot()

# %%
# **What it shows.** The prior adds :math:`\beta\, D(\alpha^* \| \alpha)` to the loss, by
# :class:`~bayesticket.KLPrior`. With it attention settles on the operands at once, and the model groks earlier.
#
# - ``none`` is the plain run;
# - ``kl`` has the prior.

runs

# %%
# How it is counted
# -----------------
# A run has grokked when its test accuracy first reaches 99 %; see :doc:`/theory`.

runs.grok_epochs()

"""
Can one watch a transformer grok?
=================================

A film: one slider moves attention, frequencies, neurons, accuracies and the path of the weights through training, of
two runs side by side.
"""

import sys

import bayesticket as bt
from bayesticket.figures import plot_pattern

FULL = "--full" in sys.argv
STORE = "runs/" if FULL else "runs/small-"
task = bt.ModularAddition(p=113 if FULL else 7, distractors="constant")
options = {
    "model": bt.Architecture(residual=False),
    "epochs": 10_000 if FULL else 60,
    "stop_after_grok": 500,
    "snapshots": bt.LogSpaced(60 if FULL else 5),
}
plain = bt.train(task, store=f"{STORE}no-prior", **options)
prior = bt.train(task, bt.KLPrior(strength=1.0), store=f"{STORE}kl-prior", **options)
page = bt.film({"no prior": plain, "KL prior": prior}, "film.html")
print(f"{page.name}: {page.stat().st_size / 1e6:.0f} MB, needs no network")

# %%
# The pictures of a film are also figures of their own, such as the attention of the last position.

plot_pattern(prior)

# %%
# Drag the slider, or use the arrow keys and the play button (`the film on its own page <film.html>`__).
#
# .. raw:: html
#
#     <iframe src="film.html" title="Two runs through training" loading="lazy"
#      style="width: 100%; height: 900px; border: 1px solid #ccc"></iframe>
#
# With the prior attention settles first, in both runs few frequencies come to stand out, and the unseen pairs follow.

for name, run in {"no prior": plain, "KL prior": prior}.items():
    half = run.grok_epoch(0.5, curve="unseen_accuracy")
    print(
        f"{name}: half of the unseen pairs are answered at epoch {half}, 99 % of the test pairs at {run.grok_epoch()}"
    )

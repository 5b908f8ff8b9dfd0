"""
Which algorithm has the model learned, and when?
================================================

Models that add modulo p often use a few frequencies: the numbers stand on circles, and adding is turning. Three moments
of one run, read with the tools of the field.
"""

import math
import sys

import plotly.graph_objects as go

import bayesticket as bt
from bayesticket.figures import TEMPLATE, plot_circle

FULL = "--full" in sys.argv
run = bt.train(
    bt.ModularAddition(p=113 if FULL else 7, distractors="constant"),
    model=bt.Architecture(residual=False),
    epochs=10_000 if FULL else 60,
    stop_after_grok=500,
    snapshots=bt.LogSpaced(60 if FULL else 5),
    store="runs/no-prior" if FULL else "runs/small-no-prior",
)
test = run.config.split().test
memorised, end = run.nearest_epoch(run.memorised_epoch() or 20), run.epoch
middle = run.nearest_epoch((memorised + end) // 2)
moments = [memorised, middle, end]
keys = bt.key_frequencies(run.model, test) or (1,)
plot_circle(run, keys[0], epochs=moments)

# %%
# The spectrum of the embedding, at the same three epochs: the share of each frequency.

shares = run.measure(bt.FrequencyShares(), epochs=moments)
fig = go.Figure()
for epoch, row in shares.iterrows():
    fig.add_bar(x=list(range(1, len(row) + 1)), y=row, name=f"epoch {epoch:,}")
fig.update_layout(template=TEMPLATE, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
fig.update_xaxes(title="frequency").update_yaxes(title="share", tickformat=".0%")

# %%
# Two losses tell whether the answer hangs on these frequencies: *restricted*, of logits that keep them alone, and
# *excluded*, of logits that lack them.

losses = run.measure(bt.Loss(), bt.RestrictedLoss(keys=keys), bt.ExcludedLoss(keys=keys), epochs=moments)
losses.columns = [name.split("[")[0] for name in losses.columns]
losses.round(3).T

# %%
# So the answer has two halves. The frequencies of the end are ahead already when the model has memorised; then the
# others fade. And the answer comes to hang on them: the excluded loss, on training pairs, rises above that of guessing.

leading = shares.iloc[-1].nlargest(6).index
for epoch, row in shares.iterrows():
    print(f"epoch {epoch:,}: the six frequencies that lead in the end have {row[leading].sum():.0%} of the spectrum")
print(f"key frequencies of the logits: {', '.join(map(str, keys))}")
print(f"the loss of guessing: {math.log(run.config.task.p):.2f}")

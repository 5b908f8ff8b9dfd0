"""
Does what is learned on short sequences hold on longer ones?
============================================================

A model learns to add two numbers that stand anywhere in six positions, between noise. At every record it is also asked
about sequences of twelve and of twenty-four. What its extra positions mean has to be chosen; here are three choices.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import bayesticket as bt

FULL = "--full" in sys.argv


def addition(length: int) -> bt.ModularAddition:
    return bt.ModularAddition(p=59 if FULL else 5, positions="random", n_distractors=length - 4)


rooms = {name: bt.Architecture(n_ctx=24, positions=name, residual=False) for name in ("learned", "none", "rotary")}
runs = bt.sweep(
    addition(6),
    bt.grid(model=rooms),
    seeds=[0],
    store="runs",
    epochs=6_000 if FULL else 40,
    intervention=bt.KLPrior(strength=1.0),
    evaluate={f"T={length}": addition(length) for length in (12, 24)},
    stop_after_grok=200,
    executor=ThreadPoolExecutor(2),
)
runs.plot()

# %%
# Unseen pairs that are answered at the end, in one run each. With learned positions the model does not generalise even
# at six, in as many epochs. Without positions a token means the same anywhere, and four times the length costs less
# than a point. Rotary positions turn queries and keys by their distance; in longer sequences there are distances that
# were never trained, and accuracy is lost.

for name in rooms:
    run = runs.run(name, 0)
    end = run.curves.iloc[-1]
    print(f"{name} positions: generalised at {run.grok_epoch(curve='unseen_accuracy')}; at the end", end=" ")
    print(f"{end['unseen_accuracy']:.0%} at 6", end=", ")
    print(", ".join(f"{end[f'T={length}/unseen_accuracy']:.0%} at {length}" for length in (12, 24)))

# %%
# A run that has ended can be asked about any other length, by any measure: here also how much of its attention is on
# the two operands, among sixteen other tokens.

runs.run("none", 0).evaluate(addition(18), bt.InformativeMass())

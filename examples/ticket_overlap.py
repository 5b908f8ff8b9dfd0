"""
Do the lottery tickets of different seeds have anything in common?
==================================================================

The tickets of Figure 4 are found in its dense runs, and compared with each other and with random masks.
"""

# %%
# Two tickets overlap in any case, since each keeps more of some matrices than of others; so each is also compared with
# a random mask that keeps as much of each matrix.

import itertools
import sys

import plotly.graph_objects as go

import bayesticket as bt
from bayesticket.paper.fig4 import DENSE, FIGURE, SPARSITY
from bayesticket.paper.figure import SMOKE, Scale
from bayesticket.sweeps import sweep_configs

FULL = "--full" in sys.argv
configs = FIGURE.configs(Scale() if FULL else SMOKE)
runs = sweep_configs({key: config for key, config in configs.items() if key[0] == DENSE}, store="runs/ticket_overlap")
tickets = [bt.find_ticket(runs.run(DENSE, seed), SPARSITY) for seed in runs.seeds]
distances = {
    "between seeds": [bt.jaccard_distance(one, other) for one, other in itertools.combinations(tickets, 2)],
    "to a random mask": [bt.jaccard_distance(ticket, bt.random_ticket(ticket)) for ticket in tickets],
}
figure = go.Figure([go.Box(y=values, name=name, boxpoints="all") for name, values in distances.items()])
figure.update_layout(yaxis_title="Jaccard distance", showlegend=False, template="plotly_white")

# %%
# How much each ticket removes of each matrix:

for name in tickets[0].sparsity_by_matrix:
    print(f"{name}: " + ", ".join(f"{ticket.sparsity_by_matrix[name]:.0%}" for ticket in tickets))

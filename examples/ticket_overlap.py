# %% [markdown]
# # Do the lottery tickets of different seeds have anything in common?
#
# The tickets of Figure 4 are found in its dense runs. Two of them overlap in any case, since each keeps more of some
# matrices than of others; so each is also compared with a random mask that keeps as much of each matrix. It takes
# seconds where the store of `bayesticket reproduce fig4` is there, else the time of its dense runs.

# %%
import itertools
import sys

import bayesticket as bt
from bayesticket.paper.fig4 import FIGURE
from bayesticket.paper.figure import Scale
from bayesticket.paper.tickets import DENSE, SPARSITY, name_of
from bayesticket.sweeps import sweep_configs


def main(store: str = "runs", scale: Scale | None = None) -> None:
    runs = sweep_configs(FIGURE.configs(scale or Scale()), store=store)
    tickets = [bt.find_ticket(runs.run(name_of("constant", DENSE), seed), SPARSITY) for seed in runs.seeds]
    for name in tickets[0].sparsity_by_matrix:
        removed = ", ".join(f"{ticket.sparsity_by_matrix[name]:.0%}" for ticket in tickets)
        print(f"{name}: removed {removed}")
    show("between seeds", [bt.jaccard_distance(one, other) for one, other in itertools.combinations(tickets, 2)])
    show("to a random mask", [bt.jaccard_distance(ticket, bt.random_ticket(ticket)) for ticket in tickets])


def show(what: str, distances: list[float]) -> None:
    print(f"Jaccard distance {what}: " + ", ".join(f"{distance:.3f}" for distance in sorted(distances)))


# %%
if __name__ == "__main__":
    main(*sys.argv[1:2])

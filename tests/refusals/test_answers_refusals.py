"""What is said about tasks that ask at several positions, where something does not fit."""

import pytest
import torch
from helpers import refused

import bayesticket as bt

TOKENS = [[1, 2, 3], [3, 2, 1]]
GIVEN = {
    "tokens": TOKENS,
    "targets": [[1, 2], [2, 1]],
    "informative": [[False, False, False], [True, False, True]],
    "queries": (1, 2),
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"queries": (2, 1)}, ("queries: got (2, 1)", "ascending order, 0 to 2")),
        ({"queries": (1, 1)}, ("queries: got (1, 1)",)),
        ({"queries": (1, 3)}, ("queries: got (1, 3)",)),
        ({"queries": (-1, 2)}, ("queries: got (-1, 2)",)),
        ({"queries": ()}, ("queries: got ()",)),
        ({"queries": 2}, ("queries: got 2",)),
        ({"queries": (True, 2)}, ("queries",)),
        ({"queries": "12"}, ("queries: got '12'",)),
        ({"queries": None}, ("targets: got (2, 2)", "shape (n,)")),
        ({"targets": [1, 2]}, ("targets: got (2,)", "shape (n, q)")),
        ({"targets": [[1], [2]]}, ("targets: got (2, 1)", "(2, 2), a target for each query")),
        ({"informative": [True, False, False]}, ("informative: got (3,)", "(2, 3) or (2, 2, 3)")),
        ({"informative": [[False] * 3] * 2}, ("informative: got no position for any query",)),
        ({"informative": [[False, False, True], [True] * 3]}, ("position 2 for the query at 1", "up to the query")),
        (
            {"informative": [[[True] * 2 + [False], [True] * 3], [[False] * 3, [True] * 3]]},
            ("informative[:, 0]: row 1 marks no position", "or in none"),
        ),
    ],
)
def test_data_with_queries_that_do_not_fit(change, said):
    refused(lambda: bt.Task(**(GIVEN | change)), *said)


def test_examples_with_queries_that_do_not_fit():
    tokens, targets = torch.tensor(TOKENS), torch.tensor([[1, 2], [2, 1]])
    informative = torch.tensor([[[True, False, False], [True, False, False]]] * 2)
    refused(lambda: bt.Examples(tokens, targets, informative), "Examples.targets", "(2,), one entry")
    refused(lambda: bt.Examples(tokens, targets[:, 0], informative, queries=(1, 2)), "Examples.targets", "each query")
    refused(
        lambda: bt.Examples(tokens, targets, informative[:, 0], queries=(1, 2)), "Examples.informative", "(2, 2, 3)"
    )
    refused(lambda: bt.Examples(tokens, targets, informative, queries=(0, 9)), "Examples.queries: got (0, 9)")
    asked = bt.Examples(tokens, targets, informative, queries=[1, 2])
    refused(lambda: asked.at(0), "query: got 0", "1 or 2")
    refused(lambda: asked.at(-1), "query: got none, where a task asks at the positions (1, 2)", "batch.at(2)")
    refused(lambda: asked.at("last"), "query: got 'last'")


def test_a_query_that_is_no_position_is_refused():
    for given in ("all", 1.5, True, None):
        refused(lambda given=given: bt.AttentionEntropy(query=given), "query", "a position")
        refused(lambda given=given: bt.Accuracy(query=given), "query", "a position")
    refused(lambda: bt.AttentionGradient(query="each"), "AttentionGradient.query: got 'each'")
    refused(lambda: bt.FrozenAttention(query="each"), "FrozenAttention.query: got 'each'")

"""The composition of permutations obeys the laws of a group."""

import torch
from task_cases import operands_of, permutation_product

from bayesticket.tasks import PermutationComposition


def test_composition_obeys_the_group_laws():
    task = PermutationComposition(n=4)
    table = task.examples(seed=0).targets.view(24, 24)
    everything = torch.arange(24)
    assert torch.equal(table[0], everything)
    assert torch.equal(table[:, 0], everything)
    assert torch.equal(table[table[:, :, None], everything], table[everything[:, None, None], table])
    assert all(torch.equal(row.sort().values, everything) for row in table)


def test_composition_of_five_matches_itertools():
    task = PermutationComposition(n=5)
    examples = task.examples(seed=0)
    assert (len(examples), task.d_vocab, task.n_positions) == (14_400, 122, 5)
    for values, target in list(zip(operands_of(examples), examples.targets.tolist(), strict=True))[::97]:
        assert target == permutation_product(values, 5)

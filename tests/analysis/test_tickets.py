"""Tickets against brute force on the weights, and against training that is written out here."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import deep_model, refused
from hypothesis import given, settings
from hypothesis import strategies as st

import bayesticket as bt
from bayesticket.analysis import (
    Ticket,
    find_ticket,
    jaccard_by_matrix,
    jaccard_distance,
    magnitude_masks,
    random_ticket,
    retrain,
    rewind,
    same_norm,
    ticket_config,
    weights_after,
)
from bayesticket.analysis.ticket_controls import norm_kept
from bayesticket.interventions import Intervention
from bayesticket.runs import TrainConfig, Training, train_config
from bayesticket.specs import spec_id

few = settings(max_examples=40, deadline=None)
TASK = bt.ModularAddition(p=7)
SMALL = bt.Architecture(d_model=8, d_mlp=16)
PRUNED = [
    "embed.W_E",
    *(f"blocks.0.attn.W_{letter}" for letter in "QOKV"),
    "blocks.0.mlp.W_in",
    "blocks.0.mlp.W_out",
    "unembed.W_U",
]


def small_run(intervention=None, **options):
    return bt.train(TASK, intervention, **{"model": SMALL, "epochs": 12, "lr": 3e-3, "seed": 2} | options)


@pytest.fixture(scope="module")
def run():
    return small_run()


@pytest.fixture(scope="module")
def ticket(run):
    return find_ticket(run)


def parameters_of(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def assert_same(weights, others):
    assert weights.keys() == others.keys()
    for name, weight in weights.items():
        assert torch.equal(weight, others[name]), name


def assert_masked(weights, dense, ticket):
    """Weights are mask ⊙ dense where there is a mask, and dense elsewhere."""
    assert_same(weights, {name: dense[name] * ticket.masks.get(name, 1) for name in dense})


# --- pruning ---


@st.composite
def some_weights(draw):
    """Matrices of few distinct values, so that most magnitudes occur several times."""
    shapes = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=3))
    values = [draw(st.lists(st.integers(-3, 3), min_size=a * b, max_size=a * b)) for a, b in shapes]
    return {
        f"W_{place}": torch.tensor(entries, dtype=torch.float64).view(shape)
        for place, (shape, entries) in enumerate(zip(shapes, values, strict=True))
    }


@pytest.mark.parametrize("sparsity", [0.0, 0.25, 0.6, 0.9])
def test_globally_the_largest_of_all_weights_are_kept(run, sparsity):
    magnitudes = np.concatenate([np.abs(run.weights[name].numpy().ravel()) for name in PRUNED])
    n_kept = len(magnitudes) - round(sparsity * len(magnitudes))
    kept = np.zeros(len(magnitudes), bool)
    kept[np.argsort(-magnitudes)[:n_kept]] = True
    found = find_ticket(run, sparsity)
    assert list(found.masks) == PRUNED
    np.testing.assert_array_equal(np.concatenate([mask.numpy().ravel() for mask in found.masks.values()]), kept)
    assert found.sparsity == pytest.approx(sparsity, abs=0.5 / len(magnitudes))


@pytest.mark.parametrize("sparsity", [0.25, 0.6, 0.9])
def test_by_matrix_the_largest_of_each_are_kept(run, sparsity):
    found = find_ticket(run, sparsity, scope="matrix")
    for name, mask in found.masks.items():
        magnitudes = np.abs(run.weights[name].numpy())
        n_removed = round(sparsity * magnitudes.size)
        assert int((~mask).sum()) == n_removed
        assert magnitudes[mask.numpy()].min() > np.sort(magnitudes, axis=None)[n_removed - 1]
        assert found.sparsity_by_matrix[name] == n_removed / magnitudes.size
    spread = find_ticket(run, sparsity).sparsity_by_matrix.values()
    assert max(spread) - min(spread) > 0.01  # the two scopes differ


@few
@given(some_weights(), st.floats(0, 1, exclude_max=True))
def test_ties_change_nothing_about_the_number_removed(weights, sparsity):
    masks = magnitude_masks(weights, sparsity)
    kept = torch.cat([mask.flatten() for mask in masks.values()])
    magnitudes = torch.cat([weight.abs().flatten() for weight in weights.values()])
    assert int((~kept).sum()) == min(round(sparsity * len(kept)), len(kept) - 1)
    if kept.any() and not kept.all():
        assert magnitudes[kept].min() >= magnitudes[~kept].max()
    assert {name: mask.shape for name, mask in masks.items()} == {name: w.shape for name, w in weights.items()}

    by_matrix = magnitude_masks(weights, sparsity, scope="matrix")
    for name, weight in weights.items():
        assert int((~by_matrix[name]).sum()) == min(round(sparsity * weight.numel()), weight.numel() - 1)
        assert torch.equal(by_matrix[name], magnitude_masks({name: weight}, sparsity)[name])


@few
@given(some_weights(), st.floats(0, 0.99), st.floats(0, 0.99))
def test_more_sparsity_keeps_less_of_the_same_and_only_magnitude_counts(weights, sparsity, other):
    less, more = (magnitude_masks(weights, each) for each in sorted((sparsity, other)))
    mirrored = magnitude_masks({name: -2 * weight for name, weight in weights.items()}, sparsity)
    for name in weights:
        assert not (more[name] & ~less[name]).any()
        assert torch.equal(mirrored[name], magnitude_masks(weights, sparsity)[name])


def test_equal_weights_go_in_order_up_to_the_exact_number():
    weights = {"a": torch.ones(3, 2), "b": -torch.ones(5)}
    masks = magnitude_masks(weights, 0.7)  # of 11: 8
    assert masks["a"].flatten().tolist() == [False] * 6
    assert masks["b"].tolist() == [False, False, True, True, True]
    large = torch.ones(100_000)  # where sorting that is not stable would show
    assert torch.equal(magnitude_masks({"W": large}, 0.3)["W"], torch.arange(100_000) >= 30_000)


def test_which_matrices_are_pruned_can_be_said_in_short_or_in_full(run):
    short = find_ticket(run, matrices=("W_out", "W_in"))
    assert list(short.masks) == ["blocks.0.mlp.W_in", "blocks.0.mlp.W_out"]
    assert short.sparsity == pytest.approx(0.6, abs=0.002)
    assert list(find_ticket(run, matrices=["pos_embed.W_pos", "W_E"]).masks) == ["embed.W_E", "pos_embed.W_pos"]
    assert find_ticket(run, matrices=reversed(PRUNED)) == find_ticket(run)


def test_all_layers_of_a_deep_model_are_pruned():
    deep = deep_model()
    found = find_ticket(bt.train(TASK, model=deep, epochs=2, progress=False))
    assert set(found.masks) == {
        name for name in parameters_of(deep) if ".W_" in name and name != "pos_embed.W_pos" and ".b_" not in name
    }
    assert len(found.masks) == 2 + 2 * 6
    assert set(find_ticket(bt.train(TASK, model=deep, epochs=1), matrices=["W_Q"]).masks) == {
        "blocks.0.attn.W_Q",
        "blocks.1.attn.W_Q",
    }


# --- tickets ---


def test_a_ticket_falls_into_routing_and_representation(ticket):
    routing, representation = ticket.routing, ticket.representation
    assert list(routing.masks) == ["blocks.0.attn.W_Q", "blocks.0.attn.W_K"]
    assert list(representation.masks) == ["blocks.0.mlp.W_in", "blocks.0.mlp.W_out"]
    for part in (routing, representation):
        assert all(torch.equal(mask, ticket.masks[name]) for name, mask in part.masks.items())
        kept, n = (sum(int(count(m)) for m in part.masks.values()) for count in (torch.sum, torch.numel))
        assert part.sparsity == pytest.approx(1 - kept / n)
        assert (part.run, part.epoch) == (ticket.run, ticket.epoch)
    whole = representation.mask + routing.mask
    assert [set(part.masks) for part in whole.parts] == [set(representation.masks), set(routing.masks)]


def test_a_ticket_says_where_it_is_from(run, ticket):
    assert (ticket.run, ticket.epoch, ticket.how) == (spec_id(run.config), 12, "magnitude, global")
    n = sum(run.weights[name].numel() for name in PRUNED)
    place = f"magnitude, global; run {ticket.run} after 12 epochs"
    assert repr(ticket) == f"Ticket({round(0.6 * n)} of {n} weights removed, 60.0 %, in 8 matrices; {place})"
    assert repr(Ticket({"W": torch.ones(3) > 0})) == "Ticket(0 of 3 weights removed, 0.0 %, in 1 matrix)"
    assert ticket.mask == bt.TicketMask(ticket.masks)


def test_a_ticket_keeps_masks_of_its_own(ticket):
    given_masks = {"W": torch.tensor([True, False])}
    mine = Ticket(given_masks)
    given_masks["W"][0] = False
    assert mine.masks["W"].tolist() == [True, False]
    assert mine == Ticket({"W": torch.tensor([True, False])}) != Ticket({"W": torch.tensor([True, True])})


# --- the weights on the way ---


@pytest.mark.parametrize(
    ("intervention", "options"),
    [
        (None, {}),
        (bt.KLPrior(strength=bt.Anneal(1.0, 0.0, last=9)) + bt.NormMatch(3.0), {}),
        (bt.GradientNoise(bt.KLPrior(strength=1.0)), {"batch_size": 4, "measures": [bt.AttentionEntropy()]}),
        (None, {"task": bt.ModularAddition(p=7, redraw_each_epoch=True), "optimizer": "lion", "record_every": 4}),
        (None, {"model": deep_model(), "dtype": "float64"}),
    ],
    ids=["plain", "schedule and norm", "batches and noise", "redrawn", "given model"],
)
def test_weights_on_the_way_are_those_of_a_shorter_run(intervention, options):
    options = {"task": TASK, "model": replace(SMALL, residual=True), "lr": 3e-3, "seed": 5} | options
    whole = bt.train(intervention=intervention, epochs=6, **options)
    shorter = bt.train(intervention=intervention, epochs=4, **options)
    assert_same(weights_after(whole, 4), shorter.weights)
    assert_same(weights_after(whole, 6), whole.weights)
    assert find_ticket(whole, epoch=4).mask == find_ticket(shorter).mask != find_ticket(whole).mask


def test_a_snapshot_saves_the_training(monkeypatch):
    kept, plain = small_run(snapshots=[3], epochs=6), small_run(epochs=6)
    expected = weights_after(plain, 3)
    monkeypatch.setattr("bayesticket.analysis.tickets.Training", lambda *given: pytest.fail("it was trained again"))
    assert_same(weights_after(kept, 3), expected)
    assert find_ticket(kept, epoch=3).epoch == 3


def test_a_run_that_stopped_is_followed_up_to_where_it_stopped():
    stopped = small_run(grok_threshold=1e-9, stop_after_grok=4, record_every=1, epochs=50)
    assert (stopped.epoch, stopped.status) == (4, "stopped")
    assert_same(weights_after(stopped, 4), stopped.weights)
    refused(lambda: weights_after(stopped, 5), "epoch: got 5; accepted: at most 4")


def test_a_run_that_does_not_say_its_threads_is_followed_on_one(run):
    assert_same(weights_after(replace(run, made_with=None), 3), weights_after(run, 3))


def test_the_weights_on_the_way_can_be_asked_for_with_gradients_off(run):
    with torch.no_grad():
        without = weights_after(run, 3)
    with torch.inference_mode():
        inferring = weights_after(run, 3)
    assert_same(weights_after(run, 3), without)
    assert_same(without, inferring)


def test_the_final_weights_are_pruned_without_training(run, monkeypatch):
    monkeypatch.setattr(Training, "take_epoch", None)
    assert find_ticket(run) == find_ticket(run, epoch=12)
    assert find_ticket(run, epoch=0).masks["embed.W_E"].shape == run.weights["embed.W_E"].shape


# --- rewinding ---


def test_a_run_is_rewound_to_the_weights_that_its_seed_decides(run):
    made = bt.build_model(TASK, seed=2, d_model=8, d_mlp=16)
    assert_same(parameters_of(rewind(run)), parameters_of(made))
    assert_same(parameters_of(rewind(run)), weights_after(run, 0))
    assert_same(parameters_of(rewind(run, epoch=5)), small_run(epochs=5).weights)
    assert rewind(run, epoch=5).blocks[0].mlp.W_in.requires_grad
    own = small_run(init_seed=9, epochs=1)
    assert_same(parameters_of(rewind(own)), parameters_of(bt.build_model(TASK, seed=9, d_model=8, d_mlp=16)))


def test_a_given_model_is_rewound_to_what_was_given():
    mine = deep_model(seed=4)
    first = parameters_of(mine)
    trained = bt.train(TASK, model=mine, epochs=3)
    rewound = rewind(trained)
    assert_same(parameters_of(rewound), first)
    assert rewound.cfg.n_layers == 2
    assert not torch.equal(trained.weights["embed.W_E"], first["embed.W_E"])


def test_a_rewound_model_is_what_training_started_from_after_projections():
    held = small_run(bt.NormMatch(2.5), epochs=2)
    made = parameters_of(bt.build_model(TASK, seed=2, d_model=8, d_mlp=16))
    rewound = parameters_of(rewind(held))
    mlp = [name for name in made if ".mlp." in name]
    factor = 2.5 / math.sqrt(sum((made[name].double() ** 2).sum().item() for name in mlp))
    for name, weight in rewound.items():
        torch.testing.assert_close(weight, made[name] * (factor if name in mlp else 1.0))


def test_the_architecture_survives_rewinding():
    odd = small_run(model=replace(SMALL, attention="linear", residual=False, biases=False), epochs=2)
    rewound = rewind(odd)
    assert not rewound.blocks[0].mlp.b_in.requires_grad
    tokens = TASK.split().test.tokens
    made = bt.build_model(TASK, seed=2, d_model=8, d_mlp=16, attention="linear", residual=False, biases=False)
    assert torch.equal(rewound(tokens), made(tokens))


# --- retraining ---


def test_a_ticket_starts_from_the_masked_initial_weights_and_stays_pruned(run, ticket):
    first = parameters_of(rewind(run))
    training = Training(ticket_config(run.config, ticket))
    assert training.forward == "fast"
    assert_masked(parameters_of(training.model), first, ticket)
    for _ in range(12):
        training.take_epoch()
        now = parameters_of(training.model)
        assert not any(now[name][~mask].any() for name, mask in ticket.masks.items())
    retrained = retrain(run, ticket)
    assert_same(training.as_run("finished").weights, retrained.weights)
    assert retrained.made_with["forward"] == "fast"
    for name, mask in ticket.masks.items():
        assert retrained.weights[name][mask].all()
        assert not torch.equal(retrained.weights[name], run.weights[name] * mask)


def test_retraining_is_training_with_the_mask(run, ticket):
    by_hand = small_run(bt.TicketMask(ticket.masks))
    assert_same(retrain(run, ticket).weights, by_hand.weights)
    assert spec_id(ticket_config(run.config, ticket)) == spec_id(by_hand.config)


def test_options_override_the_runs(run, ticket):
    config = ticket_config(run.config, ticket, epochs=3, intervention=bt.KLPrior(strength=2.0), weight_decay=0.5)
    assert config.intervention == bt.KLPrior(strength=2.0) + ticket.mask
    assert (config.epochs, config.seed, config.optimizer) == (3, 2, bt.AdamW(lr=3e-3, weight_decay=0.5))
    sparse = retrain(run, ticket, epochs=3, weight_decay=0.5)
    assert (sparse.epoch, sparse.config.optimizer.weight_decay) == (3, 0.5)


@bt.spec
class Fill(Intervention):
    """A projection that knows nothing of masks."""

    def project(self, context):
        with torch.no_grad():
            context.parameters["blocks.0.mlp.W_in"].add_(0.125)


def test_the_mask_has_the_last_word_over_other_projections(run, ticket):
    config = ticket_config(replace(run.config, intervention=Fill()), ticket)
    assert [type(part) for part in config.intervention.parts] == [Fill, bt.TicketMask]
    training = Training(config)
    for _ in range(3):
        assert not dict(training.model.named_parameters())["blocks.0.mlp.W_in"][
            ~ticket.masks["blocks.0.mlp.W_in"]
        ].any()
        training.take_epoch()


def test_a_norm_is_held_by_what_a_ticket_keeps(ticket):
    held = small_run(bt.NormMatch(2.5), epochs=4, record_every=1)
    sparse = retrain(held, ticket)
    np.testing.assert_allclose(sparse.curves["mlp_norm"], 2.5, rtol=1e-5)
    assert not any(sparse.weights[name][~mask].any() for name, mask in ticket.masks.items())


def test_transfer_has_other_initial_weights_the_same_mask_and_the_same_split(run, ticket):
    training, dense = Training(ticket_config(run.config, ticket, init_seed=7)), Training(run.config)
    fresh = parameters_of(bt.build_model(TASK, seed=7, d_model=8, d_mlp=16))
    assert_masked(parameters_of(training.model), fresh, ticket)
    first = parameters_of(dense.model)
    assert not any(torch.equal(fresh[name], first[name]) for name in PRUNED)
    for half in ("train", "test"):
        assert torch.equal(getattr(training, half).batch.tokens, getattr(dense, half).batch.tokens)
    assert_same(retrain(run, ticket, init_seed=7).weights, small_run(ticket.mask, init_seed=7).weights)


def test_a_given_model_is_transferred_to_another_given_model(ticket):
    trained = bt.train(TASK, model=deep_model(), epochs=2)
    found = find_ticket(trained)
    refused(lambda: retrain(trained, found, init_seed=3), "init_seed: got 3; accepted: None with a HookedTransformer")
    first = parameters_of(deep_model(seed=1))
    start = parameters_of(Training(ticket_config(trained.config, found, model=deep_model(seed=1))).model)
    assert_masked(start, first, found)
    assert_same(parameters_of(rewind(trained)), parameters_of(deep_model()))


def test_a_retrained_ticket_survives_saving(run, ticket, tmp_path):
    sparse = retrain(run, ticket, store=tmp_path / "sparse", epochs=4)
    loaded = bt.Run.load(tmp_path / "sparse")
    assert_same(loaded.weights, sparse.weights)
    (mask,) = loaded.config.intervention.parts
    assert Ticket(mask.masks).mask == ticket.mask
    assert spec_id(loaded.config) == spec_id(sparse.config)
    # the ticket of a loaded run, the run that started it, and the ticket of the ticket
    saved = bt.Run.load(run.save(tmp_path / "dense"))
    assert find_ticket(saved) == ticket
    assert find_ticket(saved, epoch=6) == find_ticket(run, epoch=6)
    assert_same(parameters_of(rewind(saved)), parameters_of(rewind(run)))
    assert_masked(parameters_of(rewind(loaded)), parameters_of(rewind(run)), ticket)


def test_pruning_a_retrained_ticket_again_keeps_part_of_it(run, ticket):
    sparse = retrain(run, ticket)
    denser, sparser = find_ticket(sparse, 0.6), find_ticket(sparse, 0.8)
    assert denser.mask == ticket.mask
    assert sparser.sparsity == pytest.approx(0.8, abs=0.001)
    assert not any((mask & ~ticket.masks[name]).any() for name, mask in sparser.masks.items())
    again = retrain(sparse, sparser, epochs=3)
    assert not any(again.weights[name][~mask].any() for name, mask in sparser.masks.items())


# --- distances ---

masks = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=24)


@few
@given(st.lists(masks, min_size=1, max_size=3))
def test_the_distance_is_that_of_the_sets_of_kept_weights(pairs):
    a, b = (
        Ticket({f"W_{name}": torch.tensor([pair[side] for pair in pair_list]) for name, pair_list in enumerate(pairs)})
        for side in (0, 1)
    )
    kept = [
        {(name, place) for name, pair_list in enumerate(pairs) for place, pair in enumerate(pair_list) if pair[side]}
        for side in (0, 1)
    ]
    union = kept[0] | kept[1]
    expected = 1 - len(kept[0] & kept[1]) / len(union) if union else 0.0
    assert jaccard_distance(a, b) == pytest.approx(expected, abs=1e-15)
    assert jaccard_distance(b, a) == jaccard_distance(a, b)
    assert jaccard_distance(a, a) == jaccard_distance(b, b) == 0
    for name, distance in jaccard_by_matrix(a, b).items():
        alone = [Ticket({name: each.masks[name]}) for each in (a, b)]
        assert distance == jaccard_distance(*alone)


def test_disjoint_tickets_are_at_distance_one(ticket):
    other = Ticket({name: ~mask for name, mask in ticket.masks.items()})
    assert jaccard_distance(ticket, other) == 1
    assert set(jaccard_by_matrix(ticket, other).values()) == {1.0}


def test_random_tickets_are_as_far_apart_as_chance_says():
    like = Ticket({"W": torch.arange(200_000) >= 120_000, "V": torch.arange(60_000) >= 6_000})
    tickets = [random_ticket(like, seed) for seed in range(3)]
    for one, other in itertools.combinations([like, *tickets], 2):
        for name, share in (("W", 0.4), ("V", 0.9)):  # kept by both: share², by either: share (2 − share)
            assert jaccard_by_matrix(one, other)[name] == pytest.approx(1 - share / (2 - share), abs=0.005)


# --- controls ---


def test_a_random_ticket_is_as_sparse_in_each_matrix(run, ticket):
    random = random_ticket(ticket, seed=1)
    assert random.sparsity_by_matrix == ticket.sparsity_by_matrix
    assert random == random_ticket(ticket, seed=1) != random_ticket(ticket, seed=2)
    assert (random.how, random.run, random.epoch) == ("random, seed 1", ticket.run, ticket.epoch)
    same_shape = Ticket({"a": torch.arange(64) > 30, "b": torch.arange(64) > 30})
    drawn = random_ticket(same_shape)
    assert not torch.equal(drawn.masks["a"], drawn.masks["b"])
    # no place is preferred: over many draws each weight is kept as often as the next
    often = sum(random_ticket(same_shape, seed).masks["a"].double() for seed in range(400)) / 400
    assert (often - 33 / 64).abs().max() < 5 * math.sqrt(0.25 / 400)
    assert retrain(run, random, epochs=2).epoch == 2


def norms(weights):
    return {name: np.linalg.norm(weight.double().numpy()) for name, weight in weights.items()}


def test_the_dense_control_has_the_norms_of_the_tickets_initial_weights(run, ticket):
    dense = same_norm(run, ticket)
    first = parameters_of(rewind(run))
    start = parameters_of(Training(ticket_config(run.config, ticket)).model)
    now = parameters_of(dense)
    for name, norm in norms(now).items():
        assert norm == pytest.approx(norms(start)[name], rel=1e-6)
        factor = norms(start)[name] / norms(first)[name] if name in ticket.masks else 1.0
        torch.testing.assert_close(now[name], first[name] * factor)
    assert all(now[name].all() for name in ticket.masks)
    assert norms(now)["embed.W_E"] < 0.95 * norms(first)["embed.W_E"]
    assert norms(now)["pos_embed.W_pos"] == norms(first)["pos_embed.W_pos"]

    control = train_config(replace(run.config, model=dense, epochs=2))
    assert_same(parameters_of(rewind(control)), now)
    assert control.made_with["forward"] == "fast"


def test_a_matrix_of_zeros_keeps_its_norm_whatever_is_removed():
    mask = torch.tensor([True, False])
    assert norm_kept(torch.zeros(2), mask) == 1
    assert norm_kept(torch.tensor([0.0, 2.0]), mask) == 0


def test_the_dense_control_of_a_model_is_a_copy(ticket):
    model = bt.build_model(TASK, seed=6, d_model=8, d_mlp=16, dtype=torch.float64)
    with torch.no_grad():
        model.blocks[0].attn.W_V.zero_()
    before = parameters_of(model)
    now = parameters_of(same_norm(model, ticket))
    assert_same(parameters_of(model), before)
    for name, mask in ticket.masks.items():
        assert np.linalg.norm(now[name]) == pytest.approx(np.linalg.norm(before[name] * mask), rel=1e-12)
    assert not now["blocks.0.attn.W_V"].any()


# --- what is refused ---


def test_what_cannot_be_found_is_refused(run):
    for sparsity in (-0.1, 1.0, 1.5, math.nan):
        refused(lambda sparsity=sparsity: find_ticket(run, sparsity), f"sparsity: got {sparsity}; accepted: ")
    refused(lambda: find_ticket(run, epoch=13), "epoch: got 13; accepted: at most 12")
    refused(lambda: rewind(run, epoch=-1), "epoch: got -1; accepted: ")
    refused(lambda: find_ticket(run, matrices=["W_inn"]), "matrices: got 'W_inn'; accepted: 'W_E'", "Closest: 'W_in'")
    refused(lambda: find_ticket(run, matrices=["b_in"]), "matrices: got 'b_in'; accepted: 'W_E'")
    refused(lambda: find_ticket(run, matrices=[]), "matrices: got []; accepted: names of matrices")
    refused(lambda: find_ticket(run, matrices="W_Q"), "matrices: got 'W_Q'; accepted: names of matrices")
    refused(lambda: magnitude_masks({}, 0.5), "weights: got {}; accepted: at least one")
    refused(lambda: magnitude_masks(run.weights, 1.5), "sparsity: got 1.5; accepted: ")
    refused(lambda: weights_after("run", 3), "run: got 'run'; accepted: ")
    broken = replace(run, weights=run.weights | {"embed.W_E": torch.full((9, 8), math.nan)})
    refused(lambda: find_ticket(broken), "weights['embed.W_E']: got nan; accepted: finite")
    for call in (lambda: find_ticket(run, scope="layer"), lambda: magnitude_masks(run.weights, 0.5, scope="layer")):
        refused(call, "scope: got 'layer'; accepted: 'global', 'matrix'")
    one_infinity = {"V": torch.ones(3), "W": torch.tensor([1.0, math.inf, 2.0])}
    refused(lambda: magnitude_masks(one_infinity, 0.5), "weights['W']: got inf; accepted: finite")


def test_what_is_no_ticket_is_refused(run, ticket):
    masks, accepted = dict(ticket.masks), "accepted: a Ticket, such as "
    refused(lambda: jaccard_distance(masks, ticket), "a: got {", accepted)
    refused(lambda: jaccard_distance(ticket, masks), "b: got {", accepted)
    refused(lambda: same_norm(run, masks), "ticket: got {", accepted)
    refused(lambda: ticket_config(run.config, masks), "ticket: got {", accepted)


def test_tickets_that_do_not_fit_are_refused(run, ticket):
    refused(
        lambda: ticket.routing.representation,
        "ticket.representation: got ['blocks.0.attn.W_Q', ",
        "of the MLP's matrices",
    )
    refused(lambda: ticket.representation.routing, "ticket.routing: got ['blocks.0.mlp.W_in', ", "of W_Q or W_K")
    refused(lambda: Ticket({}), "masks: got {}; accepted: ")
    refused(lambda: Ticket({"W": torch.ones(2)}), "masks['W']: got torch.float32; accepted: a boolean tensor")
    refused(lambda: jaccard_distance(ticket, ticket.routing), "b.masks: got ['blocks.0.attn.W_K'", "the same matrices")
    one, other = Ticket({"W": torch.ones(2) > 0}), Ticket({"V": torch.ones(2) > 0})
    refused(lambda: jaccard_distance(one, other), "b.masks: got ['V']; accepted: masks of the same matrices", "['W']")
    turned = Ticket({name: mask.mT for name, mask in ticket.masks.items()})
    refused(lambda: jaccard_distance(ticket, turned), "b.masks['embed.W_E']: got (8, 9); accepted: shape (9, 8)")
    refused(lambda: same_norm(run, turned), "ticket.masks['embed.W_E']: got (8, 9); accepted: shape (9, 8)")
    elsewhere = Ticket({"blocks.1.mlp.W_in": torch.ones(8, 16) > 0})
    refused(lambda: same_norm(run, elsewhere), "ticket.masks: got 'blocks.1.mlp.W_in'", "Closest: 'blocks.0.mlp.W_in'")
    refused(lambda: retrain(run, elsewhere), "masks: got 'blocks.1.mlp.W_in'")
    refused(lambda: retrain(run, ticket, wd=0.5), "option: got 'wd'; accepted: ")
    refused(lambda: ticket_config(TrainConfig(), ticket, epochs=0), "epochs: got 0")
    refused(lambda: random_ticket(ticket, seed=-1), "seed: got -1")


def test_a_model_with_hooks_of_its_own_is_not_replayed():
    mine = bt.build_model(TASK, d_model=8, d_mlp=16)
    mine.add_perma_hook("blocks.0.hook_resid_mid", lambda stream, hook: 0.5 * stream)
    trained = bt.train(TASK, model=mine, epochs=2)
    found = find_ticket(trained)
    for call in (lambda: weights_after(trained, 1), lambda: rewind(trained), lambda: retrain(trained, found)):
        refused(call, "run: got one in which a model has hooks of its own on blocks.0.hook_resid_mid", "accepted: ")
    bt.train(TASK, found.mask, model=mine, epochs=2)

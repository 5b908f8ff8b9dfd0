"""Interventions at their edges: the first and last query, head and key, strengths of zero, schedules of one step."""

import pytest
import torch
import torch.nn.functional as F

import bayesticket as bt
from bayesticket.interventions.priors import noise_of_norm

TASK = bt.ModularAddition(p=7)
TRAIN = TASK.split(train_fraction=0.4).train
N_POSITIONS, N_HEADS = 5, 2
KEYS = torch.eye(N_POSITIONS, dtype=torch.float64)


@pytest.fixture(scope="module")
def model():
    return bt.build_model(TASK, d_model=8, n_heads=N_HEADS, d_mlp=16, seed=1, dtype=torch.float64)


def pattern_under(model, intervention):
    with torch.no_grad(), model.hooks(fwd_hooks=intervention.hooks(TRAIN)):
        return model.run_with_cache(TRAIN.tokens)[1]["pattern", 0]


@pytest.mark.parametrize(
    "kind", [bt.FrozenAttention, bt.MixedAttention, bt.LinearAttention, bt.KLPrior, bt.EntropyPrior, bt.SparsityPrior]
)
def test_every_intervention_on_attention_checks_where_it_acts(kind):
    for place, field in [({"layer": -1}, "layer"), ({"head": (1, 1)}, "head"), ({"query": True}, "query")]:
        with pytest.raises(bt.BayesticketError, match=field):
            kind(**place)


# Hooks that stand without `attach` meet the model's shapes only when it runs.


@pytest.mark.parametrize("make", [bt.FrozenAttention, lambda *a, **k: bt.MixedAttention(*a, weight=1.0, **k)])
@pytest.mark.parametrize("query", range(-N_POSITIONS, N_POSITIONS))
def test_hooks_reach_every_query_and_every_key_that_it_sees(model, make, query):
    for key in range(query % N_POSITIONS + 1):
        pattern = pattern_under(model, make(KEYS[key], query=query))
        assert torch.equal(pattern[:, :, query], KEYS[key].expand(len(TRAIN), N_HEADS, N_POSITIONS))


@pytest.mark.parametrize("query", [-N_POSITIONS - 1, N_POSITIONS])
def test_hooks_on_a_query_that_the_sequence_lacks_raise_the_librarys_error(model, query):
    with pytest.raises(bt.BayesticketError, match=r"FrozenAttention\.query"):
        pattern_under(model, bt.FrozenAttention(KEYS[0], query=query))


@pytest.mark.parametrize("query", range(N_POSITIONS - 1))
def test_hooks_on_a_key_after_the_query_raise_the_librarys_error(model, query):
    with pytest.raises(bt.BayesticketError, match=r"FrozenAttention\.target"):
        pattern_under(model, bt.FrozenAttention(KEYS[query + 1], query=query))


def test_the_last_query_sees_keys_that_get_no_attention(model):
    # Weights of zero mark what causal attention hides, but not at the last query, from which nothing is hidden.
    def none_on_the_last_key(pattern, hook):
        return torch.cat([pattern[..., :-1], torch.zeros_like(pattern[..., -1:])], -1)

    hooks = [("blocks.0.attn.hook_pattern", none_on_the_last_key), *bt.FrozenAttention(KEYS[-1]).hooks(TRAIN)]
    with torch.no_grad(), model.hooks(fwd_hooks=hooks):
        pattern = model.run_with_cache(TRAIN.tokens)[1]["pattern", 0]
    assert (pattern[:, :, -1, -1] == 1).all()


def test_hooks_reach_the_last_head_and_no_further(model):
    uniform = KEYS.mean(0)
    pattern = pattern_under(model, bt.FrozenAttention(uniform, head=N_HEADS - 1))
    assert torch.equal(pattern[:, -1, -1], uniform.expand(len(TRAIN), -1))
    assert not torch.isclose(pattern[:, 0, -1], uniform).all(-1).any()
    for head in (N_HEADS, (0, N_HEADS)):
        with pytest.raises(bt.BayesticketError, match=r"FrozenAttention\.head"):
            pattern_under(model, bt.FrozenAttention(uniform, head=head))


def test_a_target_by_head_has_as_many_heads_as_are_edited(model):
    by_head = KEYS[:3].expand(len(TRAIN), 3, -1)
    for intervention in (bt.FrozenAttention(by_head), bt.FrozenAttention(by_head[:, :2], head=0)):
        with pytest.raises(bt.BayesticketError, match=r"FrozenAttention\.target"):
            pattern_under(model, intervention)
    pattern = pattern_under(model, bt.FrozenAttention(by_head[:, :2]))
    assert torch.equal(pattern[:, :, -1], by_head[:, :2])
    pattern = pattern_under(model, bt.FrozenAttention(by_head[:, 2:]))  # one for all
    assert torch.equal(pattern[:, :, -1], by_head[:, 2:].expand(-1, N_HEADS, -1))


def test_hooks_for_one_batch_raise_on_another(model):
    targets = F.one_hot(torch.arange(len(TRAIN)) % N_POSITIONS, N_POSITIONS).double()
    hooks = bt.FrozenAttention(targets).hooks(TRAIN)
    with model.hooks(fwd_hooks=hooks):
        model(TRAIN.tokens)
        for tokens in (TRAIN.tokens[1:], TRAIN.tokens[:, 1:]):
            with pytest.raises(bt.BayesticketError, match=f"the {len(TRAIN)} sequences of 5 positions"):
                model(tokens)


# Strengths


@pytest.mark.parametrize(
    "make",
    [
        lambda strength: bt.KLPrior(strength=strength),
        lambda strength: bt.EntropyPrior(strength=strength),
        lambda strength: bt.SparsityPrior(strength=strength),
        lambda strength: bt.QKPenalty(strength=strength),
        lambda strength: bt.GradientNoise(fraction=strength),
        lambda strength: bt.MixedAttention(weight=strength),
    ],
)
def test_a_strength_is_any_number_from_zero_or_a_schedule_of_such(make):
    for strength in (0, 0.0, 1e-9, 1, 1.0, bt.Anneal(0.0, 1.0), bt.Anneal(0.5, 0.25), bt.Window(0.0), bt.Window(1.0)):
        make(strength)
    for strength in (-1e-9, float("nan"), float("inf"), True):
        with pytest.raises(bt.BayesticketError, match="accepted: a finite number >= 0"):
            make(strength)


@pytest.mark.parametrize("weight", [1.0 + 1e-9, bt.Anneal(0.0, 1.01), bt.Anneal(1.01, 0.0), bt.Window(1.01)])
def test_a_weight_is_at_most_one_throughout(weight):
    with pytest.raises(bt.BayesticketError, match=r"weight: .* and <= 1, or a Schedule"):
        bt.MixedAttention(weight=weight)


def test_schedules_of_a_single_step():
    assert [bt.Anneal(0.0, 4.0, first=2, last=3).at(epoch) for epoch in range(5)] == [0, 0, 0, 4, 4]
    assert [bt.Anneal(2.0, 0.0, first=0, last=2).at(epoch) for epoch in range(4)] == [2, 1, 0, 0]
    assert [bt.Window(3.0, start=0, stop=1).at(epoch) for epoch in range(3)] == [3, 0, 0]
    assert [bt.Window(3.0, start=1).at(epoch) for epoch in (0, 1, 10**9)] == [0, 3, 3]
    for make in (lambda: bt.Anneal(first=3, last=3), lambda: bt.Window(start=3, stop=3)):
        with pytest.raises(bt.BayesticketError):
            make()
    assert bt.Anneal(0.25, 0.5).largest == bt.Anneal(0.5, 0.25).largest == bt.Window(0.5).largest == 0.5


def test_defaults_are_those_that_stored_runs_were_made_with():
    # A run's id leaves out what is at its default, so that another default would be taken for the old one.
    defaults = {
        bt.KLPrior: {"target": "oracle", "strength": 1.0, "layer": 0, "head": None, "query": -1},
        bt.EntropyPrior: {"strength": 1.0, "layer": 0, "head": None, "query": -1},
        bt.SparsityPrior: {"strength": 1.0, "on": "pattern", "layer": 0, "head": None, "query": -1},
        bt.QKPenalty: {"strength": 0.5, "layer": 0},
        bt.GradientNoise: {"like": bt.KLPrior(), "fraction": 1.0},
        bt.FrozenAttention: {"target": "oracle", "layer": 0, "head": None, "query": -1},
        bt.MixedAttention: {"target": "oracle", "weight": 0.5, "layer": 0, "head": None, "query": -1},
        bt.NoResidual: {"around": "both", "layer": 0},
        bt.Anneal: {"start": 1.0, "end": 0.0, "first": 0, "last": 1000},
        bt.Window: {"value": 1.0, "start": 0, "stop": None},
    }
    for kind, fields in defaults.items():
        assert {name: getattr(kind(), name) for name in fields} == fields
    assert bt.NormMatch(2.0).scope == "mlp"


def test_schedules_by_default():
    assert [bt.Anneal().at(epoch) for epoch in (0, 500, 1000, 1001)] == [1.0, 0.5, 0.0, 0.0]
    assert [bt.Window().at(epoch) for epoch in (0, 10**9)] == [1.0, 1.0]


def penalty(model, intervention, **options):
    with intervention.attach(model, TRAIN, **options) as live:
        model(TRAIN.tokens)
        return live.penalty()


@pytest.mark.parametrize("strength", [0.0, 0.5, 3.0])
def test_a_penalty_is_its_strength_times_that_of_strength_one(model, strength):
    for kind in (bt.KLPrior, bt.EntropyPrior, bt.SparsityPrior, bt.QKPenalty):
        one = penalty(model, kind(strength=1.0)).item()
        assert one > 0
        assert penalty(model, kind(strength=strength)).item() == pytest.approx(strength * one, rel=1e-12)
        given = kind().strength
        assert penalty(model, kind()).item() == pytest.approx(given * one, rel=1e-12)


@pytest.mark.parametrize("on", ["pattern", "scores"])
@pytest.mark.parametrize("query", range(N_POSITIONS))
def test_sparsity_counts_the_keys_that_the_query_sees(model, on, query):
    with torch.no_grad():
        cache = model.run_with_cache(TRAIN.tokens)[1]
        rows = cache["pattern" if on == "pattern" else "attn_scores", 0][:, :, query, : query + 1]
        expected = (rows.sqrt() if on == "pattern" else rows.abs()).sum(-1).mean()
    assert penalty(model, bt.SparsityPrior(on=on, query=query)).item() == pytest.approx(expected.item(), rel=1e-9)


# Noise


def test_noise_has_the_norm_it_is_given_and_goes_nowhere_in_particular():
    like = [torch.zeros(40, 50), torch.zeros(1000)]
    noise = noise_of_norm(like, torch.tensor(3.0), torch.Generator().manual_seed(0))
    assert [part.shape for part in noise] == [part.shape for part in like]
    whole = torch.cat([part.flatten() for part in noise])
    assert whole.norm().item() == pytest.approx(3.0, rel=1e-5)
    assert abs(whole.mean().item()) < 0.005
    assert noise[0].norm().item() == pytest.approx(3 * (2 / 3) ** 0.5, rel=0.05)


def test_a_prior_without_gradient_makes_no_noise():
    model = bt.build_model(TASK, d_model=8, n_heads=N_HEADS, d_mlp=16, seed=1, dtype=torch.float64)
    noise = bt.GradientNoise()
    with noise.attach(model, TRAIN, seed=0) as live:
        with torch.no_grad():
            model(TRAIN.tokens)
            assert live.penalties() == {}
        for name in ("W_Q", "W_K", "b_Q", "b_K"):
            getattr(model.blocks[0].attn, name).requires_grad_(False)
        model(TRAIN.tokens)  # the prior still has a gradient in the embedding
        assert live.penalties() == {}
        model.blocks[0].attn.W_Q.requires_grad_(True)
        model(TRAIN.tokens)
        term = live.penalty()
        term.backward()
    assert term.item() == 0
    prior = penalty(model, bt.KLPrior())
    (gradient,) = torch.autograd.grad(prior, model.blocks[0].attn.W_Q)
    assert model.blocks[0].attn.W_Q.grad.norm().item() == pytest.approx(gradient.norm().item(), rel=1e-9)
    assert model.embed.W_E.grad is None or not model.embed.W_E.grad.any()


# Weights


def test_a_norm_is_matched_from_any_size():
    for start in (1e-6, 1.0, 1e6):
        model = bt.build_model(TASK, d_model=8, d_mlp=16, seed=1, dtype=torch.float64)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(start)
        with bt.NormMatch(radius=2.5, scope="all").attach(model, TRAIN):
            norm = torch.cat([value.detach().flatten() for value in model.parameters()]).norm()
        assert norm.item() == pytest.approx(2.5, rel=1e-9)


def test_masks_are_copied_when_they_are_given():
    mask = torch.ones(8, 16, dtype=torch.bool)
    ticket = bt.TicketMask({"blocks.0.mlp.W_in": mask})
    mask[:] = False
    assert ticket.masks["blocks.0.mlp.W_in"].all()

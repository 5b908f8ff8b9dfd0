"""The laws of the algebra, for every intervention that exists; and round trips for everything that is written down."""

import dataclasses
import importlib
import json
import pickle
import pkgutil

import catalog
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformer_lens import HookedTransformer

import bayesticket as bt
import bayesticket.interventions
import bayesticket.measures
from bayesticket.measures import NormCondition
from bayesticket.specs import Spec, describe, restore

for package in (bayesticket.interventions, bayesticket.measures):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)

TASK = catalog.TASKS["addition"]
TRAIN = TASK.split().train


def a_model(**changes) -> HookedTransformer:
    return bt.build_model(TASK, **({"d_model": 8, "n_heads": 2, "d_mlp": 8, "seed": 1} | changes))


def kinds_of(base: type) -> list[type]:
    """The final classes that the library derives from a base."""
    ours = [kind for kind in Spec.kinds.values() if kind.__module__.startswith("bayesticket.")]
    found = [kind for kind in ours if issubclass(kind, base)]
    return [kind for kind in found if not any(other is not kind and issubclass(other, kind) for other in ours)]


INTERVENTIONS = {name: value for name, value in catalog.interventions(TASK, a_model()).items() if value is not None} | {
    "several layers": bt.KLPrior(torch.tensor([0.2, 0.3, 0.5, 0.0, 0.0]), layer=(0,), head=(1, 0), query=2),
    "noise like entropy": bt.GradientNoise(bt.EntropyPrior(strength=bt.Anneal(last=3)), fraction=bt.Window(start=1)),
    "frozen by example": bt.FrozenAttention(TRAIN.oracle),
    "mixed, permuted": bt.MixedAttention(bt.Permuted(TRAIN.oracle, along="examples", seed=4), weight=bt.Anneal(0, 1)),
    "another ticket": bt.TicketMask({"blocks.0.mlp.W_in": torch.eye(8, dtype=torch.bool)}),
    "empty": bt.Recipe(),
}
OTHERS = [
    NormCondition(r_min=1.0, r_max=2.0),
    *catalog.TASKS.values(),
    bt.ModularAddition(p=5, n_samples=9, redraw_each_epoch=True),
    bt.Anneal(0.5, 2.0, first=3, last=9),
    bt.Window(2.0, start=3, stop=9),
    bt.Permuted(torch.eye(4), along="examples", seed=2),
    bt.Permuted(torch.eye(4).flip(0), along="examples", seed=2),
    bt.Permuted(torch.eye(4, dtype=torch.float64), along="examples", seed=2),
    bt.InformativeMass("least", layer=(0, 1), head=1),
    bt.AttentionEntropy(query=2),
    bt.Architecture(n_heads=4, residual=False),
]
every_intervention = pytest.mark.parametrize("intervention", INTERVENTIONS.values(), ids=list(INTERVENTIONS))


def defaults(kind: type) -> list[Spec]:
    required = [
        field
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    return [] if required else [kind()]


def examples_of(kind: type) -> list[Spec]:
    parts = [part for whole in INTERVENTIONS.values() for part in (whole, *whole.parts)]
    return [*(spec for spec in [*parts, *OTHERS] if type(spec) is kind), *defaults(kind)]


KINDS = [
    *(kind for base in (bt.Intervention, bt.Measure, bt.AbstractTask, bt.Schedule) for kind in kinds_of(base)),
    bt.Permuted,
    bt.Architecture,
]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.__name__ for kind in KINDS])


def described(spec) -> tuple[str, dict[str, torch.Tensor]]:
    tensors: dict[str, torch.Tensor] = {}
    return json.dumps(describe(spec, tensors)), tensors


def assert_equal(spec, other):
    """Equal values; teachers, which are objects, by all that describes them."""
    if "HookedTransformer" in described(spec)[0]:
        assert type(spec) is type(other)
        assert described(spec)[0] == described(other)[0]
    else:
        assert spec == other
        assert hash(spec) == hash(other)
        assert repr(spec) == repr(other)


# --- values ---


def test_the_kinds_that_are_known_are_found():
    names = {kind.__name__ for kind in KINDS}
    assert {"KLPrior", "FrozenAttention", "NormMatch", "TicketMask", "GradientNoise", "Recipe"} <= names
    assert {"KLToOracle", "AttentionGradient", "ModularAddition", "Task", "Anneal"} <= names
    assert not {"Intervention", "AttentionIntervention", "Measure", "AbstractTask"} & names


@every_kind
def test_every_kind_has_an_example(kind):
    assert examples_of(kind), f"{kind.__name__} has no example: add one to tests/catalog.py, or to this file"


@every_kind
def test_what_is_written_down_is_read_back(kind):
    for spec in examples_of(kind):
        text, tensors = described(spec)
        found = restore(json.loads(text), tensors)
        assert_equal(found, spec)
        assert described(found)[0] == text


@every_kind
def test_values_survive_pickling(kind):
    for spec in examples_of(kind):
        assert_equal(pickle.loads(pickle.dumps(spec)), spec)


@every_kind
def test_different_values_differ(kind):
    specs = examples_of(kind)
    for spec in specs:
        texts = [described(other)[0] == described(spec)[0] for other in specs]
        if "HookedTransformer" not in described(spec)[0]:
            assert [other == spec for other in specs] == texts
        assert spec != "a string"


@every_kind
def test_values_cannot_be_changed(kind):
    for spec in examples_of(kind):
        for field in dataclasses.fields(spec):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(spec, field.name, None)


# --- composition ---


def composed(compose):
    """The recipe, or the words by which it is refused."""
    try:
        return compose()
    except bt.BayesticketError as error:
        return str(error)


@settings(max_examples=100, deadline=None)
@given(st.tuples(*[st.sampled_from(list(INTERVENTIONS))] * 3))
def test_composition_is_associative_and_keeps_order(names):
    a, b, c = (INTERVENTIONS[name] for name in names)
    left, right = composed(lambda: (a + b) + c), composed(lambda: a + (b + c))
    if isinstance(left, str):  # two of them cannot go together, in whatever order they are joined
        assert "both replace the pattern" in left
        assert isinstance(right, str)
        return
    assert left == right
    assert left.parts == (*a.parts, *b.parts, *c.parts)


@every_intervention
def test_the_empty_recipe_is_the_unit(intervention):
    alone = bt.Recipe((intervention,))
    assert bt.Recipe() + intervention == intervention + bt.Recipe() == alone == intervention + None
    assert alone.parts == intervention.parts
    assert bt.Recipe((alone, bt.Recipe())) == alone


def test_order_matters_to_equality():
    a, b = bt.KLPrior(), bt.EntropyPrior()
    assert a + b != b + a
    assert a + b == bt.KLPrior() + bt.EntropyPrior()


def test_a_prior_reads_what_stands_to_its_left():
    model = a_model()
    plain = bt.measure(model, TRAIN, bt.KLToOracle())["kl_to_oracle"]
    assert plain > 0.01

    def penalty(recipe):
        with torch.no_grad(), recipe.attach(model, TRAIN) as live:
            model(TRAIN.tokens)
            return live.penalty().item()

    prior, frozen = bt.KLPrior(strength=1.0), bt.FrozenAttention("oracle")
    assert penalty(prior + frozen) == pytest.approx(plain, rel=1e-5)
    assert penalty(frozen + prior) == pytest.approx(0.0, abs=1e-6)
    assert penalty(prior + frozen + prior) == pytest.approx(plain, rel=1e-5)
    assert penalty(prior + frozen + bt.KLPrior(strength=1.0, head=0)) == pytest.approx(plain, rel=1e-5)


def test_edits_act_from_left_to_right():
    model = a_model()
    toward = [bt.MixedAttention(name, weight=0.5) for name in ("oracle", "uniform")]
    seen = {}
    model.add_hook("blocks.0.attn.hook_pattern", lambda pattern, hook: seen.update(plain=pattern[:, :, -1]))
    with torch.no_grad(), (toward[0] + toward[1]).attach(model, TRAIN):
        keep = ("blocks.0.attn.hook_pattern", lambda pattern, hook: seen.update(edited=pattern[:, :, -1]))
        with model.hooks(fwd_hooks=[keep]):
            model(TRAIN.tokens)
    oracle = TRAIN.oracle[:, None]
    torch.testing.assert_close(seen["edited"], 0.5 * (0.5 * seen["plain"] + 0.5 * oracle) + 0.5 * 0.2)


def test_projections_act_from_left_to_right():
    def norms(recipe):
        model = a_model()
        with recipe.attach(model, TRAIN):
            pass
        mlp = [value for name, value in model.named_parameters() if ".mlp." in name]
        return tuple(torch.nn.utils.get_total_norm(list(held)).item() for held in (mlp, model.parameters()))

    mlp, whole = bt.NormMatch(2.0), bt.NormMatch(5.0, scope="all")
    assert norms(mlp + whole)[1] == pytest.approx(5.0)
    assert norms(whole + mlp)[0] == pytest.approx(2.0)
    assert norms(mlp + whole)[0] != pytest.approx(2.0, rel=1e-3)


# --- leaving a model as it was found ---


def with_users_hooks(model):
    """A model with a user's own hooks of every sort."""
    model.add_hook("blocks.0.attn.hook_pattern", lambda tensor, hook: None)
    model.add_hook("blocks.0.mlp.hook_post", lambda tensor, hook: tensor * 0.9)
    model.add_hook("blocks.0.hook_resid_post", lambda tensor, hook: None, dir="bwd")
    model.add_perma_hook("blocks.0.attn.hook_attn_scores", lambda tensor, hook: tensor * 1.1)
    model.blocks[0].register_forward_hook(lambda *_: None)
    model.blocks[0].mlp.W_in.register_hook(lambda gradient: gradient * 1.0)
    model.pos_embed.W_pos.requires_grad_(False)
    model.eval()
    return model


def state_of(model):
    """All that hangs on a model, apart from its weights: objects by their identity."""
    state = {"level": model.context_level, "training": model.training, "caching": model.is_caching}
    for name, module in model.named_modules():
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            state[name, kind] = [(key, id(value)) for key, value in getattr(module, kind).items()]
    for name, point in model.hook_dict.items():
        handles = [*point.fwd_hooks, *point.bwd_hooks]
        state[name] = [(id(handle.user_hook), handle.is_permanent, handle.context_level) for handle in handles]
    for name, parameter in model.named_parameters():
        hooks = [(key, id(value)) for key, value in (parameter._backward_hooks or {}).items()]
        state[name] = (id(parameter), parameter.requires_grad, hooks, parameter.grad is None)
    return state


def projects(intervention):
    return any(isinstance(part, bt.NormMatch | bt.TicketMask) for part in intervention.parts)


def weights_of(model):
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def same_weights(model, weights):
    return all(torch.equal(value, weights[name]) for name, value in model.named_parameters())


@every_intervention
def test_attaching_leaves_a_model_as_it_was_found(intervention):
    model = with_users_hooks(a_model())
    state, weights = state_of(model), weights_of(model)
    live = intervention.attach(model, TRAIN)
    assert state_of(model) == state
    assert same_weights(model, weights)
    with live:
        live.epoch = 0
        (model(TRAIN.tokens)[:, -1].sum() + live.penalty()).backward()
        live.gradients()
        live.project()
        model.zero_grad()
        if any(part.edits(live.context) or part.reads() for part in live.parts):
            assert state_of(model) != state
    assert state_of(model) == state
    assert same_weights(model, weights) != projects(intervention)


@every_intervention
def test_an_exception_inside_leaves_a_model_as_it_was_found(intervention):
    model = with_users_hooks(a_model())
    state = state_of(model)
    with pytest.raises(KeyError, match="inside"), intervention.attach(model, TRAIN):
        raise KeyError("inside")
    assert state_of(model) == state


@bt.spec
class Failing(bt.Intervention):
    """Fails at the named port when it is attached, or when its context is entered."""

    port: str = "project"

    def init(self, context):
        if self.port == "init":
            raise KeyError(self.port)
        return {}

    def project(self, context):
        if self.port == "project":
            raise KeyError(self.port)

    def check(self, context):
        if self.port == "check":
            raise KeyError(self.port)


@pytest.mark.parametrize("port", ["check", "init", "project"])
@every_intervention
def test_entering_that_fails_leaves_a_model_as_it_was_found(intervention, port):
    model = with_users_hooks(a_model())
    state = state_of(model)
    with pytest.raises(KeyError, match=port), (intervention + Failing(port)).attach(model, TRAIN):
        pass
    assert state_of(model) == state


@every_intervention
def test_using_hooks_leaves_a_model_as_it_was_found(intervention):
    if any(isinstance(part, bt.MixedAttention) and isinstance(part.weight, bt.Schedule) for part in intervention.parts):
        pytest.skip("hooks alone know no epoch")
    model = with_users_hooks(a_model())
    state = state_of(model)
    with model.hooks(fwd_hooks=intervention.hooks(TRAIN)):
        model(TRAIN.tokens)
    assert state_of(model) == state

"""The optimisers against hand-written loops, the SVD, torch's own, and the inequality of Definition 3.2."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import Parameter

import bayesticket as bt
from bayesticket.errors import BayesticketError
from bayesticket.optim import (
    AdamW,
    Optimizer,
    as_optimizer,
    build_optimizer,
    newton_schulz,
    optimizer_tensors,
    restore_optimizer,
    scale_learning_rates,
    warmup_factor,
)
from bayesticket.optim.lion import LionOptimizer
from bayesticket.optim.muon import MuonOptimizer
from bayesticket.specs import spec

OPTIMIZERS = ("adamw", "sgd", "muon", "lion")

SHAPES = {
    "embed.W_E": (11, 8),
    "pos_embed.W_pos": (5, 8),
    "blocks.0.attn.W_Q": (2, 8, 4),
    "blocks.0.attn.W_O": (2, 4, 8),
    "blocks.0.attn.b_Q": (2, 4),
    "blocks.0.attn._b_K": (1, 4),
    "blocks.0.ln1.w": (8,),
    "blocks.0.mlp.W_in": (8, 16),
    "blocks.0.mlp.W_out": (16, 8),
    "blocks.0.mlp.b_in": (16,),
    "unembed.W_U": (8, 11),
    "unembed.b_U": (11,),
}
DTYPES = [torch.float32, torch.float64]


def random_parameters(seed: int = 0, dtype: torch.dtype = torch.float64) -> dict[str, Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return {name: Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for name, shape in SHAPES.items()}


def set_random_gradients(parameters: dict[str, Parameter], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters.values():
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)


def take_steps(optimizer: torch.optim.Optimizer, parameters: dict[str, Parameter], seeds: range) -> None:
    for seed in seeds:
        set_random_gradients(parameters, seed)
        optimizer.step()


def build(name: str, parameters: dict[str, Parameter], **changes) -> torch.optim.Optimizer:
    own = {"momentum": 0.8} if name == "sgd" else {"betas": (0.9, 0.98)}
    return build_optimizer(as_optimizer(name, **({"lr": 0.03, "weight_decay": 0.5} | own | changes)), parameters)


def one_step(name: str, weight: Tensor, gradient: Tensor, parameter: str = "W", **changes) -> Tensor:
    parameters = {parameter: Parameter(weight.clone())}
    parameters[parameter].grad = gradient.clone()
    build(name, parameters, **(({"momentum": 0.0} if name == "sgd" else {}) | changes)).step()
    return parameters[parameter].detach()


# --- the steps ---------------------------------------------------------------------------------------------


def test_lion_is_its_formula():
    parameters = random_parameters()
    weights = {name: value.detach().clone() for name, value in parameters.items()}
    momenta = {name: torch.zeros_like(value) for name, value in weights.items()}
    optimizer = build("lion", parameters)
    for seed in range(1, 6):
        set_random_gradients(parameters, seed)
        optimizer.step()
        for name, parameter in parameters.items():
            sign = torch.sign(0.9 * momenta[name] + 0.1 * parameter.grad)
            weights[name] = (1 - 0.03 * 0.5) * weights[name] - 0.03 * sign
            momenta[name] = 0.98 * momenta[name] + 0.02 * parameter.grad
    for name, parameter in parameters.items():
        torch.testing.assert_close(parameter.detach(), weights[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 32, 8), (3, 8, 32), (40, 10), (10, 40), (2, 3, 8, 24)])
def test_newton_schulz_is_near_the_polar_factor_of_every_matrix(shape, dtype):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    # Were the norm shared between heads, the small ones would be far from orthogonal.
    matrices = matrices * torch.logspace(0, -5, shape[0], dtype=dtype).reshape(-1, *[1] * (len(shape) - 1))
    matrices = matrices if len(shape) > 2 else matrices / matrices.norm(dim=1, keepdim=True)
    found = newton_schulz(matrices)
    assert found.dtype == dtype
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    polar = left @ right
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.5
    assert values.max() < 1.3
    cosine = (found * polar).sum((-2, -1)) / (found.norm(dim=(-2, -1)) * polar.norm(dim=(-2, -1)))
    assert cosine.min() > 0.9


@pytest.mark.parametrize("shape", [(3, 32, 8), (3, 8, 32), (40, 10), (10, 40)])
def test_muon_moves_each_head_by_its_scaled_polar_factor(shape):
    gradient = torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    weight = torch.ones(shape, dtype=torch.float64)
    moved = (weight - one_step("muon", weight, gradient, lr=0.1, weight_decay=0.0)) / 0.1
    n_in, n_out = shape[-2:]
    scaling = math.sqrt(max(1.0, n_out / n_in))
    left, _, right = torch.linalg.svd(gradient, full_matrices=False)
    polar = left @ right
    values = torch.linalg.svdvals(moved) / scaling
    assert 0.5 < values.min() <= values.max() < 1.3
    cosine = (moved * polar).sum((-2, -1)) / (moved.norm(dim=(-2, -1)) * polar.norm(dim=(-2, -1)))
    assert cosine.min() > 0.9


@pytest.mark.parametrize("shape", [(32, 12), (12, 32)])
def test_muon_agrees_with_torch_on_one_matrix(shape):
    # TransformerLens stores a matrix as (in, out), torch as (out, in).
    start = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    ours, theirs = {"W": Parameter(start.clone())}, {"W": Parameter(start.T.clone())}
    mine = build("muon", ours, betas=(0.95, 0.99), lr=0.1, weight_decay=0.3)
    reference = torch.optim.Muon(theirs.values(), lr=0.1, weight_decay=0.3, momentum=0.95)
    for seed in range(1, 9):
        set_random_gradients(ours, seed)
        theirs["W"].grad = ours["W"].grad.T.clone()
        mine.step()
        reference.step()
    moved, expected = ours["W"].detach() - start, theirs["W"].detach().T - start
    assert (moved - expected).norm() < 0.02 * expected.norm()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("shape", [(2, 24, 8), (2, 8, 24)])
def test_newton_schulz_is_a_polynomial_of_the_singular_values_in_full_precision(shape, dtype, tolerance):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    values = values / values.norm(dim=-1, keepdim=True)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    found = newton_schulz(matrices.to(dtype)).double()
    torch.testing.assert_close(found, left * values[:, None] @ right, rtol=0, atol=tolerance)


def test_muon_leaves_all_but_weight_matrices_to_adamw():
    parameters, others = random_parameters(), random_parameters()
    muon, adamw = build("muon", parameters), build("adamw", others)
    take_steps(muon, parameters, range(1, 6))
    take_steps(adamw, others, range(1, 6))
    same = {name for name in SHAPES if torch.equal(parameters[name], others[name])}
    matrices = {f"blocks.0.{name}" for name in ("attn.W_Q", "attn.W_O", "mlp.W_in", "mlp.W_out")}
    assert same == SHAPES.keys() - matrices


@pytest.mark.parametrize("name", ["embed.W_E", "blocks.0.mlp.W_in"])
def test_muon_works_with_only_one_kind_of_parameter(name):
    parameters = {name: Parameter(torch.ones(4, 6))}
    take_steps(build("muon", parameters), parameters, range(1, 3))
    assert not torch.equal(parameters[name], torch.ones(4, 6))


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("parameter", ["blocks.0.mlp.W_in", "embed.W_E"])
def test_without_gradient_a_step_is_pure_decay(name, parameter):
    weight = torch.randn(6, 9, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    changes = {"lr": 0.07, "weight_decay": 0.4}
    parameters = {parameter: Parameter(weight.clone())}
    optimizer = build(name, parameters, **changes | ({"momentum": 0.0} if name == "sgd" else {}))
    for _ in range(5):
        parameters[parameter].grad = torch.zeros_like(weight)
        optimizer.step()
    torch.testing.assert_close(parameters[parameter].detach(), (1 - 0.07 * 0.4) ** 5 * weight, rtol=1e-12, atol=0)


def test_sgd_is_its_formula():
    weight, gradient = torch.randn(2, 6, 9, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    found = one_step("sgd", weight, gradient, lr=0.07, weight_decay=0.4)
    torch.testing.assert_close(found, (1 - 0.07 * 0.4) * weight - 0.07 * gradient, rtol=1e-12, atol=1e-14)


def test_adamw_first_step_is_decay_and_normalised_gradient():
    weight, gradient = torch.randn(2, 6, 9, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    expected = (1 - 0.07 * 0.4) * weight - 0.07 * gradient / (gradient.abs() + 1e-8)
    found = one_step("adamw", weight, gradient, lr=0.07, weight_decay=0.4)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_adamw_is_fused_here():
    assert build("adamw", random_parameters()).param_groups[0]["fused"] is True


# --- the inequality of Definition 3.2 ----------------------------------------------------------------------


def largest_direction(name: str, gradient: Tensor) -> float:
    """The bound on ‖D‖_F: the gradient's own norm for SGD, that of the update rule for the others."""
    *heads, n_in, n_out = gradient.shape
    count = math.prod(heads)
    if name == "sgd":
        return gradient.norm().item()
    if name == "lion":
        return math.sqrt(count * n_in * n_out)
    return 1.21 * math.sqrt(count * min(n_in, n_out) * max(1.0, n_out / n_in))


@pytest.mark.parametrize("name", ["sgd", "lion", "muon"])
@settings(max_examples=80, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6)),
    lr=st.floats(1e-4, 1.0),
    decay_rate=st.floats(1e-4, 1.0),
    weight_scale=st.floats(-4, 3),
    gradient_scale=st.floats(-12, 3),
    aligned=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_a_step_contracts(name, shape, lr, decay_rate, weight_scale, gradient_scale, aligned, seed):
    generator = torch.Generator().manual_seed(seed)
    weight, gradient = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    # A gradient that points inwards is the worst case: the step then adds to the norm.
    gradient = (-weight if aligned else gradient) * 10**gradient_scale
    weight = weight * 10**weight_scale
    after = one_step(name, weight, gradient, lr=lr, weight_decay=decay_rate / lr)
    bound = (1 - decay_rate) * weight.square().sum()
    bound = bound + lr**2 / decay_rate * largest_direction(name, gradient) ** 2
    # Where the decay cancels nearly all of W, what is left is rounding, of the size of W's own last digits.
    rounding = 1e-12 * (weight.norm() + after.norm())
    assert after.norm() <= bound.sqrt() * (1 + 1e-9) + rounding


@pytest.mark.parametrize("name", ["sgd", "lion"])
def test_the_inequality_is_an_equality_at_the_stationary_norm(name):
    # With a constant gradient W* = −D/λ is fixed, and there both sides are ‖D‖²/λ².
    gradient = torch.full((3, 4), -1.0, dtype=torch.float64)
    after = one_step(name, -gradient / 0.5, gradient, lr=0.2, weight_decay=0.5)
    bound = (1 - 0.1) * 12 / 0.25 + 0.2 / 0.5 * largest_direction(name, gradient) ** 2
    assert after.square().sum().item() == pytest.approx(bound, rel=1e-12)


# --- state --------------------------------------------------------------------------------------------------


def assert_same_bits(one: dict[str, Parameter], other: dict[str, Parameter]) -> None:
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def with_state_dict(old: torch.optim.Optimizer, one: dict, new: torch.optim.Optimizer, other: dict) -> None:
    new.load_state_dict(copy.deepcopy(old.state_dict()))


def with_tensors(old: torch.optim.Optimizer, one: dict, new: torch.optim.Optimizer, other: dict) -> None:
    restore_optimizer(new, other, optimizer_tensors(old, one))


@spec
class Plain(Optimizer):
    """An optimiser of the user's, which makes its state at the first gradient."""

    def build(self, parameters):
        return torch.optim.RMSprop(parameters.values(), lr=self.lr, weight_decay=self.weight_decay, momentum=0.5)


@pytest.mark.parametrize("carry", [with_state_dict, with_tensors])
@pytest.mark.parametrize("done", [0, 5])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*OPTIMIZERS, "plain"])
def test_a_restored_optimizer_continues_bit_for_bit(
    name: str, dtype: torch.dtype, done: int, carry: Callable[..., None]
):
    def made(parameters):
        return build_optimizer(Plain(), parameters) if name == "plain" else build(name, parameters)

    whole = random_parameters(dtype=dtype)
    uninterrupted = made(whole)
    take_steps(uninterrupted, whole, range(1, 1 + done))
    resumed = {key: Parameter(value.detach().clone()) for key, value in whole.items()}
    fresh = made(resumed)
    carry(uninterrupted, whole, fresh, resumed)
    take_steps(uninterrupted, whole, range(100, 105))
    take_steps(fresh, resumed, range(100, 105))
    assert_same_bits(whole, resumed)
    ours, theirs = optimizer_tensors(uninterrupted, whole), optimizer_tensors(fresh, resumed)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "theirs"), [("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)])
def test_state_that_exists_from_the_start_changes_nothing(name, theirs, dtype):
    parameters, others = random_parameters(dtype=dtype), random_parameters(dtype=dtype)
    own = {"betas": (0.9, 0.98), "fused": True} if name == "adamw" else {"momentum": 0.8}
    take_steps(build(name, parameters), parameters, range(1, 6))
    take_steps(theirs(others.values(), lr=0.03, weight_decay=0.5, **own), others, range(1, 6))
    assert_same_bits(parameters, others)


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("adamw", {}, {"step", "exp_avg", "exp_avg_sq"}),
        ("lion", {}, {"exp_avg"}),
        ("sgd", {}, {"momentum_buffer"}),
        ("sgd", {"momentum": 0.0}, set()),
    ],
)
def test_the_names_of_the_tensors(name, changes, expected):
    parameters = random_parameters()
    found = optimizer_tensors(build(name, parameters, **changes), parameters)
    assert found.keys() == {f"{parameter}/{state}" for parameter in SHAPES for state in expected}


def test_the_names_of_muon_tell_the_two_kinds_apart():
    parameters = random_parameters()
    found = optimizer_tensors(build("muon", parameters), parameters)
    assert {
        "blocks.0.attn.W_Q/momentum_buffer",
        "blocks.0.attn.b_Q/exp_avg",
        "embed.W_E/step",
    } <= found.keys()


def test_the_tensors_are_copies():
    parameters = random_parameters()
    optimizer = build("lion", parameters)
    before = optimizer_tensors(optimizer, parameters)
    take_steps(optimizer, parameters, range(1, 3))
    assert all(not value.any() for value in before.values())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_tensors_survive_a_safetensors_file(name, tmp_path):
    parameters = random_parameters() | {"W_turned": Parameter(torch.ones(3, 5).T)}
    optimizer = build(name, parameters)
    take_steps(optimizer, parameters, range(1, 3))
    kept = optimizer_tensors(optimizer, parameters)
    save_file(kept, tmp_path / "optimizer.safetensors")
    fresh = build(name, parameters)
    restore_optimizer(fresh, parameters, load_file(tmp_path / "optimizer.safetensors"))
    assert all(torch.equal(kept[key], value) for key, value in optimizer_tensors(fresh, parameters).items())


def test_frozen_parameters_and_missing_gradients_are_left_alone():
    for name in OPTIMIZERS:
        parameters = random_parameters()
        parameters["embed.W_E"].requires_grad_(False)
        before = {key: value.detach().clone() for key, value in parameters.items()}
        optimizer = build(name, parameters)
        set_random_gradients(parameters, 1)
        parameters["blocks.0.mlp.W_in"].grad = None
        parameters["blocks.0.mlp.b_in"].grad = None
        optimizer.step()
        still = {key for key in parameters if torch.equal(parameters[key], before[key])}
        assert still == {"embed.W_E", "blocks.0.mlp.W_in", "blocks.0.mlp.b_in"}
        assert not any(key.startswith("embed.W_E/") for key in optimizer_tensors(optimizer, parameters))


@pytest.mark.parametrize("optimizer_class", [LionOptimizer, MuonOptimizer])
def test_a_closure_is_evaluated_with_gradients(optimizer_class):
    weight = Parameter(torch.ones(3, 2))
    optimizer = optimizer_class({"W": weight}, lr=0.1, weight_decay=0.0, betas=(0.9, 0.99))

    def closure() -> float:
        loss = weight.square().sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 6.0
    assert (weight < 1).all()


# --- the step size ------------------------------------------------------------------------------------------


def test_warmup_rises_in_equal_steps_to_one():
    assert [warmup_factor(step, 4) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert [warmup_factor(step, 1) for step in range(3)] == [1.0, 1.0, 1.0]
    assert [warmup_factor(step, 0) for step in range(3)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_learning_rate_reaches_every_parameter(name):
    parameters = random_parameters()
    before = {key: value.detach().clone() for key, value in parameters.items()}
    optimizer = build(name, parameters)
    scale_learning_rates(optimizer, 0.0)
    take_steps(optimizer, parameters, range(1, 2))
    assert all(torch.equal(parameters[key], before[key]) for key in parameters)
    for factor in (0.25, 0.5):  # of what it was built with, not of what it is
        scale_learning_rates(optimizer, factor)
        assert {group["lr"] for group in optimizer.param_groups} == {factor * 0.03}


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("adam", {}, "optimizer: got 'adam'.*Closest: 'adamw'"),
        ("adamw", {"lr": 0.0}, "lr: got 0.0"),
        ("adamw", {"lr": math.nan}, "lr: got nan"),
        ("lion", {"weight_decay": -0.1}, "weight_decay: got -0.1"),
        ("muon", {"betas": (1.0, 0.9)}, r"betas\[0\]: got 1.0"),
        ("adamw", {"betas": (0.9, -0.1)}, r"betas\[1\]: got -0.1"),
        ("sgd", {"momentum": 1.0}, "momentum: got 1.0"),
        ("sgd", {"momentum": -0.5}, "momentum: got -0.5"),
        (
            "lion",
            {"momentum": 0.9},
            "momentum: got 0.9; accepted: no momentum with Lion, which has lr, weight_decay, b",
        ),
        ("sgd", {"betas": (0.9, 0.99)}, "betas: got .*accepted: no betas with SGD"),
    ],
)
def test_bad_settings_are_refused(name, changes, message):
    with pytest.raises(BayesticketError, match=message):
        build(name, random_parameters(), **changes)


@pytest.mark.parametrize("parameters", [{}, {"W": Parameter(torch.ones(2), requires_grad=False)}])
def test_nothing_to_train_is_refused(parameters):
    with pytest.raises(BayesticketError, match="parameters: got"):
        build("sgd", parameters)


@pytest.mark.parametrize(("step", "warmup", "field"), [(-1, 4, "step"), (0, -1, "warmup")])
def test_bad_warmup_is_refused(step, warmup, field):
    with pytest.raises(BayesticketError, match=f"{field}: got -1"):
        warmup_factor(step, warmup)


@pytest.mark.parametrize("lr", [-0.1, math.inf])
def test_bad_learning_rate_is_refused(lr):
    with pytest.raises(BayesticketError, match="factor: got"):
        scale_learning_rates(build("sgd", random_parameters()), lr)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_tensors_that_do_not_fit_are_refused_and_change_nothing(name):
    parameters = random_parameters()
    optimizer = build(name, parameters)
    take_steps(optimizer, parameters, range(1, 3))
    kept = optimizer_tensors(optimizer, parameters)
    last = [key for key in kept if not key.endswith("/step")][-1]
    other = {key: value + 1 for key, value in kept.items()}

    without = {key: value for key, value in other.items() if key != last}
    with pytest.raises(BayesticketError, match=f"missing '{last}'"):
        restore_optimizer(optimizer, parameters, without)
    with pytest.raises(BayesticketError, match=r"unexpected 'blocks\.7\.attn.W_Q/exp_avg'"):
        restore_optimizer(optimizer, parameters, other | {"blocks.7.attn.W_Q/exp_avg": torch.ones(2)})
    with pytest.raises(BayesticketError, match=f"{last}: got float64 of shape .*accepted: float64 of shape"):
        restore_optimizer(optimizer, parameters, other | {last: torch.ones(1, 1, dtype=torch.float64)})
    with pytest.raises(BayesticketError, match=f"{last}: got float32"):
        restore_optimizer(optimizer, parameters, other | {last: other[last].float()})
    assert all(torch.equal(kept[key], value) for key, value in optimizer_tensors(optimizer, parameters).items())


@spec
class Counting(Optimizer):
    """An optimiser whose state is more than tensors."""

    def build(self, parameters):
        optimizer = torch.optim.SGD(parameters.values(), lr=self.lr)
        for parameter in parameters.values():
            optimizer.state[parameter]["count"] = 3
        return optimizer


@spec
class Idle(Optimizer):
    """An optimiser that is none."""

    def build(self, parameters):
        return "nothing"


def test_state_that_no_checkpoint_can_hold_is_refused():
    parameters = {"W": Parameter(torch.ones(2))}
    with pytest.raises(BayesticketError, match=r"optimizer state W/count: got 3; accepted: a tensor"):
        optimizer_tensors(build_optimizer(Counting(), parameters), parameters)


def test_what_is_built_has_to_be_an_optimizer():
    with pytest.raises(BayesticketError, match=r"Idle\.build: got 'nothing'; accepted: a torch.optim.Optimizer"):
        build_optimizer(Idle(), {"W": Parameter(torch.ones(2))})


def test_an_optimizer_of_ones_own_is_named_by_a_word_and_takes_the_same_settings():
    assert as_optimizer("plain", lr=0.5) == Plain(lr=0.5)
    assert as_optimizer(AdamW(lr=0.5), weight_decay=0.0, betas=None) == AdamW(lr=0.5, weight_decay=0.0)


def test_a_bound_that_is_not_known_is_nan():
    weights = {"W": torch.ones(2, 3)}
    assert math.isnan(Plain().direction_bound(weights, 1.0))
    assert math.isnan(as_optimizer("sgd", momentum=0.5).direction_bound(weights, 1.0))
    assert as_optimizer("sgd").direction_bound(weights, 1.5) == 1.5


def test_a_word_of_the_library_names_its_own_optimiser():
    @bt.spec
    class Adamw(bt.Optimizer):
        def build(self, parameters):
            raise AssertionError

    @bt.spec
    class Plain(bt.Optimizer):
        def build(self, parameters):
            return torch.optim.Adam(parameters.values(), lr=self.lr)

    assert bt.as_optimizer("adamw") == bt.AdamW() != Adamw()
    assert bt.as_optimizer("plain", lr=0.5) == Plain(lr=0.5)
    bt.train(bt.ModularAddition(p=5), model=bt.Architecture(d_model=8, d_mlp=8), epochs=2)


def test_a_counter_in_a_parameter_group_is_state():
    class Counting(torch.optim.SGD):
        """Halves its own step at every step, counted in its groups as schedule-free optimisers do."""

        def __init__(self, parameters, lr):
            super().__init__(parameters, lr=lr)
            for group in self.param_groups:
                group["k"] = 0

        def step(self, closure=None):
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.data.sub_(parameter.grad, alpha=group["lr"] * 0.5 ** group["k"])
                group["k"] += 1

    def made():
        weights = {"W": torch.nn.Parameter(torch.ones(2))}
        return weights, Counting(weights.values(), lr=0.1)

    weights, optimizer = made()
    for _ in range(3):
        weights["W"].grad = torch.ones(2)
        optimizer.step()
    kept = optimizer_tensors(optimizer, weights)
    assert kept["group 0/k"].item() == 3
    others, resumed = made()
    restore_optimizer(resumed, others, kept)
    assert resumed.param_groups[0]["k"] == 3
    with pytest.raises(bt.BayesticketError, match="optimizer tensors"):
        restore_optimizer(resumed, others, {"group 7/k": torch.tensor(1)})

"""What the ports of an intervention may give: anything else is one clear line, before anything is trained."""

import pytest
import torch
from jobs import SMALL, TASK

import bayesticket as bt
from bayesticket.runs import Training, configure

POST = "blocks.0.mlp.hook_post"
TRAIN = TASK.split().train


@bt.spec
class OddPenalty(bt.Intervention):
    """A penalty that reads one hook point, and gives what it is told to."""

    gives: str = "scalar"
    declared: bool = True

    def reads(self):
        return (POST,) if self.declared else ()

    def penalty(self, context, activations):
        read = activations[POST]
        return {
            "scalar": read.mean(), "matrix": read[:, -1], "vector": read.mean((1, 2)), "float": read.mean().item(),
            "none": None, "tuple": (read.mean(),), "integer": 0, "one entry": read.mean()[None],
        }[self.gives]  # fmt: skip


@bt.spec
class Forgetful(bt.Intervention):
    """Computes a penalty and does not return it."""

    declared: bool = True

    def reads(self):
        return (POST,) if self.declared else ()

    def penalty(self, context, activations):
        def square(read):
            return read.square()

        for read in activations.values():
            square(read).mean()


@bt.spec
class NoGradients(bt.Intervention):
    """Changes gradients in place and returns nothing."""

    def gradients(self, context, gradients):
        gradients["embed.W_E"].mul_(0.5)


@bt.spec
class OddNames(bt.Intervention):
    """Gives what it is told to from `reads` or `edits`."""

    port: str = "reads"
    gives: object = None

    def reads(self):
        return self.gives if self.port == "reads" else ()

    def edits(self, context):
        return self.gives if self.port == "edits" else []


CASES = [
    (
        OddPenalty("matrix"),
        r"OddPenalty\.penalty: got a tensor of shape \(\d+, 8\); accepted: a scalar tensor, or None",
    ),
    (OddPenalty("vector"), r"OddPenalty\.penalty: got a tensor of shape \(\d+,\); accepted: a scalar tensor, or None"),
    (OddPenalty("one entry"), r"OddPenalty\.penalty: got a tensor of shape \(1,\); accepted: a scalar tensor, or None"),
    (OddPenalty("float"), r"OddPenalty\.penalty: got \d\.\d+; accepted: a scalar tensor, or None"),
    (OddPenalty("integer"), r"OddPenalty\.penalty: got 0; accepted: a scalar tensor, or None"),
    (OddPenalty("tuple"), r"OddPenalty\.penalty: got \(tensor.*accepted: a scalar tensor, or None"),
    (Forgetful(), r"Forgetful\.penalty: got no `return` after reading activations; accepted: a scalar tensor"),
    (
        OddPenalty(declared=False),
        r"OddPenalty\.penalty: got activations\['blocks\.0\.mlp\.hook_post'\], which `reads` does not name; accepted: "
        r"`def reads\(self\): return \('blocks\.0\.mlp\.hook_post',\)`",
    ),
    (NoGradients(), r"NoGradients\.gradients: got None; accepted: a mapping from names of parameters to gradients"),
    (OddNames("reads", POST), r"OddNames\.reads: got 'blocks.*accepted: a tuple of names, such as"),
    (OddNames("reads", None), r"OddNames\.reads: got None; accepted: a tuple of names"),
    (OddNames("edits", None), r"OddNames\.edits: got None; accepted: a list of \(hook point, function\)"),
    (OddNames("edits", (POST, 3)), r"OddNames\.edits: got 'blocks.*accepted: a list of \(hook point, function\)"),
]


@pytest.mark.parametrize(("intervention", "message"), CASES)
def test_a_mistake_in_a_port_is_one_line_before_anything_is_begun(intervention, message, tmp_path, monkeypatch):
    monkeypatch.setattr(Training, "take_epoch", lambda self: pytest.fail("training has begun"))
    with pytest.raises(bt.BayesticketError, match=message) as caught:
        bt.train(TASK, intervention, model=SMALL, epochs=3, store=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("intervention", "message"), CASES)
def test_a_loop_of_ones_own_gets_the_same_line(intervention, message):
    model = bt.build_model(TASK, d_model=8, d_mlp=8)

    def step():
        with intervention.attach(model, TRAIN) as live:
            loss = torch.nn.functional.cross_entropy(model(TRAIN.tokens)[:, -1], TRAIN.targets)
            (loss + live.penalty()).backward()
            live.gradients()

    with pytest.raises(bt.BayesticketError, match=message):
        step()


def test_a_sweep_names_the_arm_before_anything_is_begun(tmp_path):
    with pytest.raises(bt.BayesticketError, match=r"^mine, seed 0: OddPenalty\.penalty: got a tensor of shape"):
        bt.sweep(
            TASK,
            {"none": None, "mine": OddPenalty("matrix")},
            seeds=[0],
            store=tmp_path / "runs",
            model=SMALL,
            epochs=3,
        )
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("intervention", [OddPenalty("none"), OddPenalty("scalar"), Forgetful(declared=False)])
def test_a_penalty_may_have_no_term(intervention):
    assert bt.train(TASK, intervention, model=SMALL, epochs=3).epoch == 3


def test_a_penalty_may_ask_which_activations_it_has():
    @bt.spec
    class Asking(OddPenalty):
        def penalty(self, context, activations):
            assert POST in activations
            assert "hook_embed" not in activations
            assert activations.get("hook_embed") is None
            return activations[POST].mean()

    Training(configure(task=TASK, intervention=Asking(), model=SMALL))


def test_a_penalty_whose_source_is_not_at_hand_may_have_no_term():
    body = "def penalty(self, context, activations):\n    activations['blocks.0.mlp.hook_post']\n    return None"
    methods: dict = {"reads": lambda self: ("blocks.0.mlp.hook_post",)}
    exec(body, {}, methods)
    without_source = bt.spec(type("WithoutSource", (bt.Intervention,), methods))
    bt.train(TASK, without_source(), model=SMALL, epochs=2)

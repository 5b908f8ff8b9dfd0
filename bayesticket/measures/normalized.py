"""The loss of a model whose MLP has been scaled to a fixed norm."""

import math
from typing import cast

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from bayesticket.errors import refuse, refuse_case, require_number
from bayesticket.measures.base import Measure, Observation
from bayesticket.model import HookedTransformer, bypasses_mlp, middle_name, unusual_setting
from bayesticket.specs import spec
from bayesticket.tasks import Examples

MIDDLE = middle_name(0)


@spec
class NormalizedMLPLoss(Measure):
    """Task loss of the model with its MLP's matrices scaled to a fixed norm: a number.

    `W_in ← radius · W_in / ‖W_in‖_F` and `W_out ← radius · W_out / ‖W_out‖_F`; biases, attention, embeddings and
    unembedding stay as they are. `radius=None` is the norm that TransformerLens draws both with,
    `init_scale · initializer_range · √(d_model · d_mlp)`, 12.8 for the paper's model. Where the loss falls only because
    the weights grow, this one falls less, or rises: much above the train loss, it means that the fit rests on the
    MLP's size and not on its direction.

    MLP and unembedding are run once more at every query, on the stream after attention (`hook_resid_mid`), which
    costs a third to a half of a training epoch. That is right for a plain model of one layer without normalisation,
    whose logits are `r + MLP(r)` unembedded, or `MLP(r)` without a residual path. Other models, and edits between that
    stream and the logits, are an error.
    """

    radius: float | None = None

    takes_all_queries = True

    def __post_init__(self):
        if self.radius is not None:
            require_number("radius", self.radius, above=0)

    def reads(self, model: HookedTransformer) -> tuple[str, ...]:
        """The stream between attention and MLP."""
        return (MIDDLE,)

    def check(self, model: HookedTransformer, batch: Examples) -> None:
        """Raises unless the model is a plain one of one layer."""
        setting = unusual_setting(model)
        if setting is None and model.cfg.normalization_type is not None:
            setting = f"normalization_type={model.cfg.normalization_type!r}"
        if setting is not None:
            raise refuse_case(
                "NormalizedMLPLoss: model",
                setting,
                "a plain model of one layer without normalisation, whose logits are those of r + MLP(r)",
            )
        if self.radius is None and model.cfg.init_mode != "gpt2":
            raise refuse(
                "NormalizedMLPLoss.radius", None, f"a number, as the model's init_mode is {model.cfg.init_mode!r}"
            )

    def value(self, seen: Observation) -> Float[Tensor, ""]:
        """The loss."""
        model, logits, targets = seen.model, seen.logits.flatten(0, -2), seen.batch.targets.flatten()
        queries = seen.batch.queries or (-1,)
        stream = seen.activations[MIDDLE].detach()  # of one position where the forward computes no more
        middle = (stream if stream.shape[1] == 1 else stream[:, list(queries)]).flatten(0, 1)
        # An edit after this point would make the loss that of another model; a few examples suffice to find it.
        few = slice(0, 4)
        error = (_logits_of(model, middle[few]) - logits[few]).abs().max()
        if error > 1e-3 * (1 + logits[few].abs().max()):
            raise refuse_case(
                "NormalizedMLPLoss",
                f"a model with edits between {MIDDLE} and its logits",
                "edits of the embedding and the attention only, since the MLP is run again without them",
            )
        mlp, radius = model.blocks[0].mlp, self.radius_of(model)
        logits = _logits_of(model, middle, radius / mlp.W_in.norm(), radius / mlp.W_out.norm())
        return F.cross_entropy(logits, targets)

    def radius_of(self, model: HookedTransformer) -> float:
        """The radius of the sphere: the one given, or that of the model's initial weights."""
        if self.radius is not None:
            return self.radius
        scale = getattr(getattr(model, "architecture", None), "init_scale", 1.0)
        return scale * model.cfg.initializer_range * math.sqrt(model.blocks[0].mlp.W_in.numel())


def _logits_of(
    model: HookedTransformer,
    middle: Float[Tensor, "n d_model"],
    scale_in: float | Float[Tensor, ""] = 1.0,
    scale_out: float | Float[Tensor, ""] = 1.0,
) -> Float[Tensor, "n d_vocab_out"]:
    """Logits of a plain model of one layer from the stream after attention, its MLP's matrices scaled."""
    mlp, unembed = model.blocks[0].mlp, model.unembed
    b_in, b_out, b_U = cast(Tensor, mlp.b_in), cast(Tensor, mlp.b_out), cast(Tensor, unembed.b_U)
    hidden = mlp.act_fn(middle @ (scale_in * mlp.W_in) + b_in)
    final = hidden @ (scale_out * mlp.W_out) + b_out
    return (middle + final if bypasses_mlp(model) else final) @ unembed.W_U + b_U

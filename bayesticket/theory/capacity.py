"""How much the map from the pooled value to the logits can stretch (Def. 4.2, Eqs. 23, 30).

The map is `r = x_q + z W_O + b_O` and `logits = (r + relu(r W_in + b_in) W_out + b_out) W_U + b_U`; it is piecewise
affine in z. Without the residual stream around attention, r lacks `x_q`: the pieces move, and their slopes stay.
Without the one around the MLP the slopes lack the term `W_O W_U`; `mlp_residual=False` says so.

Several heads are several maps, one per W_O, all with the same `pre`; the Lipschitz constant of one head is for a change
in that head alone.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def jacobian(
    W_O: Float[Tensor, "*#batch d_head d_model"],
    W_in: Float[Tensor, "d_model d_mlp"],
    W_out: Float[Tensor, "d_mlp d_model"],
    W_U: Float[Tensor, "d_model d_vocab"],
    pre: Float[Tensor, "*#batch d_mlp"],
    *,
    mlp_residual: bool = True,
) -> Float[Tensor, "*_ d_head d_vocab"]:
    """The exact Jacobian of the logits in z, `J = W_O W_U + W_O W_in diag(1[pre > 0]) W_out W_U` (Eq. 30).

    Rows are coordinates of z: `d logits = dz J`. `pre` is what the ReLU is given at the example (`hook_pre`).

    >>> one = torch.eye(2)
    >>> jacobian(one, one, one, one, torch.tensor([1.0, -1.0]))
    tensor([[2., 0.],
            [0., 1.]])
    """
    active = (pre > 0).to(W_O.dtype).unsqueeze(-2)
    through = (W_O @ W_in * active) @ (W_out @ W_U)
    return through + W_O @ W_U if mlp_residual else through


def spectral_norm(matrix: Float[Tensor, "*batch rows cols"]) -> Float[Tensor, "*batch"]:
    """The largest singular value, `‖A‖₂`, from the smaller of the two Gram matrices.

    Several times faster than a singular value decomposition, and as exact for the largest value. Costs some 0.3 ms for
    each matrix with 64 rows.

    >>> spectral_norm(torch.tensor([[3.0, 0.0], [0.0, -4.0]]))
    tensor(4.)
    """
    gram = matrix.mT @ matrix if matrix.shape[-2] > matrix.shape[-1] else matrix @ matrix.mT
    return torch.linalg.eigvalsh(gram)[..., -1].clamp_min(0).sqrt()


def lipschitz_factors(
    W_O: Float[Tensor, "*batch d_head d_model"],
    W_in: Float[Tensor, "d_model d_mlp"],
    W_out: Float[Tensor, "d_mlp d_model"],
    W_U: Float[Tensor, "d_model d_vocab"],
    *,
    mlp_residual: bool = True,
) -> Float[Tensor, "*batch"]:
    """Global, by the norm of each matrix: `L = ‖W_O‖ (1 + ‖W_in‖ ‖W_out‖) ‖W_U‖` (Eq. 23). The loosest.

    >>> one = torch.eye(2)
    >>> lipschitz_factors(one, 3 * one, one, one)
    tensor(4.)
    """
    around = 1.0 if mlp_residual else 0.0
    return spectral_norm(W_O) * (around + spectral_norm(W_in) * spectral_norm(W_out)) * spectral_norm(W_U)


def lipschitz_products(
    W_O: Float[Tensor, "*batch d_head d_model"],
    W_in: Float[Tensor, "d_model d_mlp"],
    W_out: Float[Tensor, "d_mlp d_model"],
    W_U: Float[Tensor, "d_model d_vocab"],
    *,
    mlp_residual: bool = True,
) -> Float[Tensor, "*batch"]:
    """Global, through the products: `L = ‖W_O W_U‖ + ‖W_O W_in‖ ‖W_out W_U‖` (Eq. 23). At most `lipschitz_factors`.

    >>> one = torch.eye(2)
    >>> lipschitz_products(one, 3 * one, one, one)
    tensor(4.)
    """
    through = spectral_norm(W_O @ W_in) * spectral_norm(W_out @ W_U)
    return spectral_norm(W_O @ W_U) + through if mlp_residual else through


def lipschitz_centred(
    W_O: Float[Tensor, "*batch d_head d_model"],
    W_in: Float[Tensor, "d_model d_mlp"],
    W_out: Float[Tensor, "d_mlp d_model"],
    W_U: Float[Tensor, "d_model d_vocab"],
    *,
    mlp_residual: bool = True,
) -> Float[Tensor, "*batch"]:
    """Global, around the half-open MLP: `L = ‖W_O W_U + ½ B C‖ + ½ ‖B‖ ‖C‖`, `B = W_O W_in`, `C = W_out W_U`.

    Every mask is `½ + ½ S` with S diagonal of signs, so no Jacobian is larger. At most `lipschitz_products`.

    >>> one = torch.eye(2)
    >>> lipschitz_centred(one, 3 * one, -one, one)
    tensor(2.)
    """
    before, after = W_O @ W_in, W_out @ W_U
    middle = 0.5 * before @ after
    middle = middle + W_O @ W_U if mlp_residual else middle
    return spectral_norm(middle) + 0.5 * spectral_norm(before) * spectral_norm(after)


def lipschitz_local(jacobian: Float[Tensor, "*batch d_head d_vocab"]) -> Float[Tensor, "*batch"]:
    """At one example, the norm of its Jacobian: `‖J‖₂ ≤ L` for each of the global L (Eq. 30). See `spectral_norm`."""
    return spectral_norm(jacobian)


def lipschitz_of_radius(radius: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """The largest Lipschitz constant of a ReLU MLP whose weights have norm r: `L(r) = r²/2` (Def. 4.2, Eq. 23).

    `‖W_in‖₂ ‖W_out‖₂ ≤ ‖W_in‖_F ‖W_out‖_F ≤ (‖W_in‖²_F + ‖W_out‖²_F)/2`, attained at two matrices of rank one and
    equal norm. It is for the MLP alone: a path around it adds 1, and W_O before and W_U after multiply.

    >>> lipschitz_of_radius(torch.tensor(4.0))
    tensor(8.)
    """
    return radius.square() / 2


def norm_condition(
    norm: Float[Tensor, "*#batch"], least: Float[Tensor, "*#batch"] | float, most: Float[Tensor, "*#batch"] | float
) -> Bool[Tensor, "*_"]:
    """Whether the weights of the MLP lie in the shell of N, `r_min ≤ ‖θ‖_F ≤ r_max` (Def. 4.2).

    >>> norm_condition(torch.tensor([10.0, 25.0, 50.0]), 20.0, 40.0)
    tensor([False,  True, False])
    """
    return (norm >= least) & (norm <= most)

"""What the paper says that no experiment can judge, and why; what can be proved or refuted on paper is in `docs`."""

from dataclasses import dataclass

from bayesticket.figures import Table


@dataclass(frozen=True)
class Unjudged:
    """A claim that no experiment can judge."""

    said: str
    where: str
    """Where the paper says it."""
    reason: str
    """Why no run can agree or disagree with it, in a sentence."""


UNJUDGED = (
    Unjudged(
        "Attention is an implicit Bayesian posterior over the dependency graph.",
        "Abstract, Section 4.1",
        "No prior and no likelihood are named, so this predicts nothing beyond what is claimed of attention weights.",
    ),
    Unjudged(
        "Single-head linear attention preserves the essential optimisation landscape of Transformers.",
        "Section 3.2",
        "It is cited from elsewhere, and the paper does not say which features are essential.",
    ),
    Unjudged(
        "The margins Δ hold in the worst case over all inputs.",
        "Section 3.2, App. A.3",
        "There are more inputs than can be tried, so runs are judged by the worst case over the examples of a split, "
        "which may be milder.",
    ),
    Unjudged(
        "The steps of an optimiser are uniformly bounded.",
        "Def. 3.2, App. B",
        "Every finite run has such a bound, so runs are judged by the numbers that Props. B.1 and B.2 give.",
    ),
    Unjudged(
        "The norm of the MLP is optimal when it is between r_min and r_max.",
        "Def. 4.2, Sections 4.3, 5.1 and 6",
        "The interval is defined as that in which models generalise, which is circular, so each run is judged by the "
        "norms at which other runs generalise.",
    ),
    Unjudged(
        "Attention needs at least γ/(L·Δ) on each informative position.",
        "Theorem 4.3, App. C.1.3",
        "γ is “some” margin, and an error rate fixes no scale of the logits, so runs are judged with the margins that "
        "they have.",
    ),
    Unjudged(
        "Zero test error implies the norm condition.",
        "Section 4.2, App. C.1.1",
        "The proof cites “standard generalization bounds” and gives no constant, so no norm contradicts it.",
    ),
    Unjudged(
        "The structural and the norm condition together suffice for zero test error.",
        "Theorem 4.3, App. C.2",
        "This direction is conditional on Assumption C.1, so a run that contradicts it shows only that the assumption "
        "does not hold there.",
    ),
    Unjudged(
        "Where both conditions hold, training finds a max-margin solution that generalises.",
        "Assumption C.1",
        "It is an assumption and not a claim, so a run in which it fails refutes nothing.",
    ),
    Unjudged(
        "Attention keeps inputs of different classes apart by a positive margin.",
        "App. A.3, Eq. 28",
        "The margin absorbs a term of unknown size (“possibly tighter”), so that any distance agrees with it.",
    ),
    Unjudged(
        "Phase 3 begins when the capacity of the MLP falls below what memorising needs.",
        "Section 5.1",
        "That capacity is not given, so phase 3 is judged by what else is said of it: the norm, the training loss and "
        "attention.",
    ),
    Unjudged(
        "The divergence decays at the rate μβ̃.",
        "Theorem 5.2, Eqs. 47 and 51 to 53",
        "β̃ absorbs the learning rate, the embeddings and μ, so any rate agrees; judged are the form of the decay and "
        "how times scale with the strength.",
    ),
    Unjudged(
        "The squared distance from the oracle is at least 2 min α* times the divergence.",
        "Lemma D.1, Eq. 50",
        "The lemma presumes a target without zeros; for the oracle, which is 0 on distractors, the constant is 0 and "
        "excludes nothing.",
    ),
    Unjudged(
        "Attention reaches a neighbourhood of the oracle in finite time.",
        "App. D.4.2",
        "Neither the size of the neighbourhood nor the time is given, so no run is long enough to contradict it.",
    ),
    Unjudged(
        "Standard networks follow the predicted trajectories “identically”, so that the conjecture is “observationally "
        "complete”.",
        "App. E.1",
        "The paper does not say what would count as a difference, so only what it says of scores and attention is "
        "judged.",
    ),
    Unjudged(
        "Several heads together need less attention on each position, τ_H, than a single head does.",
        "Conjecture E.2",
        "The factor between the two “depends” on the output projection and on how redundant the heads are, and no "
        "formula is given.",
    ),
    Unjudged(
        "The numbers that the figures show.",
        "Figures 1 to 11",
        "Our copy of the paper has lost its figures and formulas, so only what its sentences say of them is judged.",
    ),
)
"""In the order of the paper, as far as it has one."""


def unjudged_table() -> Table:
    """The claims that no experiment can judge, with the reasons."""
    rows = [[each.said, each.where, each.reason] for each in UNJUDGED]
    return Table(("claim", "where", "why no experiment can judge it"), rows, wordy=True)

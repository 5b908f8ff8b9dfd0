"""What is lost from our copy of the paper, as settings, and the arms that are run in each."""

from dataclasses import dataclass
from itertools import product

from bayesticket.paper.arms import LAYOUTS, STRENGTH

NONE, FREE, TRANSFER = "no prior", "oracle, no weight decay", "winning ticket, fresh weights"
STRENGTHS = (0.05, 0.2, STRENGTH)


def prior(strength: float) -> str:
    """The name of an arm with a prior toward the oracle."""
    return f"oracle, strength {strength:g}"


WEAKEST, ORACLE = prior(STRENGTHS[0]), prior(STRENGTH)
ARMS = (NONE, *map(prior, STRENGTHS), FREE, TRANSFER)


@dataclass(frozen=True)
class Setting:
    """One choice of what is lost from our copy of the paper.

    >>> print(Setting(lr=1e-3, distractors="random distractors", path="no residual path", biases="biases"))
    lr 0.001, random distractors, no residual path, biases
    """

    lr: float
    distractors: str
    path: str
    biases: str

    def __str__(self) -> str:
        return f"lr {self.lr:g}, {self.distractors}, {self.path}, {self.biases}"

    @property
    def is_ours(self) -> bool:
        """Whether the other figures have it, in either model."""
        return self.lr == 1e-3 and self.biases == "biases"

    @property
    def is_random(self) -> bool:
        """Whether runs see noise beside the operands."""
        return LAYOUTS[self.distractors] == "random"


SETTINGS = tuple(
    Setting(*levels)
    for levels in product((3e-4, 1e-3, 3e-3), LAYOUTS, ("no residual path", "residual path"), ("biases", "no biases"))
)


def name_of(arm: str, setting: Setting) -> str:
    """The name of an arm in a setting."""
    return f"{arm}: {setting}"


def dense(setting: Setting) -> str:
    """The arm in whose run the ticket of a setting is found: one that groks."""
    return ORACLE if setting.is_random else NONE

"""For each figure, made-up results in which its claims hold, do not hold, or hold in some of the runs."""

import functools
import zlib
from dataclasses import replace

import numpy as np
import worlds_of_appendix
from stories import EPOCHS, arms_of, header_of, line, runs_of, story

from bayesticket.paper import controls, decay, early, equation9, fig3, fig5, lost, tickets
from bayesticket.paper.arms import LAYOUTS
from bayesticket.paper.comparing import arm_of
from bayesticket.paper.factorial import ALL, CONSTANT, DECAY, FREE, HELD, LARGER, OLD, QK, SMALLER, name_of
from bayesticket.paper.figure import Scale, arm_names
from bayesticket.paper.results import Results
from bayesticket.paper.strengths import STRENGTHS, strength_arm
from bayesticket.tasks import ModularAddition

FULL = Scale()


def of_each_arm(names, *lives):
    """Worlds in which all arms live alike: each life alone, and each pair of the first with another, three to two."""
    first, *others = lives
    alone = [runs_of(dict.fromkeys(names, [life] * 5)) for life in lives]
    return alone + [runs_of(dict.fromkeys(names, [first] * 3 + [other] * 2)) for other in others]


def by_fig1():
    """It goes as the paper says; nothing does; or attention moves early, back and forth, and scores do not contract."""
    loss = line((0, 4.7), (280, 4.7), (300, 0.01), (3000, 0.01), (3020, 0.02))
    norm = lambda epochs: np.where(epochs < 300, 40.0, 40 * np.exp(-(epochs - 300) / 5000))  # noqa: E731
    peak = lambda epochs: np.select([epochs == 0, epochs < 300], [0.01, 1.0], 0.02)  # noqa: E731
    good = story(
        grokked=4000, train_loss=loss, mlp_norm=norm, attention_gradient=peak,
        kl_to_oracle=line((0, 1), (3000, 1), (3900, 0.02)), score_variance=line((300, 1), (3000, 0.1)),
        attention_entropy=line((300, 0.5), (3000, 1.0)),
    )  # fmt: skip
    bad = story(grokked=4000, kl_to_oracle=lambda epochs: np.where(epochs >= 4100, 0.05, 1.0))
    early = story(
        grokked=4000, train_loss=loss, mlp_norm=norm, attention_entropy=line((300, 1.0), (3000, 0.5)),
        kl_to_oracle=line((0, 1), (300, 1), (500, 0.4), (3000, 0.4), (3300, 0.1), (3600, 0.4), (4000, 0.3)),
    )  # fmt: skip
    return of_each_arm(LAYOUTS, good, bad, early, story(memorised=None))


AS_CLAIMED = {
    name_of(norm, prior): best
    for norms, bests in (
        ((DECAY, HELD, SMALLER, LARGER, ALL, OLD, QK), {"no prior": 0.4, "oracle": 1.0, "adversarial": 0.01}),
        ((FREE,), {"no prior": 0.02, "oracle": 0.6, "adversarial": 0.01}),
        ((CONSTANT[DECAY],), {"no prior": 0.4, "oracle": 1.0}),
        ((CONSTANT[FREE],), {"no prior": 0.02, "oracle": 0.6}),
    )
    for norm in norms
    for prior, best in bests.items()
}
"""The best accuracy in each arm of Figure 2, as the paper would have it."""


def reaches(best):
    """A run that memorises, and reaches this accuracy."""
    return story(test_accuracy=lambda epochs: np.where(epochs > 5000, best, 0.01))


def factorial(best, other=None):
    """Results of Figure 2 by what arms reach: all seeds the same, or two of five what `other` says."""
    other = best if other is None else other
    return runs_of({name: [reaches(best[name])] * 3 + [reaches(other[name])] * 2 for name in best})


def by_fig2():
    perfect, nothing = dict.fromkeys(AS_CLAIMED, 1.0), dict.fromkeys(AS_CLAIMED, 0.01)
    without = AS_CLAIMED | {name_of(QK, "oracle"): 0.4}
    worlds = [factorial(AS_CLAIMED), factorial(perfect), factorial(nothing), factorial(without)]
    return worlds + [factorial(AS_CLAIMED, other) for other in (perfect, nothing, without)]


def of_strengths(grokked, lives=(), memorised=300, **curves):
    """Results of Figure 3 by when arms grok and by curves, both functions of the strength."""
    rng, arms = np.random.default_rng(0), {}
    for layout in LAYOUTS:
        for strength in (0.0, *STRENGTHS):
            scatter = [np.exp(0.05 * rng.normal()) for _ in range(5)]
            arms[strength_arm(layout, strength)] = [
                story(memorised, 20 * round(min(grokked(strength), 9000) * factor / 20),
                      **{name: value(strength * factor) for name, value in curves.items()})
                for factor in scatter
            ]  # fmt: skip
        if lives:
            arms[strength_arm(layout, 1.0)] = list(lives)
    return runs_of(arms)


def decaying(strength):
    """A divergence that falls exponentially after a while, the faster the stronger the prior."""
    return lambda epochs: np.exp(-np.maximum(epochs - 40, 0) * (strength + 2e-3) / 200)


def slow(strength):
    """A divergence that falls as 1/t, hardly faster under a strong prior."""
    return lambda epochs: 1 / (1 + epochs * (strength + 1e-3) ** 0.2 / 20)


def plateau(strength):
    """A norm that contracts once the run has memorised."""
    return lambda epochs: 40 * np.exp(-np.maximum(epochs - 300, 0) / 3000)


def ratio(late, memorised=300):
    """The prior's gradient, which changes when the run memorises."""
    return lambda strength: lambda epochs: np.where(epochs < memorised, 0.1, late)


def fitted(epochs):
    """The training loss of a run that memorises at epoch 300."""
    return np.where(epochs < 300, 4.7, 0.01)


def by_fig3():
    good = {"kl_to_oracle": decaying, "prior_gradient": ratio(10.0, 600)}
    bad = {
        "kl_to_oracle": slow, "prior_gradient": ratio(0.01), "mlp_norm": plateau,
        "train_loss": lambda strength: fitted,
    }  # fmt: skip
    lives = [
        story(memorised, 1060, **{name: value(1.0) for name, value in made.items()})
        for memorised, made in ((600, good), (600, good), (600, good), (300, bad), (300, bad))
    ]
    inverse, root = (lambda s: 1000 + 1 / (1 / 7000 + s / 60)), (lambda s: 1000 * (s + 1e-3) ** -0.3)
    return [
        of_strengths(inverse, memorised=600, **good),
        of_strengths(root, **bad),
        of_strengths(inverse, lives, memorised=600, **good),
        of_strengths(lambda s: 1000 + 800 * s, **bad),
        runs_of({name: [story(memorised=None)] * 5 for name in fig3.arms(FULL)}),
    ]


def by_controls():
    never = dict.fromkeys([controls.NONE, *controls.LIVE, *controls.FROZEN, controls.SGD_NONE])
    never |= {controls.NONE_CONSTANT: 6000, controls.NOISE_CONSTANT: 6000, controls.ORACLE_CONSTANT: 3000}
    claimed = never | {controls.ORACLE: 2000, "attention frozen at the oracle": 1000, controls.SGD_ORACLE: 3000}
    against = dict.fromkeys(claimed, 1000) | {
        controls.ORACLE: 4000, "attention frozen at the oracle": 4000, controls.SGD_ORACLE: 4000,
    }  # fmt: skip
    helps = claimed | dict.fromkeys(controls.LIVE, 5000)
    nothing = dict.fromkeys(claimed)
    return [arms_of(each) for each in (claimed, against, dict.fromkeys(claimed, 2000), helps, nothing)]


TICKETS = {
    tickets.DENSE: 6000, tickets.WINNING: 4000, tickets.lottery(0.4): 4500, tickets.lottery(0.8): 4500,
    tickets.TRANSFER: 4500, tickets.ROUTING_MASK: 4100, tickets.REPRESENTATION_PRUNED: 6000, tickets.FROZEN: 2000,
    tickets.TAUGHT: 2600, tickets.QK: 4000, tickets.REPRESENTATION: 6000, tickets.BOTH: 1000, tickets.BAYES: 2500,
    tickets.BAYES_PRUNED: 4000, tickets.RANDOM: None, tickets.NORM: 6000,
}  # fmt: skip
"""When the arms of Figure 4 grok, as the paper would have it."""


def of_tickets(n_seeds=5, **epochs):
    """Results of Figure 4 by when arms grok, a hundred epochs later with each seed."""
    times = TICKETS | {getattr(tickets, name): epoch for name, epoch in epochs.items()}
    return runs_of({
        arm_of(layout, name): [
            story(grokked=None if epoch is None else epoch + 100 * seed) for seed in range(n_seeds)
        ]
        for layout in LAYOUTS
        for name, epoch in times.items()
    })  # fmt: skip


def by_fig4():
    reverse = {name: None if epoch is None else 8500 - epoch for name, epoch in TICKETS.items()}
    named = {value: name for name, value in vars(tickets).items() if isinstance(value, str)}
    against = {named[name]: epoch for name, epoch in reverse.items() if name in named} | {"RANDOM": 1000}
    near = {"BAYES": 4600, "TAUGHT": 4600, "TRANSFER": 4000, "BAYES_PRUNED": 4000}
    between = {"BOTH": 5000, "TRANSFER": 6000, "FROZEN": 7000}
    return [of_tickets(**changed) for changed in ({}, against, near, between, dict.fromkeys(against, 4000))]


def bounds(measured, local, global_, loose, paper, scaled=100.0):
    """The forms of the bound, and how large each is against the next."""
    forms = {"measured": measured, "local": local, "global": global_, "loose": loose, "paper": paper, "scaled": scaled}
    links = {"measured/local": measured / local, "local/global": local / global_, "global/loose": global_ / loose}
    return {f"explaining_away[{name}]": value for name, value in (forms | links).items()}


def by_fig5():
    far = {"explaining_away[loose]": line((300, 4.0), (320, 400.0))}
    fine = story(**(bounds(0.1, 0.2, 0.5, 4.0, 2.0) | far))
    broken = story(**bounds(0.3, 0.2, 0.5, 4.0, 0.05))
    return of_each_arm([str(name) for name in fig5.arms(FULL)], fine, broken, story(memorised=None))


def by_conditions():
    structured = "structural_condition[tau=derived][share]"
    norm = line((0, 40), (3000, 40), (3020, 20))
    good = story(grokked=4000, mlp_norm=norm, kl_to_oracle=0.1, **{structured: lambda e: 1.0 * (e >= 4000)})
    bad = story(
        grokked=4000, mlp_norm=norm, kl_to_oracle=5.0,
        **{structured: 0.5, "test_pairwise_condition[share]": 0.9,
           "separability_margin[of=readings][least/distractors]": 0.0},
    )  # fmt: skip
    first, *others = names = [str(name) for name in fig5.arms(FULL)]
    lacking, rest = story(mlp_norm=norm, **{structured: 0.5}), {name: [good] * 5 for name in others}
    never = [runs_of({first: lives, **rest}) for lives in ([lacking] * 5, [lacking] * 3 + [story()] * 2)]
    return never + of_each_arm(names, good, bad, story())


def under_decay(weight_decay, seed, *, law=1.0, speed=1.0, first=60.0, **columns):
    """A run whose norm contracts from memorising on, and that groks after a wait that goes with the decay."""
    rate = 1e-3 * weight_decay
    wait = 1500 * weight_decay**-law * (1 + 0.02 * seed)
    norm = lambda epochs: first * np.exp(-speed * rate * np.maximum(epochs - 300, 0))  # noqa: E731
    made = {"mlp_norm": norm, "train_loss": fitted, "contraction[rate]": rate, **columns}
    return story(grokked=300 + 20 * round(wait / 20), **made)


def by_decay():
    def good(weight_decay, seed):
        return under_decay(weight_decay, seed, score_variance=lambda e: np.exp(-e * weight_decay / 500))

    def bad(weight_decay, seed):
        return under_decay(weight_decay, seed, law=0.0, speed=0.2)

    def flat(weight_decay, seed):
        return under_decay(weight_decay, seed, speed=0.0, first=60.0 * np.exp(-1.5 * (1 + 0.02 * seed)))

    def none(weight_decay, seed):
        return story(memorised=None)

    def far(weight_decay, seed):
        return under_decay(weight_decay, seed, first=200.0, speed=0.85)

    def mixed(*lives):
        return lambda weight_decay, seed: lives[seed](weight_decay, seed)

    def world(life):
        names = {decay.decay_arm(each): each for each in decay.DECAYS} | dict.fromkeys(decay.OPTIMIZERS, 1.0)
        return runs_of({name: [life(each, seed) for seed in range(5)] for name, each in names.items()})

    lives = (good, bad, flat, none, mixed(good, good, good, bad, bad), mixed(flat, flat, flat, good, good),
             mixed(good, good, good, flat, flat), mixed(bad, bad, bad, far, far))  # fmt: skip
    return [world(life) for life in lives]


def variants(built=(None, 1200), **others):
    """Results of Equation 9 by when runs grok without a prior and with the oracle: as built, and in some variants."""
    named = {name.replace(" ", "_"): name for name in equation9.VARIANTS}
    epochs = {equation9.AS_BUILT: built, **dict.fromkeys(named.values(), built)}
    epochs |= {named[name]: given for name, given in others.items()}
    return arms_of({
        equation9.name_of(variant, prior, layout): epoch
        for layout in LAYOUTS
        for variant, pair in epochs.items()
        for prior, epoch in zip((equation9.NONE, equation9.ORACLE), pair, strict=True)
    })  # fmt: skip


def by_equation9():
    everywhere = {name.replace(" ", "_"): (2000, 6000) for name in equation9.VARIANTS}
    return [
        variants(),
        variants((2000, 6000)),
        variants(without_biases=(2000, 6000)),
        variants((6000, 1200), **everywhere),
        variants((None, None)),
    ]


def in_settings(life):
    """Results of the specification curve by what the arms of a setting do with a seed."""
    kept = ["train_accuracy", "test_accuracy", "unseen_accuracy", "kl_to_oracle"]
    made = {(setting, seed): life(setting, seed) for setting in lost.SETTINGS for seed in range(3)}
    return runs_of({
        lost.name_of(arm, setting): [made[setting, seed][arm][kept] for seed in range(3)]
        for setting in lost.SETTINGS
        for arm in lost.ARMS
    })  # fmt: skip


def by_specification():
    none, free, transfer = lost.NONE, lost.FREE, lost.TRANSFER
    condensing = {early: lambda e, early=early: np.where(e >= (2000 if early else 6000), 0.05, 1.0) for early in (1, 0)}

    def strengths(time, seed):
        return {lost.prior(s): story(grokked=20 * round(time(s) * (1 + 0.01 * seed) / 20)) for s in lost.STRENGTHS}

    def claimed(setting, seed):
        rises = reaches(0.7).assign(kl_to_oracle=condensing[1](EPOCHS))
        others = {none: rises, free: reaches(0.4), transfer: story(grokked=4000)}
        return strengths(lambda s: 1000 + 60 / s, seed) | others

    def root(setting, seed):
        late = reaches(0.7).assign(kl_to_oracle=condensing[0](EPOCHS))
        return strengths(lambda s: 4000 * s**-0.25, seed) | {none: late, free: story(), transfer: story(grokked=1000)}

    def against(setting, seed):
        return strengths(lambda s: 2000 + 6000 * s, seed) | {
            none: story(grokked=1000),
            free: story(),
            transfer: story(),
        }

    def nothing(setting, seed):
        return dict.fromkeys(lost.ARMS, story(memorised=None))

    def by_path(first, second):
        return lambda setting, seed: (first if setting.path == "residual path" else second)(setting, seed)

    lives = (claimed, root, against, nothing, by_path(claimed, root), by_path(claimed, against))
    return [in_settings(life) for life in lives]


def signs(ours, theirs, n_seeds=early.SEEDS):
    """Results of the early signs, by what runs recorded that grok, every other seed, and those that never do."""
    return runs_of({
        name: [
            story(**ours[seed % len(ours)], grokked=5000 + 40 * seed) if (seed + place) % 2 else story(**theirs)
            for seed in range(n_seeds)
        ]
        for place, name in enumerate(early.arms(FULL))
    })  # fmt: skip


def by_early():
    rising, level = line((300, 100.0), (1000, 100.0), (2000, 2000.0)), 100.0
    others = ("effective_rank", "fourier_gini", "mlp_norm", "train_loss", "attention_gradient")
    large, small = dict.fromkeys(others, 2.0), dict.fromkeys(others, 1.0)
    return [
        signs([{"commutator_defect": rising, **small}], {"commutator_defect": level, **large}),
        signs([{"commutator_defect": level}], {"commutator_defect": rising}),
        signs([*[{"commutator_defect": rising}] * 2, {"commutator_defect": level}], {"commutator_defect": level}),
        signs([{}], {}),
        signs([{"memorised": None}], {"memorised": None}),
        runs_of({name: [story(commutator_defect=rising)] * early.SEEDS for name in early.arms(FULL)}),
    ]


WORLDS = {
    "early": by_early,
    "fig1": by_fig1, "fig2": by_fig2, "fig3": by_fig3, "controls": by_controls, "fig4": by_fig4, "fig5": by_fig5,
    "conditions": by_conditions, "decay": by_decay, "equation9": by_equation9, "specification": by_specification,
    **worlds_of_appendix.WORLDS,
}  # fmt: skip


@functools.cache
def worlds_of(module):
    """The made-up results of a figure, those of its two first seeds alone among them."""
    made = WORLDS[module]()
    return [*made, made[0].sel(seed=[0, 1])]


def results_of(runs):
    """Made-up runs as results: each is of the default task, with constant distractors, and has an id of its own."""
    task = ModularAddition(distractors="constant")
    made = {seed: header_of(story(), seed=seed, task=task) for seed in runs.seeds}
    values = runs.curves.to_array().transpose("intervention", "seed", ...).to_numpy()
    headers = {}
    for arm, of_arm in zip(arm_names(runs), values, strict=True):
        for seed, curves in zip(runs.seeds, of_arm, strict=True):
            own = zlib.crc32(curves.tobytes())  # other curves are those of another run
            headers[arm, seed] = replace(made[seed], config={**made[seed].config, "batch_seed": own})
    return Results(runs, headers)


def every_arm(figure):
    """The arms of a figure's made-up results."""
    return [str(name) for name in worlds_of(figure.name.removesuffix("-standard"))[0].labels("intervention")]

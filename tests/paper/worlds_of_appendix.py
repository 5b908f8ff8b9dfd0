"""Made-up results of the figures of the appendix, in which claims hold, do not hold, or hold in some of the runs."""

import numpy as np
from stories import line, runs_of, story

from bayesticket.paper import autoregressive, fig6, fig7, fig8, fig9, fig10, fig11, practical
from bayesticket.paper.arms import LAYOUTS, NOISY, PLAIN
from bayesticket.paper.best import with_strength
from bayesticket.paper.comparing import arm_of


def lives(grokked, n_seeds=5, spread=0.03, **columns):
    """Runs that grok at about an epoch, or never, and are otherwise as told."""
    rng = np.random.default_rng(0)
    epochs = [
        None if grokked is None else int(20 * round(grokked * np.exp(spread * rng.normal()) / 20))
        for _ in range(n_seeds)
    ]
    return [story(grokked=epoch, **columns) for epoch in epochs]


def reversed_in_time(epochs, end=8500):
    """The same arms, the late ones early."""
    return {name: 500 if epoch is None else end - epoch for name, epoch in epochs.items()}


# Figures 6, 7 and the practical priors: arms by when they grok ------------------------------------------------------


def lives_of(epoch, spread=0.03):
    """Runs that grok at about an epoch, or never; or as told."""
    return epoch if isinstance(epoch, list) else lives(epoch, spread=spread)


def strengths_of(epochs, part, none, spread=0.03):
    """Priors by when they make runs grok at the second strength, a fifth later at the first."""
    found = {arm_of(part, none): lives_of(epochs[none], spread)}
    for prior, epoch in epochs.items():
        for strength in fig6.TOWARD if prior != none else ():
            at_best = strength == fig6.TOWARD[1] or epoch is None or isinstance(epoch, list)
            found[arm_of(part, with_strength(prior, strength))] = lives_of(epoch if at_best else epoch * 1.2, spread)
    return found


def scattered(*epochs):
    """Runs that grok at these epochs."""
    return [story(grokked=epoch) for epoch in epochs]


CLAIMED_6 = {
    fig6.NONE: 7000, fig6.ORACLE: 1500, fig6.ENTROPY: 4000, fig6.ROOTS: 4500, fig6.SCORES: 4500, fig6.TEACHER: 2000,
    fig6.UNTRAINED: None, fig6.SHUFFLED: None,
}  # fmt: skip
EPOCHS_6 = [
    CLAIMED_6,
    reversed_in_time(CLAIMED_6),
    dict.fromkeys(CLAIMED_6, 4000),
    dict.fromkeys(CLAIMED_6),
    CLAIMED_6 | {fig6.ORACLE: 3000, fig6.ROOTS: 2000, fig6.TEACHER: 2700, fig6.UNTRAINED: 2000},
    CLAIMED_6 | {fig6.ORACLE: 1000, fig6.TEACHER: 6000},
    CLAIMED_6 | {fig6.NONE: 3000, fig6.TEACHER: 6000},
    CLAIMED_6 | {fig6.ORACLE: 4000, fig6.TEACHER: 1500},
]


def by_fig6():
    def world(epochs):
        return {name: each for layout in LAYOUTS for name, each in strengths_of(epochs, layout, fig6.NONE).items()}

    return [runs_of(world(epochs)) for epochs in EPOCHS_6]


def by_practical():
    claimed = dict.fromkeys(practical.ALL, 2000) | {practical.NONE: None, practical.SHUFFLED: 6000}
    little = dict.fromkeys(practical.ALL, 7000) | {practical.NONE: 8500, practical.ORACLE: 1000}
    later = dict.fromkeys(practical.ALL, 7000) | {
        practical.NONE: 3000,
        practical.ORACLE: 1000,
        practical.SHUFFLED: 1000,
    }
    same = dict.fromkeys((practical.NONE, *practical.ALL), 4000)
    teachers = {arm_of(PLAIN, name): lives(3000) for name in practical.TEACHERS[:3]}
    return [
        runs_of(strengths_of(epochs, NOISY, practical.NONE) | teachers) for epochs in (claimed, little, later, same)
    ]


def by_fig7():
    early = dict.fromkeys((fig7.CONSTANT, *fig7.WINDOWS, *fig7.ANNEALS), 2500)
    claimed = {fig7.NONE: 6000, **early, **dict(zip(fig7.STARTS, (3000, 3500, 4500), strict=True))}
    near = claimed | {fig7.SHORT: 2800}
    mixed = claimed | {list(fig7.STARTS)[2]: 7000}

    def world(epochs, kept=(0.95,) * 5, first=1.0):
        """Attention is on the operands to the end of the short window, and keeps some of that."""
        return runs_of({
            arm_of(layout, name): [
                curves.assign(informative_mass_mean=np.where(curves.index <= 200, first, share))
                for curves, share in zip(lives(epoch), kept, strict=True)
            ]
            for layout in LAYOUTS
            for name, epoch in epochs.items()
        })  # fmt: skip

    return [
        world(claimed), world(reversed_in_time(claimed), (0.5,) * 5), world(dict.fromkeys(claimed, 4000)),
        world(near, (0.95, 0.95, 0.95, 0.5, 0.5)), world(mixed), world(claimed | {fig7.SHORT: 5000}),
        world(dict.fromkeys(claimed)), world(claimed, (0.95,) * 5, first=0.5),
    ]  # fmt: skip


# Figure 8: accuracy by length ---------------------------------------------------------------------------------------


def at_lengths(values, others=None, n_seeds=5):
    """The accuracy at each length, in every run a little different; in two of five runs others, if any are given."""
    return [
        {
            f"{fig8.label(length)}/{kind}_accuracy": value - 0.001 * seed
            for length, value in zip(fig8.LENGTHS, values if seed < 3 else others or values, strict=True)
            for kind in ("test", "unseen")
        }
        for seed in range(n_seeds)
    ]


def by_fig8():
    good, bad = (0.95, 0.9, 0.8, 0.6), (0.2, 0.1, 0.05, 0.04)

    def world(epochs, with_prior, without, others=None):
        arms = {}
        for kind in fig8.POSITIONS:
            for prior, epoch in epochs.items():
                if prior == fig8.FIXED and kind != fig8.LEARNED:
                    continue
                tables = at_lengths(without) if prior == fig8.NONE else at_lengths(with_prior, others)
                arms[arm_of(kind, prior)] = [
                    curves.assign(**columns) for curves, columns in zip(lives(epoch), tables, strict=True)
                ]
        return runs_of(arms)

    claimed, against = (
        {fig8.NONE: None, fig8.ORACLE: 3000, fig8.FIXED: None},
        {fig8.NONE: 2000, fig8.ORACLE: None, fig8.FIXED: 2500},
    )
    some = [world(claimed, good, bad), world(against, (1.0,) * 4, (0.9,) * 4)]
    return [
        *some, world(against, bad, good), world(dict.fromkeys(claimed, 4000), good, good),
        world(claimed, good, (0.93, 0.88, 0.7, 0.5)), world(claimed, good, bad, (1.0,) * 4),
        world(dict.fromkeys(claimed), bad, bad), world(claimed, (1.0,) * 4, bad),
    ]  # fmt: skip


# Figure 9: width and heads ------------------------------------------------------------------------------------------


def by_fig9():
    def world(grokked, condensed, overlap, pooled, alone, heads=3000):
        arms = {}
        for part, priors in fig9.SWEPT.items():
            for prior in priors:
                for n, width in enumerate(fig9.WIDTHS):
                    kl = line((0, 1), (max(condensed[n] - 20, 1), 1), (condensed[n], 0.05))
                    tables = [each.drop(columns=fig9.OVERLAP) for each in lives(grokked[n], kl_to_oracle=kl)]
                    if part == fig9.ANYWHERE:
                        tables = [
                            curves.assign(**{fig9.OVERLAP: overlap[n] + 0.001 * s}) for s, curves in enumerate(tables)
                        ]
                    arms[arm_of(part, fig9.with_width(prior, width))] = tables
        for layout in LAYOUTS:
            for prior in fig9.PRIORS:
                arms[arm_of(layout, f"{prior}, 1 head")] = lives(3000, informative_mass_least=0.4)
                arms[arm_of(layout, fig9.with_heads(prior))] = [
                    curves.assign(**{
                        fig9.POOLED: together,
                        **{fig9.HEAD_LEAST.format(f"H{h}"): each for h in range(fig9.HEADS)},
                    })
                    for curves, together, each in zip(lives(heads), pooled, alone, strict=True)
                ]  # fmt: skip
        return runs_of(arms)

    down, flat = (6000, 5000, 4000, 3000, 2000), (4000,) * 5
    when, share = (1000, 800, 600, 400, 200), (0.9, 0.7, 0.5, 0.3, 0.1)
    return [
        world(down, when, share, (1.2,) * 5, (0.1,) * 5),
        world(down[::-1], when[::-1], share[::-1], (0.8,) * 5, (0.1,) * 5),
        world(flat, (600,) * 5, (0.5,) * 5, (1.2,) * 5, (0.1, 0.1, 0.1, 0.45, 0.45)),
        world((None,) * 5, (20_000,) * 5, (0.5,) * 5, (1.2,) * 5, (0.1,) * 5, heads=None),
    ]


# Figure 10: other tasks ---------------------------------------------------------------------------------------------


def by_fig10():
    names = {"loose": 400.0, "global": 0.5, "local": 0.2, "measured": 0.1}

    def bounds(measured, after):
        values = names | {"measured": measured, "loose": line((300, 4.0), (320, after))}
        links = {"measured/local": measured / 0.2, "local/global": 0.4, "global/loose": 0.1}
        return {f"explaining_away[{name}]": value for name, value in (values | links).items()}

    def world(none, oracle, best, form, tasks=fig10.TASKS, other=None):
        arms = {}
        for task in fig10.TASKS:
            pair = (none, oracle) if task in tasks else other
            for prior, epoch in zip((fig10.NONE, fig10.ORACLE), pair, strict=True):
                tables = lives(epoch, **form)
                if task == fig10.PERMUTATIONS and prior == fig10.ORACLE:
                    tables = [
                        each.assign(test_accuracy=each["test_accuracy"].clip(upper=cap))
                        for each, cap in zip(tables, best, strict=True)
                    ]
                arms[arm_of(task, prior)] = tables
        for prior, epoch in {fig10.ORDERED: oracle, fig10.TWO_HEADS: none, fig10.APART: oracle}.items():
            arms[arm_of(fig10.PERMUTATIONS, prior)] = lives(epoch, **form)
        return runs_of(arms)

    fine, broken = bounds(0.1, 400.0), bounds(0.3, 4.0)
    low, high = (0.4,) * 5, (1.0,) * 5
    return [
        world(6000, 2000, low, fine),
        world(2000, 6000, high, broken),
        world(4000, 4000, (0.4, 0.4, 0.4, 1.0, 1.0), fine),
        world(6000, 2000, low, fine, tasks=fig10.TASKS[:3], other=(2000, 6000)),
        world(6000, 2000, low, {**fine, "train_accuracy": 0.1}),
        runs_of_half(world(6000, 2000, low, fine), world(6000, 2000, low, bounds(0.1, 4.0))),
    ]


def runs_of_half(first, second):
    """The runs of a world, the last two seeds those of another."""
    from bayesticket.sweeps import Runs

    return Runs(first.curves.where(first.curves["seed"] < 3, second.curves))


# Figure 11: frozen attention and contraction -----------------------------------------------------------------------


def by_fig11():
    def falling(speed, name):
        if speed is None:  # it rises
            return lambda epochs: 20.0 + 0.01 * np.clip(epochs - 300, 0, 2500)
        rate = 1e-3 * speed * fig11.steps_of(name, 3830)
        return lambda epochs: 60.0 * np.exp(-rate * np.maximum(epochs - 300, 0))

    def fitted(epochs):
        return np.where(epochs < 300, 4.7, 0.01)

    def world(frozen, none, oracle, speeds, memorised=300):
        arms = {}
        for layout in LAYOUTS:
            times = {fig11.NONE: none, fig11.ORACLE: oracle, fig11.FROZEN: frozen}
            arms |= {arm_of(layout, name): lives(epoch) for name, epoch in times.items()}
        for name in fig11.PERTURBED:
            arms[name] = [
                story(
                    memorised,
                    grokked=1500,
                    mlp_norm=falling(speed, name),
                    train_loss=fitted,
                    **{"contraction[rate]": 1e-3},
                )
                for speed in speeds
            ]
        return runs_of(arms)

    return [
        world(1500, 6000, 1400, (1.0,) * 5),
        world(6000, 1500, 7500, (None,) * 5),
        world(3000, 3000, 3300, (1.0, 1.0, 1.0, None, None)),
        world(3000, 6000, 3300, (1.0,) * 5),
        world(None, None, None, (1.0,) * 5, memorised=None),
    ]


# Next-token prediction ----------------------------------------------------------------------------------------------


def tokens_of(epoch, *, alive=True, bits=1.0, measured=0.1, n_seeds=5):
    """Runs of next-token prediction: whether the gradient stays, and the loss on bits as a share of log 2."""
    late = 0.5 if alive else 0.01
    n = autoregressive.N
    made = {
        "attention_gradient": line((0, 0.1), (100, 1.0), (300, 1.0), (320, late)),
        "train_loss": ((n - 1) * bits * np.log(2) + 0.02) / (n + 1),
        autoregressive.ANSWER: 0.02,
        "explaining_away[measured]": measured,
        "explaining_away[measured/local]": measured / 0.2,
    }
    return lives(epoch, n_seeds, **made)


def by_autoregressive():
    names = autoregressive

    def world(none, oracle, wrong, alone, drawn_alone=300, **kind):
        epochs = {names.BARE: none, names.DRAWN: oracle, names.MISLED: wrong}
        epochs |= {names.BARE_ALONE: alone, names.DRAWN_ALONE: drawn_alone}
        return {name: tokens_of(epoch, **kind) for name, epoch in epochs.items()}

    claimed, against = world(6000, 2000, None, 4000), world(2000, 6000, 1000, 8000, alive=False, measured=0.3)
    others = {
        "some alive": world(6000, 2000, 4000, 4000, alive=False),
        "predicted": world(4000, 4000, 4000, 4000, bits=0.5),
        "a little later": world(4000, 4000, 4000, 4400),
    }
    mixed = {name: [*claimed[name][:3], *others["some alive"][name][3:]] for name in claimed}
    made = [claimed, against, *others.values(), mixed | {names.MISLED: others["some alive"][names.MISLED]}]
    return [runs_of(arms) for arms in made]


WORLDS = {
    "fig6": by_fig6, "fig7": by_fig7, "fig8": by_fig8, "fig9": by_fig9, "fig10": by_fig10, "fig11": by_fig11,
    "autoregressive": by_autoregressive, "practical": by_practical,
}  # fmt: skip

"""What the rules of the appendix's figures say of made-up runs in which the truth is plain."""

from dataclasses import replace

import pytest
from stories import line, runs_of, story

from bayesticket.analysis import Times
from bayesticket.paper import fig7, fig8, fig9, fig10, fig11
from bayesticket.paper.best import best_arms, of_teachers, saved, transfers
from bayesticket.paper.comparing import Arms, arm_of
from bayesticket.paper.figure import Scale
from bayesticket.paper.readings import UNSEEN

END = 10_000
SOON, LATE, NEVER = (1900, 2000, 2050, 2100, 1950), (6000, 6200, 5900, 6100, 6050), (None,) * 5


def times(*epochs):
    return Times.of(epochs, [END] * len(epochs))


def arms(**epochs):
    return Arms("made up", {name: times(*each) for name, each in epochs.items()}, str)


# Earlier, matching, transferring ----------------------------------------------------------------------------------


def test_an_arm_that_does_no_better_refutes_that_it_does():
    """Noise that works as well as a teacher is no sign that the teacher taught anything."""
    same = arms(teacher=SOON, noise=(2000, 1900, 2080, 1950, 2060), slow=LATE)
    assert same.beat("teacher", "noise") == "not reproduced"
    assert same.beat("teacher", "slow") == "reproduced"
    assert same.beats_all("Both.", "teacher", ("noise", "slow"), {}, "a control").verdict == "partly"


@pytest.mark.parametrize("second", [NEVER, (500, 9000, 2000, 4000, None)])
def test_where_neither_is_known_to_match_the_other_nothing_is_decided(second):
    assert arms(a=NEVER if second == NEVER else SOON, b=second).beat("a", "b") == "undecided"


def test_an_arm_that_is_probably_earlier_is_not_refuted():
    """A fifth earlier in every pair of seeds, and too near for the test."""
    pairs = arms(a=(1000, 2000, 3000, 4000, 5000), b=(1200, 2400, 3600, 4800, 6000))
    assert pairs.earlier("a", "b") == "undecided"
    assert pairs.beat("a", "b") == "undecided"


def test_two_arms_that_do_nothing_do_not_match():
    idle = arms(short=LATE, throughout=LATE, none=LATE)
    assert idle.matches("It suffices.", "short", "throughout", {}, "the paper").verdict == "reproduced"
    assert idle.matches("It suffices.", "short", "throughout", {}, "the paper", "none").verdict == "undecided"
    worse = arms(short=NEVER, throughout=LATE, none=LATE)
    assert worse.matches("It suffices.", "short", "throughout", {}, "the paper", "none").verdict == "not reproduced"
    works = arms(short=SOON, throughout=SOON, none=LATE)
    assert works.matches("It suffices.", "short", "throughout", {}, "the paper", "none").verdict == "reproduced"


def test_a_run_that_groks_at_epoch_0_leaves_a_verdict():
    claim = arms(a=(0, 20, 20, 40, 20), b=LATE).matches("As early.", "a", "b", {}, "the paper")
    assert claim.verdict == "reproduced"
    assert "not defined, as a run grokked at epoch 0" in claim.measured


@pytest.mark.parametrize(
    ("prior", "expected"),
    [
        (SOON, "reproduced"),
        ((5600, 5700, 5500, 5400, 5650), "partly"),
        (LATE, "not reproduced"),
        (NEVER, "not reproduced"),
        ((4000, 4050, 3950, 4100, 4020), "undecided"),
    ],
)
@pytest.mark.parametrize("none", [LATE, NEVER])
def test_what_transfers_is_a_share_of_what_the_oracle_saves(prior, none, expected):
    """A prior that does nothing is no undecided case; half of the epochs, give or take, is one."""
    if none == NEVER:
        prior = {LATE: NEVER, (4000, 4050, 3950, 4100, 4020): (6000, 6050, 5950, 6100, 6020)}.get(prior, prior)
        prior = (9000, 9100, 8900, 9050, 8950) if expected == "partly" else prior
    given = arms(prior=prior, oracle=SOON, none=none)
    assert transfers(given, "Much.", "prior", "oracle", "none", (), "the paper").verdict == expected


def test_the_share_that_is_saved_has_an_interval():
    exact = saved(arms(prior=(4000,) * 5, oracle=(2000,) * 5, none=(6000,) * 5), "prior", "oracle", "none")
    assert (exact.value, exact.low, exact.high) == (0.5, 0.5, 0.5)
    wide = saved(arms(prior=(2000, 6000, 2000, 6000, 4000), oracle=SOON, none=LATE), "prior", "oracle", "none")
    assert wide.low is not None
    assert wide.high is not None
    assert wide.low < 0.5 < wide.high
    idle = saved(arms(prior=SOON, oracle=LATE, none=LATE), "prior", "oracle", "none")
    assert (idle.value, idle.low, idle.high) == (None, None, None)


def test_a_prior_is_judged_at_the_best_of_its_own_strengths():
    named = {"none (here)": times(*LATE), "prior, strength 1 (here)": times(*NEVER)}
    named |= {"prior, strength 0.1 (here)": times(*SOON), "a prior, strength 1 (here)": times(*NEVER)}
    named |= {"prior, strength 10 (there)": times(100, 100, 100, 100, 100)}
    found = best_arms(named, "here", "none", ["prior", "a prior"])
    assert found.full_name("prior") == "prior, strength 0.1 (here)"
    assert found.levels == {"none": 0.05 / 2}


def test_students_of_teachers_that_had_not_learned_decide_nothing():
    claim = arms(student=NEVER, none=SOON).beats("It teaches.", "student", "none")
    assert claim.verdict == of_teachers(claim, times(*SOON)).verdict == "not reproduced"
    judged = of_teachers(claim, times(*SOON[:4], None))
    assert judged.verdict == "undecided"
    assert judged.measured.endswith("4 of 5 teachers had grokked.")


# Figure 7 ---------------------------------------------------------------------------------------------------------


def test_a_late_start_is_judged_where_it_is_late_and_in_time():
    at = {n: name for name, n in fig7.STARTS.items()}
    assert fig7.in_time(times(*[300] * 5), times(*NEVER)) == [at[500], at[1000], at[2000]]
    assert fig7.in_time(times(*[700] * 5), times(*[1500] * 5)) == [at[1000]]
    assert fig7.in_time(times(*NEVER), times(*NEVER)) == []


def test_a_start_after_the_baseline_has_grokked_does_not_refute_that_late_starts_work():
    names = {fig7.NONE: [story(grokked=1500 + 20 * n) for n in range(5)]}
    names |= {name: [story(grokked=min(n + 300 + 20 * k, 1500 + 20 * k)) for k in range(5)]
              for name, n in fig7.STARTS.items()}  # fmt: skip
    others = (fig7.CONSTANT, *fig7.WINDOWS, *fig7.ANNEALS)
    names |= {name: [story(grokked=400 + 20 * k) for k in range(5)] for name in others}
    runs = runs_of({arm_of(layout, name): each for name, each in names.items() for layout in fig7.LAYOUTS})
    claim = fig7.judge_at(runs, UNSEEN)[2]
    assert claim.verdict == "reproduced"
    assert claim.readings[list(fig7.STARTS)[2]] == "not reproduced"


def test_attention_stays_only_where_a_prior_had_put_it():
    def mass(before, after, grokked=None):
        curves = story(grokked=grokked)
        return curves.assign(informative_mass_mean=[before if epoch <= 200 else after for epoch in curves.index])

    assert fig7.stays(mass(0.95, 0.9), 200, None) == pytest.approx(0.9 / 0.95)
    assert fig7.stays(mass(1.0, 0.5), 200, None) == 0.5
    assert fig7.stays(mass(0.5, 0.5), 200, None) is None, "it had not put it there"
    assert fig7.stays(mass(1.0, 0.5, grokked=160), 200, 160) is None, "the run had grokked by then"


# Figure 8 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((0.9, 0.91, 0.92, 0.93, 0.94), (0.2, 0.3, 0.25, 0.1, 0.22), "reproduced"),
        ((0.9, 0.91, 0.92, 0.93, 0.94), (0.87, 0.88, 0.85, 0.86, 0.89), "partly"),
        ((0.2, 0.3, 0.25, 0.1, 0.22), (0.9, 0.91, 0.92, 0.93, 0.94), "not reproduced"),
        ((1.0,) * 5, (1.0,) * 5, "not reproduced"),
        ((0.02, 0.03, 0.01, 0.02, 0.03), (0.01, 0.03, 0.02, 0.02, 0.01), "not reproduced"),
        ((0.1, 0.9, 0.5, 0.3, 0.7), (0.2, 0.8, 0.4, 0.6, 0.5), "undecided"),
        ((0.9,) * 4, (0.1,) * 4, "undecided"),
        ((float("nan"),) * 5, (0.1,) * 5, "undecided"),
    ],
)
def test_an_accuracy_that_is_surely_not_much_better_is_not_substantially_better(first, second, expected):
    assert fig8.better(first, second) == expected


def of_lengths(grokked, accuracy):
    lengths = {f"{fig8.label(n)}/{kind}_accuracy": accuracy for n in fig8.LENGTHS for kind in ("unseen", "test")}
    return [story(grokked=grokked).assign(**lengths)] * 5


def test_nothing_is_kept_by_runs_that_had_nothing():
    """Without a prior no run groks, so that its accuracy in longer sequences was never there; nor is that imperfect."""
    named = {fig8.NONE: of_lengths(None, 0.1), fig8.ORACLE: of_lengths(2000, 0.5), fig8.FIXED: of_lengths(None, 0.1)}
    runs = runs_of({arm_of(kind, prior): each for kind in fig8.POSITIONS for prior, each in named.items()})
    *_, longer, imperfect = fig8.judge_at(runs, UNSEEN)
    assert (longer.verdict, longer.readings[fig8.OF_THOSE_THAT_GROK]) == ("reproduced", "undecided")
    assert imperfect.verdict == "reproduced"
    idle = runs_of({arm_of(kind, prior): of_lengths(None, 0.1) for kind in fig8.POSITIONS for prior in named})
    *_, longer, imperfect = fig8.judge_at(idle, UNSEEN)
    assert (longer.verdict, imperfect.verdict) == ("not reproduced", "undecided")


# Figure 9 ---------------------------------------------------------------------------------------------------------


def test_a_run_whose_training_ended_is_not_later_than_all_others():
    """Wide runs grok at 1,000 and stop, before attention has condensed; narrow ones condense at 3,000."""
    ended = Times.of([None] * 5, [1200] * 5)
    assert (
        fig9.falls({16: times(*[3000] * 5), 32: times(*[3020] * 5), 64: ended, 128: ended, 256: ended}) == "undecided"
    )


def test_a_trend_is_seen_where_most_runs_never_get_there():
    assert fig9.falls({16: times(*NEVER), 64: times(*NEVER), 128: times(*NEVER), 256: times(*SOON)}) == "reproduced"
    assert fig9.falls({16: times(*SOON), 64: times(*NEVER), 256: times(*NEVER)}) == "not reproduced"
    assert fig9.falls({16: times(*NEVER), 64: times(*NEVER)}) == "undecided"
    assert fig9.falls({16: times(*LATE[:4]), 64: times(*LATE[:4]), 256: times(*SOON[:4])}) == "undecided"


def test_every_width_may_train_as_long_after_it_has_grokked():
    """Else one could not say when attention condenses in the widths that grok first."""
    for (arm, _), config in fig9.FIGURE.configs(Scale(seeds=1)).items():
        if arm.endswith(arm_of(fig9.PLAIN, "")) and "d_model" in arm:
            assert config.stop_when is None or config.stop_when.patience == 1000, arm


def heads(together, alone):
    return fig9.Heads(together, alone)


def test_heads_that_attend_to_all_positions_alike_do_not_share_a_condition():
    """Four uniform heads are one uniform head with more values, yet their attention sums to 0.8."""
    assert not heads(0.8, 0.2).share(tau=0.5)
    assert heads(1.2, 0.0).share(tau=0.5), "one head on each operand, two on all alike"
    assert not heads(1.9, 0.49).share(tau=0.5), "each of them satisfies nearly all of it alone"
    assert heads(1.9, 0.49).share(tau=0.5, short=1.0)
    assert not heads(1.2, 0.0).share(tau=0.5, mean=True)


# Figure 10 --------------------------------------------------------------------------------------------------------


def permutations(**best):
    arms = {arm_of(task, prior): [story()] * 5 for task in fig10.TASKS for prior in (fig10.NONE, fig10.ORACLE)}
    for prior, accuracy in {**dict.fromkeys(fig10.IN_ORDER, 0.01), **best}.items():
        arms[arm_of(fig10.PERMUTATIONS, prior)] = [
            story(test_accuracy=lambda epochs, a=accuracy: [a if e > 5000 else 0.01 for e in epochs])
        ] * 5
    return fig10.judge(runs_of(arms))


def test_runs_at_chance_do_not_show_that_the_oracle_is_a_wrong_target():
    assert permutations()[-1].verdict == "undecided"
    for prior in fig10.IN_ORDER:
        assert permutations(**{prior: 1.0})[-1].verdict == "reproduced"
    assert permutations(**{fig10.ORDERED: 1.0, fig10.ORACLE: 1.0})[-1].verdict == "not reproduced"
    assert permutations(**{fig10.ORACLE: 1.0})[-1].verdict == "not reproduced"


def test_permutations_are_read_with_a_target_that_tells_their_order():
    claim = permutations(**{fig10.ORDERED: 1.0})[0]
    assert claim.readings["permutations"] == "undecided"
    assert claim.readings["permutations, with unequal weights"] == "reproduced"
    config = fig10.arms(Scale())[arm_of(fig10.PERMUTATIONS, fig10.ORDERED)]
    (prior,) = config.intervention.parts
    assert prior.target.tolist() == pytest.approx([2 / 3, 0, 1 / 3, 0, 0])


def test_two_heads_toward_an_operand_each_are_compared_with_two_heads_of_no_prior():
    name = "permutations, two heads, each toward one operand"
    apart = permutations(**{fig10.APART: 1.0, fig10.ORDERED: 1.0})[0]
    assert (apart.readings[name], apart.readings["permutations"]) == ("reproduced", "undecided")
    assert permutations(**{fig10.APART: 1.0, fig10.TWO_HEADS: 1.0})[0].readings[name] != "reproduced"
    arms = fig10.arms(Scale())
    with_prior, without = (arms[arm_of(fig10.PERMUTATIONS, each)] for each in (fig10.APART, fig10.TWO_HEADS))
    assert replace(with_prior, intervention=without.intervention) == without
    assert without.model.n_heads == 2
    assert [(part.head, part.target.tolist()) for part in with_prior.intervention.parts] == [
        (0, [1, 0, 0, 0, 0]), (1, [0, 0, 1, 0, 0]),
    ]  # fmt: skip


# Figure 11 --------------------------------------------------------------------------------------------------------


def contracts(norms):
    """What Figure 11 says of perturbed runs with these norms, five of each arm."""
    arms = {arm_of(layout, name): [story(grokked=3000)] * 5
            for layout in fig11.LAYOUTS for name in (fig11.NONE, fig11.ORACLE, fig11.FROZEN)}  # fmt: skip
    loss = line((0, 4.7), (280, 4.7), (300, 0.01))
    arms |= {name: [story(grokked=3000, train_loss=loss, mlp_norm=norms[name])] * 5 for name in fig11.PERTURBED}
    return fig11.judge(runs_of(arms))[-1]


def test_a_norm_that_rises_is_no_contraction_that_was_not_looked_at():
    """Runs whose norm does not contract have no plateau by the norm; they count all the same."""
    rises, falls = line((0, 20), (3000, 40)), line((0, 40), (300, 40), (3000, 20))
    assert contracts(dict.fromkeys(fig11.PERTURBED, rises)).verdict == "not reproduced"
    one = dict.fromkeys(fig11.PERTURBED, rises) | {fig11.PERTURBED[0]: falls}
    assert contracts(one).verdict == "not reproduced"
    assert contracts(one).readings[fig11.PERTURBED[0]] == "reproduced"
    claim = contracts(dict.fromkeys(fig11.PERTURBED, falls))
    assert claim.verdict == "reproduced"
    assert claim.readings["in the full batch with the usual betas"] == "not reproduced", "the norm there is constant"


def test_batches_have_as_many_steps_as_the_full_batch():
    configs = fig11.arms(Scale())
    for name in fig11.BATCHES:
        config, steps = configs[name], fig11.steps_of(name)
        assert config.epochs * steps == 10_000
        assert config.stop_when.patience * steps == 200
        assert 16 <= config.record_every * steps <= 20
    split = configs[fig11.FULL].split()
    assert len(split.train) == fig11.N_TRAIN

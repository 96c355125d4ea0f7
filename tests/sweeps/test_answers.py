"""What a sweep answers: paired effects, shares of the variance and sentences, against numbers worked out by hand."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from attn_exp.experiment import metrics
from attn_exp.experiment.column import spoken
from attn_exp.report.sweep.plotted import in_order
from attn_exp.sweeps.answers import cube as cubes
from attn_exp.sweeps.answers.answers import Answers, percentiles_table
from attn_exp.sweeps.answers.effects import Effect
from attn_exp.sweeps.answers.intervals import (
    estimated,
    family,
    seeds_needed,
    student_quantile,
    student_tails,
    t_975,
    wider,
)
from attn_exp.sweeps.answers.phrases import both_ways, with_interval
from attn_exp.sweeps.answers.totals import Summary, summarized

HEAD = ["point", "seed", "d", "scale", "status", "message", "variant", "variant_scale", "same_as", "entropy", "shift"]


def axis(key: str, count: int) -> dict[str, Any]:
    return {"key": key, "column": key, "count": count}


def swept(
    entropy: Callable[[int, int, bool, str], float],
    seeds: int = 8,
    levels: tuple[int, ...] = (8, 16),
    variants: tuple[str, ...] = ("free", "pinned"),
    failed: frozenset[int] = frozenset(),
    matters: dict[str, float] | None = None,
) -> Summary:
    """The summary of a grid of seeds x d x scale, whose entropies a function of them says.

    The variant `pinned` has its own scale, so that only its distance from the first row varies with that setting.
    """
    lines = []
    grid = itertools.product(range(seeds), levels, ("true", "false"))
    for point, (seed, d, scale) in enumerate(grid):
        start = [str(point), str(seed), str(d), scale]
        if point in failed:
            lines.append([*start, "failed", "no room", "", "", "", "", ""])
            continue
        for variant in variants:
            own = "true" if variant == "pinned" else scale
            letter = "A" if own == scale or variant != "pinned" else "B"
            number = entropy(seed, d, own == "true", variant)
            shift = 0.0 if own == scale else 0.5
            lines.append([*start, "ok", "", variant, own, letter, repr(number), repr(shift)])
    return summarized(HEAD, lines, [axis("seed", seeds), axis("d", len(levels)), axis("scale", 2)], matters=matters)


def noise(seed: int, d: int) -> float:
    return float(np.random.default_rng([seed, d]).normal())


def test_an_effect_is_the_mean_of_the_differences_within_each_seed() -> None:
    """Numbers that differ by 100 from seed to seed still show a difference of a tenth."""
    summary = swept(lambda seed, d, scale, variant: 100.0 * seed + (0.1 + 0.001 * (seed % 2)) * scale + d)
    (effect,) = found(summary.answers, "scale", "free", "entropy")
    assert (effect.start, effect.end, effect.seeds, effect.pairs, effect.share) == ("false", "true", 8, 16, 1.0)
    assert math.isclose(effect.mean, 0.1005, abs_tol=1e-9)
    assert effect.low < 0.1005 < effect.high < 0.103


def test_a_setting_that_changes_nothing_is_said_once_and_printed_once() -> None:
    summary = swept(lambda seed, d, scale, variant: noise(seed, d) + scale)
    assert summary.answers.inert == {"d": [], "scale": ["pinned"]}
    assert "scale changes nothing in pinned, which always has scale=true." in summary.answers.sentences


def test_two_variants_with_one_letter_everywhere_are_one_function() -> None:
    summary = swept(lambda seed, d, scale, variant: noise(seed, d) + scale, variants=("free", "loose"))
    assert summary.answers.sentences[-1] == "free and loose compute the same function in all 32 points."


def test_an_effect_that_grows_with_another_setting_says_so() -> None:
    summary = swept(
        lambda seed, d, scale, variant: noise(seed, d) + (0.01 * d + 1e-4 * seed) * scale,
        levels=(8, 128, 16),
        variants=("free",),
    )
    (sentence,) = [text for text in summary.answers.sentences if text.startswith("scale=true raises")]
    way = "raises the entropy the more the larger d: by 0.0804 ± 0.0004 nats at d=8, by 0.1603 ± 0.0004 at d=16"
    assert sentence == f"scale=true {way}, by 1.2803 ± 0.0004 at d=128."


def test_from_where_on_a_setting_matters_is_said_of_a_threshold() -> None:
    """The effect is d / 100: of 8, 16 and 128 the last alone is beyond half a nat."""
    grid = lambda seed, d, scale, variant: noise(seed, d) + (0.01 * d + 1e-4 * seed) * scale  # noqa: E731 - one line
    for limit, expected in (
        (0.5, "scale=true matters for the entropy at d=128, by more than 0.5 nats; up to d=16 by less."),
        (0.1, "scale=true matters for the entropy from d=16 on, by more than 0.1 nats; at d=8 by less."),
    ):
        said = swept(grid, levels=(8, 128, 16), variants=("free",), matters={"entropy": limit}).answers.sentences
        assert expected in said


def test_noise_is_called_not_sure() -> None:
    summary = swept(lambda seed, d, scale, variant: noise(seed, 2 * d + scale), seeds=12, variants=("free",))
    (sentence,) = [text for text in summary.answers.sentences if "scale=true" in text]
    assert sentence.startswith("It is not sure what scale=true does to the entropy (")
    assert sentence.endswith(" seeds would tell, if effect and spread are as they look.")


@pytest.mark.parametrize("seeds", [2, 3, 4])
def test_few_seeds_show_their_differences_and_claim_nothing(seeds: int) -> None:
    summary = swept(lambda seed, d, scale, variant: (0.1 + 0.1 * seed) * scale, seeds=seeds, variants=("free",))
    (effect,) = found(summary.answers, "scale", "free", "entropy")
    assert math.isnan(effect.low)
    shown = ", ".join(f"+0.{seed + 1}" for seed in range(seeds))
    start = f"{seeds} seeds are too few to say what scale=true does to the entropy ({shown} nats); about "
    assert any(text.startswith(start) for text in summary.answers.sentences)
    assert not any("raises" in text for text in summary.answers.sentences)


def test_one_seed_is_told_as_what_it_is() -> None:
    answers = swept(lambda seed, d, scale, variant: 0.5 * scale, seeds=1, variants=("free",)).answers
    assert answers.sentences[0] == "All of this is of one seed: where it draws anything, others may give other numbers."
    assert answers.sentences[1] == "scale=true raises the entropy by 0.5 nats."
    assert answers.note == ""


def test_what_no_seed_changes_is_certain() -> None:
    answers = swept(lambda seed, d, scale, variant: 0.5 * scale, seeds=3, variants=("free",)).answers
    assert answers.sentences[0] == "scale=true raises the entropy by 0.5 nats."


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("typed", [("-1", "0", "1", "4"), ("4", "-1", "0", "1"), ("0", "1", "4", "-1")])
def test_no_limit_is_more_than_any_number(side: str, typed: tuple[str, ...]) -> None:
    """A window of -1 is of all keys: the entropy rises on the way to it."""
    key, lines = f"mask.window.{side}", []
    for point, (seed, width) in enumerate(itertools.product(range(8), typed)):
        number = (7.0 if width == "-1" else float(width)) + 0.01 * noise(seed, int(width) + 2)
        lines.append([str(point), str(seed), width, "ok", "", "one", repr(number)])
    head = ["point", "seed", key, "status", "message", "variant", "entropy"]
    summary = summarized(head, lines, [axis("seed", 8), axis(key, 4)])
    said = summary.answers.sentences[0]
    assert re.match(
        rf"window.{side} raises the entropy from 0 to all, by 7.0\d+ ± 0.0\d+ nats in all, and at every", said
    )
    assert {(label,) for label, _ in summary.cells} == {("0",), ("1",), ("4",), ("all",)}
    assert in_order(("all", "4", "0", "1")) == ["0", "1", "4", "all"]


WAYS = {
    "d raises the entropy from 1 to 5, by [^a-z]*nats in all, and at every step": (0, 1, 2, 3, 4),
    "d raises the entropy up to about d=3, by": (0, 2, 4, 2, 1),
    "d lowers the entropy up to about d=2, by": (0, -2, -1, 0, 1),
    "d raises the entropy up to 3, by": (0, 1, 4, 4, 4),
    "d moves the entropy up and down, in no order: it is": (0, 3, 0, 3, 0),
    r"d from \d to \d hardly moves the entropy \([^)]*\): too little to matter.": (0, 0, 0, 0, 0),
}


@pytest.mark.parametrize(("says", "way"), WAYS.items())
def test_the_shape_of_the_whole_way_is_said(says: str, way: tuple[float, ...]) -> None:
    def entropy(seed: int, d: int, scale: bool, variant: str) -> float:
        return way[d - 1] + 0.01 * noise(seed, 2 * d + scale) + seed

    said = swept(entropy, levels=(1, 2, 3, 4, 5), variants=("free",), seeds=12).answers.sentences
    assert [text for text in said if re.match(says, text)]


def test_variants_are_compared_like_settings_not_over_an_interaction() -> None:
    """Nothing between them at d=1, 0.5 at d=4 without scaling, 0.1 with it: no mean of these is said."""

    def entropy(seed: int, d: int, scale: bool, variant: str) -> float:
        more = (0.1 if scale else 0.5) * (d == 4) + 0.01 * noise(seed, 9 + d + scale) * (d == 4)
        return noise(seed, d) + 2 * scale + more * (variant == "loose")

    said = swept(entropy, levels=(1, 4), variants=("free", "loose"), seeds=10).answers.sentences
    (sentence,) = [text for text in said if text.startswith("loose has a higher entropy than free")]
    assert re.search(r"at d=4 by 0\.\d+ ± 0\.\d+ nats without scaling, by 0\.\d+ ± 0\.\d+ with scaling", sentence)
    assert "not at all at d=1" in sentence


def test_points_that_failed_leave_out_their_pairs_alone() -> None:
    summary = swept(lambda seed, d, scale, variant: 5.0 * seed + scale, failed=frozenset({0, 6}))
    (effect,) = found(summary.answers, "scale", "free", "entropy")
    assert (effect.mean, effect.seeds, effect.pairs) == (1.0, 8, 14)
    assert summary.answers.shares == ()  # only a full grid can be shared out


def test_shares_are_those_of_an_analysis_of_variance_worked_out_by_hand() -> None:
    """y = 3 a + 1 b + 2 a b with a and b of -1 and 1: squares 9, 1 and 4 of 14."""
    signs = {8: -1, 16: 1}

    def entropy(seed: int, d: int, scale: bool, variant: str) -> float:
        a, b = signs[d], 1 if scale else -1
        return 3.0 * a + b + 2.0 * a * b

    shares = {share.settings: share.share for share in swept(entropy, variants=("free",)).answers.shares}
    assert math.isclose(shares[("d",)], 9 / 14)
    assert math.isclose(shares[("scale",)], 1 / 14)
    assert math.isclose(shares[("d", "scale")], 4 / 14)
    assert shares[("seed",)] == pytest.approx(0, abs=1e-15)


def test_shares_of_a_full_grid_add_up() -> None:
    """With three settings, what all three do together is what is missing to 1: here it is computed apart."""
    shares = swept(lambda seed, d, scale, variant: noise(seed, d + scale), variants=("free",)).answers.shares
    numbers = np.array([[[noise(seed, d + scale) for scale in (1, 0)] for d in (8, 16)] for seed in range(8)])
    rest = numbers - numbers.mean()
    for axes in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2)):
        rest = rest - rest.mean(axis=tuple({0, 1, 2} - set(axes)), keepdims=True)
    third = float((rest**2).sum() / ((numbers - numbers.mean()) ** 2).sum())
    assert math.isclose(sum(share.share for share in shares), 1 - third, rel_tol=1e-9)


SHAPES: dict[str, tuple[Callable[[np.random.Generator, int], Any], float]] = {
    "normal": (lambda rng, count: rng.normal(size=count), 0.0),
    "exponential": (lambda rng, count: rng.exponential(size=count), 1.0),
    "lognormal": (lambda rng, count: rng.lognormal(size=count), math.exp(0.5)),
    "t of 3": (lambda rng, count: rng.standard_t(3, size=count), 0.0),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [5, 7, 10, 30, 80])
def test_the_interval_holds_the_mean_as_often_as_it_says(count: int, shape: str) -> None:
    """Of 1000 samples 95 % and more, within three standard errors, hold their mean, however skewed they are."""
    rng = np.random.default_rng(1)
    draw, mean = SHAPES[shape]
    held = [(each := estimated(draw(rng, count))).low <= mean <= each.high for _ in range(1000)]
    assert 0.95 - 3 * math.sqrt(0.95 * 0.05 / 1000) <= np.mean(held)
    if shape == "normal" and count >= 30:  # so many show that they are not skewed
        assert np.mean(held) <= 0.95 + 3 * math.sqrt(0.95 * 0.05 / 1000)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 30, 200, 201, 5000])
def test_tails_are_those_of_student(freedom: int) -> None:
    distances = [0.0, 0.3, 1.0, 2.5, 6.0, 12.0]
    ours = [student_tails(distance, freedom) for distance in distances]
    assert np.allclose(ours, 2 * stats.t.sf(distances, freedom), rtol=0.01, atol=1e-9)
    assert math.isclose(student_quantile(0.001, freedom), stats.t.ppf(0.9995, freedom), rel_tol=1e-3)


def test_a_family_is_held_by_holm() -> None:
    """0.05 / 4, 0.05 / 3 and 0.05 / 2 are 0.0125, 0.0167 and 0.025: the third of these chances is too large."""
    held = family([0.03, 0.012, 0.2, 0.016])
    assert (held.count, held.level) == (4, 0.016)
    assert family([0.2, 0.3]).level == 0.025


def test_so_many_seeds_as_are_said_would_decide() -> None:
    few = estimated(np.array([0.1, 0.2, 0.3]))
    count = seeds_needed(few, 0.05)
    half = wider(count, few.skew) * t_975(count - 1) * few.spread / math.sqrt(count)
    assert half < few.mean < 1.6 * half
    assert seeds_needed(estimated(np.array([1.0, -1.0])), 0.05) == 0


def test_of_very_many_points_the_first_seeds_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubes, "MOST_POINTS", 24)
    answers = swept(lambda seed, d, scale, variant: noise(seed, d) + scale).answers
    assert {effect.seeds for effect in answers.effects} == {6}
    assert "These sentences compare the first 6 of 8 seeds." in answers.note


def test_an_error_that_grows_from_rounding_is_no_rounding() -> None:
    """Errors of 1e-16 that grow 60-fold: nothing is too small to count where rounding is what is measured."""
    head = ["point", "seed", "d", "status", "message", "variant", "variant_scale", "same_as", "error"]
    lines = [
        [str(point), str(seed), str(d), "ok", "", "free", "true", "A", repr((1 + seed % 3) * 1e-16 * d)]
        for point, (seed, d) in enumerate(itertools.product(range(8), (2, 120)))
    ]
    (effect,) = found(summarized(head, lines, [axis("seed", 8), axis("d", 2)]).answers, "d", "free", "error")
    assert effect.mean == pytest.approx(118e-16 * (1 + np.mean([seed % 3 for seed in range(8)])))
    assert 0 < effect.low < effect.mean < effect.high


def test_percentiles_are_those_of_the_seeds_of_each_combination() -> None:
    """0, 1, ... 8 at d=8: the median is 4, a quarter lies below 2, 5 % below 0.4."""
    table = percentiles_table(swept(lambda seed, d, scale, variant: seed + d - 8.0, seeds=9).answers.cube)
    line = next(line for line in table.lines if line[:4] == ("8", "true", "free", "entropy (nats)"))
    assert line[4:] == ("9", "0.4000", "2.0000", "4.0000", "6.0000", "7.6000")
    assert len({len(line) for line in (table.head, *table.lines)}) == 1
    assert percentiles_table(swept(lambda seed, d, scale, variant: seed, seeds=3).answers.cube).lines == ()


def found(answers: Answers, setting: str, variant: str, metric: str) -> list[Effect]:
    return [
        effect
        for effect in answers.effects
        if (effect.setting, effect.variant, effect.metric) == (setting, variant, metric)
    ]


def test_what_is_not_sure_in_several_variants_is_one_sentence() -> None:
    """Where numbers differ from variant to variant, each has its own."""

    def entropy(seed: int, d: int, scale: bool, variant: str) -> float:
        return noise(seed, 4 * d + 2 * scale + (variant == "loose"))

    said = swept(entropy, levels=(1, 2), variants=("free", "loose"), seeds=9).answers.sentences
    about = [text for text in said if text.startswith("It is not sure what scale=true")]
    assert len(about) == 1
    assert re.search(r" does to the entropy \(.* nats in free, .* nats in loose\); about [\d,]+ seeds", about[0])


def test_what_surely_is_too_little_to_matter_is_not_called_unsure() -> None:
    """0.001 nats are there or not: it is less than the tenth from which on a difference matters."""
    said = swept(lambda seed, d, scale, variant: seed + 0.001 * noise(seed, 2 * d + scale), variants=("free",))
    about = [text for text in said.answers.sentences if "scale=true" in text]
    assert len(about) == 1
    assert re.match(r"scale=true hardly moves the entropy \(\S+ ± \S+ nats\): too little to matter\.", about[0])


def test_a_way_of_which_a_part_is_sure_says_where_its_mean_goes_on() -> None:
    """At d=6 seeds differ too much to be sure, and their mean is higher still."""

    def entropy(seed: int, d: int, scale: bool, variant: str) -> float:
        return 0.5 * d + 0.01 * noise(seed, 2 * d + scale) + (12 * (seed % 3 - 1) if d == 6 else 0)

    said = swept(entropy, levels=(0, 2, 4, 6), variants=("free",), seeds=9).answers.sentences
    about = next(text for text in said if text.startswith("d raises"))
    assert re.match(
        r"d raises the entropy from 0 to 4, by .*; at d=6 its mean is higher still, which is not sure", about
    )


def test_an_output_that_is_wrong_is_said_first() -> None:
    head = ["point", "seed", "mistake", "status", "message", "variant", "error", "error_ulp", "entropy"]
    lines = []
    for point, (seed, mistake) in enumerate(itertools.product(range(6), ("none", "no_scale"))):
        wrong = mistake != "none"
        numbers = ("0.25", "2e15") if wrong and seed == 4 else ("0.1", "1e15") if wrong else ("1e-16", "1.5")
        row = [str(point), str(seed), mistake, "ok", "", "one", *numbers, repr(noise(seed, wrong))]
        lines.append(row)
    summary = summarized(head, lines, [axis("seed", 6), axis("mistake", 2)])
    assert summary.answers.sentences[0] == "The output is wrong with mistake=no_scale: by up to 0.25."


def test_a_number_of_too_few_digits_for_a_sign_has_none() -> None:
    assert both_ways(estimated(np.array([0.4, -0.5, 0.3, -0.4, -0.04]))).startswith("0.0 ± ")
    assert both_ways(estimated(np.array([0.4, 0.5, 0.3, 0.4, 0.44]))).startswith("+0.4")


def test_a_sure_effect_is_seen_to_leave_out_0() -> None:
    """0.4 ± 0.4 would not: a digit more says 0.44 ± 0.36."""
    assert with_interval(0.44, 0.08, 0.80) == "0.44 ± 0.36"
    assert with_interval(0.44, -0.1, 0.98) == "0.4 ± 0.5"
    assert with_interval(2.224, 1.824, 2.624) == "2.2 ± 0.4"
    assert with_interval(1.0, 1 - 6e-17, 1 + 6e-17) == "1"


@pytest.mark.parametrize("size", [1e-12, 1e-7, 0.00092, 0.092, 0.92, 9.2, 92.0, 9.2e5])
def test_whatever_is_sure_is_seen_to_leave_out_0(size: float) -> None:
    """0.092 ± 0.092 is said of nothing: what is nearer to 0 than a hundredth of its interval is not sure."""
    for share in np.linspace(0.9, 1.1, 41):
        numbers = np.array([-1.0, 1.0, -0.5, 0.5, 0.0, 1.0, -1.0, 0.3, -0.3])
        half = estimated(numbers).high
        estimate = estimated(size * (1 + share * numbers / half))
        if estimate.chance <= 0.05:
            mean, half = map(float, with_interval(estimate.mean, estimate.low, estimate.high).split(" ± "))
            assert mean > half
        else:
            assert estimate.high > 1.98 * estimate.mean


def test_an_effect_is_compared_where_another_value_has_no_numbers() -> None:
    """Sigmoid has no entropy: what scaling does is compared over the other two, and said to differ."""
    lines, head = [], ["point", "seed", "normalizer", "scale", "status", "message", "variant", "entropy"]
    sizes = {"softmax": 1.0, "sigmoid": math.nan, "sparsemax": 0.2}
    for point, (seed, name, scale) in enumerate(itertools.product(range(9), sizes, ("true", "false"))):
        number = sizes[name] * (scale == "true") + 0.01 * noise(seed, len(name) + (scale == "true"))
        lines.append([str(point), str(seed), name, scale, "ok", "", "one", "" if math.isnan(number) else repr(number)])
    said = summarized(head, lines, [axis("seed", 9), axis("normalizer", 3), axis("scale", 2)]).answers.sentences
    (sentence,) = [text for text in said if text.startswith("scale=true raises the entropy by")]
    assert "with normalizer=softmax" in sentence and "with normalizer=sparsemax" in sentence


def test_few_seeds_of_one_value_leave_the_others_alone() -> None:
    """Two of eight seeds have a number at c; a and b have all eight."""
    lines = [
        [str(at), str(seed), name, "ok", "", "one", repr(effect + 0.01 * noise(seed, len(lines_of)))]
        for at, (seed, (name, effect, lines_of)) in enumerate(
            itertools.product(range(8), [("a", 0.0, ""), ("b", 1.0, "x"), ("c", 2.0, "xx")])
        )
        if name != "c" or seed < 2
    ]
    head = ["point", "seed", "dtype", "status", "message", "variant", "entropy"]
    said = " ".join(summarized(head, lines, [axis("seed", 8), axis("dtype", 3)]).answers.sentences)
    assert re.search(r"dtype=b instead of a raises the entropy by (1\.0|0\.99)\d* ± 0\.0\d+ nats\.", said)
    assert "2 seeds are too few to say what dtype=c instead of a does to the entropy (+2, +2 nats); about 5" in said


def test_where_only_the_difference_of_two_effects_is_sure_that_is_said() -> None:
    """What scaling does varies by far more from seed to seed than what it does at d=2 instead of d=1."""

    def entropy(seed: int, d: int, scale: bool, variant: str) -> float:
        return scale * (noise(seed, 1) + (d == 2) * (0.3 + 0.01 * noise(seed, 2)))

    said = swept(entropy, levels=(1, 2), variants=("free",), seeds=10).answers.sentences
    (sentence,) = [text for text in said if text.startswith("scale=true moves")]
    apart = r"0\.\d+ ± 0\.0\d+ nats apart, though neither of these is sure by itself"
    assert re.fullmatch(rf"scale=true moves the entropy by \S+ at d=1 and by \S+ at d=2: {apart}\.", sentence)


def test_a_mean_over_values_that_differ_among_each_other_says_that_it_may_depend() -> None:
    """At the first value of d the effect is as in the mean; at the others it is larger and smaller."""
    effects = {1: 0.7, 2: 1.0, 3: 0.4}

    def entropy(seed: int, d: int, scale: bool, variant: str) -> float:
        return 5 * noise(seed, 1) + scale * (effects[d] + 0.12 * noise(seed, 10 + d))

    said = swept(entropy, levels=(1, 2, 3), variants=("free",), seeds=5).answers.sentences
    about = next(text for text in said if text.startswith("scale=true raises the entropy"))
    assert " at d=" in about or "may depend" in about


def over(queries: Mapping[str, str], **effects: float) -> Answers:
    """Return the answers of a sweep over values of `mask` whose means are of these queries."""
    head = ["point", "seed", "mask", "status", "message", "variant", "entropy", "queries"]
    rows = itertools.product(range(8), queries)
    lines = [
        [str(at), str(seed), mask, "ok", "", "one", repr(0.1 * noise(seed, 0) + effects.get(mask, 0.0)), queries[mask]]
        for at, (seed, mask) in enumerate(rows)
    ]
    return summarized(head, lines, [axis("seed", 8), axis("mask", len(queries))]).answers


def test_means_over_other_queries_are_not_compared() -> None:
    """Queries see more keys the later they stand: without the first ones the mean entropy rises, and nothing did it."""
    same = over({"a": "all", "b": "all"}, b=1.0)
    assert same.sentences[0] == "mask=b instead of a raises the entropy by 1 nats."
    other = over({"a": "all", "b": "all but 1-4"}, b=1.0)
    assert other.sentences == ()
    assert other.note == "The entropy is not compared between mask=a and b: each is taken over other queries."
    assert [effect for effect in other.effects if effect.metric == "entropy"] == []
    assert other.shares == ()


def test_where_the_queries_are_the_same_means_are_compared() -> None:
    some = over({"a": "all", "b": "all", "c": "all but 1"}, b=1.0, c=2.0)
    assert some.sentences[0] == "mask=b instead of a raises the entropy by 1 nats."
    assert not any("c" in text.split() for text in some.sentences)
    assert some.note.endswith(
        "The entropy is compared between values of mask only where both are taken over the same queries."
    )


def test_what_matters_on_both_sides_is_not_said_to_matter_from_the_last_on() -> None:
    """Scaling moves the entropy by 1 at d=1 and at d=64, and by 0 between."""

    def entropy(seed: int, d: int, scale: bool, variant: str) -> float:
        return scale * (d in (1, 64)) + 0.01 * noise(seed, d + scale)

    said = swept(entropy, levels=(1, 4, 16, 64), variants=("free",), seeds=10).answers.sentences
    assert not [text for text in said if "matters" in text]


def test_a_way_that_surely_goes_on_does_not_level_off() -> None:
    """Nine tenths of the way are done at d=4; the last tenth is as sure, in every seed."""

    def entropy(seed: int, d: int, scale: bool, variant: str) -> float:
        return {1: 0.0, 4: 0.9, 16: 0.95, 64: 1.0}[d] + 0.001 * noise(seed, d)

    said = swept(entropy, levels=(1, 4, 16, 64), variants=("free",), seeds=10).answers.sentences
    assert said[0].startswith("d raises the entropy from 1 to 64") and "hardly" not in " ".join(said)


def test_what_is_rounding_alone_is_not_shared_out() -> None:
    """Two variants of one function, of which one has no entropy: their distance is rounding."""
    lines = []
    for point, (seed, d) in enumerate(itertools.product(range(8), (8, 16))):
        for variant, shift in (("free", 0.0), ("float32", 1e-8 * abs(noise(seed, d)))):
            lines.append([str(point), str(seed), str(d), "true", "ok", "", variant, "true", "A", "", repr(shift)])
    summary = summarized(HEAD, lines, [axis("seed", 8), axis("d", 2), axis("scale", 1)])
    assert not [text for text in summary.answers.sentences if "Of all that varies" in text]


def told_of(names: Mapping[str, Sequence[Any]], number: Callable[..., float | None], **more: Any) -> Answers:
    """Return the answers of a sweep over 8 seeds and these settings; a row of None is not there."""
    head = ["point", "seed", *names, "status", "message", "variant", "same_as", "error", "entropy", *more]
    lines = []
    for at, (seed, *values) in enumerate(itertools.product(range(8), *names.values())):
        labels = [str(value).lower() for value in values]
        entropy = number(*values)
        if entropy is None:
            lines.append([str(at), str(seed), *labels, "failed", "no room", "", "", "", "", *("" for _ in more)])
            continue
        variant = values[0] if "variant" in list(names)[:1] else "one"
        tail = [text(*values) for text in more.values()]
        numbers = ("1e-16", repr(entropy + 0.01 * noise(at, 7)))
        lines.append([str(at), str(seed), *labels, "ok", "", variant, "A", *numbers, *tail])
    axes = [axis("seed", 8), *(axis(key, len(values)) for key, values in names.items())]
    words = {"variant": [str(value) for value in names.get("variant", ())]}
    return summarized(head, lines, [one | {"words": words.get(one["key"], [])} for one in axes]).answers


def test_an_effect_over_other_queries_elsewhere_is_told_at_each_of_them() -> None:
    """What a mask does depends on the past, whose own effect is not compared."""
    told = told_of(
        {"mask": ("a", "b"), "past": (0, 4)},
        lambda mask, past: (mask == "b") * (1.0 if past == 0 else -0.5) + past,
        queries=lambda mask, past: "all" if past == 0 else "all but 1-4",
    )
    at_first, later = r"\+(1\.0|0\.99)\S* ± \S+ nats at past=0", r"−0\.(49|50)\S* ± \S+ at past=4"
    assert re.match(f"mask=b instead of a changes the entropy by {at_first}, by {later}", told.sentences[0]), told
    assert not any(text.startswith("past ") for text in told.sentences)


def test_where_both_sides_are_at_some_values_alone_the_sentence_says_so() -> None:
    told = told_of(
        {"step": (1, 2), "mask": ("a", "b")}, lambda step, mask: None if (step, mask) == (1, "b") else float(step)
    )
    assert any(re.match(r"step from 1 to 2 raises the entropy by 1\.0\S* ± \S+ nats with mask=a alone\.", text)
               for text in told.sentences), told.sentences  # fmt: skip


def test_points_of_one_variant_each_are_compared() -> None:
    told = told_of({"variant": ("plain", "sharp"), "scale": (True, False)}, lambda name, _: 2.0 - (name == "sharp"))
    assert re.match(r"sharp has a lower entropy than plain, by (1\.0|0\.99)", told.sentences[0]), told.sentences
    assert not any("same function" in text for text in told.sentences)


def test_every_step_is_said_where_each_combination_goes_that_way() -> None:
    def number(step: int, mask: str, flag: bool) -> float:
        return step - 1.2 * (mask == "a" and flag) * (step == 2)

    told = told_of({"step": (1, 2, 3), "mask": ("a", "b"), "flag": (True, False)}, number)
    assert not any("at every step" in text for text in told.sentences), told.sentences
    steady = told_of({"step": (1, 2, 3), "mask": ("a", "b"), "flag": (True, False)}, lambda step, mask, flag: step)
    assert any("at every step" in text for text in steady.sentences), steady.sentences


def test_a_turn_of_a_mean_is_not_said_where_a_part_of_it_does_not_turn() -> None:
    def number(step: int, mask: str) -> float:
        return float({"a": (0, 3, 1), "b": (0, -0.5, 1.5)}[mask][step - 1])

    told = told_of({"step": (1, 2, 3), "mask": ("a", "b")}, number)
    assert not any("up to about" in text for text in told.sentences), told.sentences


def test_a_setting_without_rows_of_two_values_is_not_said_to_change_nothing() -> None:
    told = told_of({"scale": (True, False), "head": (1, 2)}, lambda scale, head: None if scale else float(head))
    assert not any("scale" in text for text in told.sentences), told.sentences


def test_a_first_value_with_which_nothing_can_be_compared_is_left_out() -> None:
    told = told_of(
        {"step": (0, 1, 2), "flag": (True, False)}, lambda step, flag: math.nan if step == 0 else float(step)
    )
    assert any(text.startswith("step from 1 to 2 raises the entropy by") for text in told.sentences), told.sentences
    other = told_of({"step": (0, 1, 2)}, float, queries=lambda step: "all but 1" if step == 0 else "all")
    assert any(text.startswith("step from 1 to 2 raises the entropy by") for text in other.sentences), other.sentences


def test_no_step_is_one_where_nothing_changes() -> None:
    def number(step: int, mask: str) -> float | None:
        return None if (step, mask) == (1, "b") else float(step > 1) if mask == "a" else 3.0 * step

    told = told_of({"step": (1, 2, 3), "mask": ("a", "b")}, number)
    assert any("from 1 to 3" in text and "with mask=a alone" in text for text in told.sentences), told.sentences
    assert not any("at every step" in text for text in told.sentences)


def test_each_of_several_effects_says_where_alone_it_is_seen() -> None:
    def queries(step: int, mask: str, side: str) -> str:
        return "all but 1" if (step, mask, side) == (1, "b", "y") else "all"

    told = told_of(
        {"step": (1, 2), "mask": ("a", "b"), "side": ("x", "y")},
        lambda step, mask, side: step * (5.0 if mask == "a" else 1.0), queries=queries,
    )  # fmt: skip
    said = next(text for text in told.sentences if text.startswith("step from 1 to 2"))
    assert said.endswith("; with mask=b compared with side=x alone."), said


def test_a_clear_part_of_what_is_not_sure_is_shown() -> None:
    told = told_of({"step": (1, 2), "mask": ("a", "b")}, lambda step, mask: -1.0 * step if mask == "a" else 0.0)
    wild = summarized_with_noise({"step": (1, 2), "mask": ("a", "b")}, noisy="b", effect=-0.4)
    assert "not sure" not in told.sentences[0]
    assert any("It is not sure" in text and "−0.4 with mask=a" in text for text in wild.sentences), wild.sentences


def summarized_with_noise(names: Mapping[str, Sequence[Any]], noisy: str, effect: float) -> Answers:
    """Return the answers of a sweep whose rows of one mask are drowned in noise."""
    head = ["point", "seed", *names, "status", "message", "variant", "entropy"]
    lines = []
    for at, (seed, step, mask) in enumerate(itertools.product(range(8), *names.values())):
        number = 30 * noise(at, 3) if mask == noisy else effect * step + 0.01 * noise(at, 4)
        lines.append([str(at), str(seed), str(step), mask, "ok", "", "one", repr(number)])
    return summarized(
        head, lines, [axis("seed", 8), *(axis(key, len(values)) for key, values in names.items())]
    ).answers


def test_a_rule_with_a_seed_of_its_own_is_said_to_be_one_draw() -> None:
    drawn = told_of({"score": ("none", "t5")}, lambda score: float(score == "t5"))
    assert "score=t5 draws numbers of its own once, by score.t5.seed" in drawn.note
    plain = told_of({"score": ("none", "alibi")}, lambda score: float(score == "alibi"))
    assert "draws numbers" not in plain.note


def test_shares_of_1_are_not_compared_with_what_sums_to_more() -> None:
    """A sigmoid's weights are no shares: its largest one is compared over scaling, and not with that of a softmax."""
    told = told_of(
        {"normalizer": ("softmax", "sigmoid"), "scale": (True, False)}, lambda *_: 1.0,
        variant_normalizer=lambda normalizer, scale: normalizer,
        largest_weight=lambda normalizer, scale: repr(0.2 + 0.5 * (normalizer == "sigmoid") + 0.1 * scale),
    )  # fmt: skip
    assert {each.setting for each in told.effects if each.metric == "largest_weight"} == {"scale"}
    why = "weights that do not sum to 1 are no shares"
    assert f"The largest weight is not compared between normalizer=softmax and sigmoid: {why}." in told.note


def test_every_metric_reads_in_a_sentence() -> None:
    """`the on itself` and `the looks back` are no noun phrases."""
    names = [spoken(name) for name in metrics.known()]
    assert not [name for name in names if re.match("(on|looks|keys for|close$|logit m|gradient .$|k?l$|js$)", name)]


def test_a_distance_from_one_row_is_not_compared_between_variants() -> None:
    """It is 0 for the row that all are compared with, whatever that computes."""
    head = ["point", "seed", "status", "message", "variant", "total_variation", "gini"]
    lines = [
        [str(seed), str(seed), "ok", "", name, repr(far + 0.001 * noise(seed, 5)), repr(far + 0.001 * noise(seed, 6))]
        for seed in range(8) for name, far in (("other", 0.5), ("compared", 0.0))
    ]  # fmt: skip
    said = summarized(head, lines, [axis("seed", 8)], ["total_variation", "gini"]).answers.sentences
    assert any("Gini index" in text and "than other" in text for text in said), said
    assert not any("total variation" in text and "than other" in text for text in said), said

"""What a sweep answers: paired effects, shares of the variance and sentences, against numbers worked out by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from attn_exp.sweeps.answers import cube as cubes
from attn_exp.sweeps.answers.answers import Answers, effects_table, percentiles_table
from attn_exp.sweeps.answers.effects import Effect, interval, resamples
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
    return summarized(HEAD, lines, [axis("seed", seeds), axis("d", len(levels)), axis("scale", 2)])


def noise(seed: int, d: int) -> float:
    return float(np.random.default_rng([seed, d]).normal())


def test_an_effect_is_the_mean_of_the_differences_within_each_seed() -> None:
    """Numbers that differ by 100 from seed to seed still show a difference of a tenth."""
    summary = swept(lambda seed, d, scale, variant: 100.0 * seed + (0.1 + 0.001 * (seed % 2)) * scale + d)
    (effect,) = found(summary.answers, "scale", "free", "entropy")
    assert (effect.start, effect.end, effect.seeds, effect.pairs, effect.share) == ("false", "true", 8, 16, 1.0)
    assert math.isclose(effect.mean, 0.1005, abs_tol=1e-9)
    assert 0.1 <= effect.low < effect.mean < effect.high <= 0.101


def test_a_setting_that_changes_nothing_is_said_once_and_printed_once() -> None:
    summary = swept(lambda seed, d, scale, variant: noise(seed, d) + scale)
    assert summary.answers.inert == {"d": [], "scale": ["pinned"]}
    assert "scale changes nothing in pinned, which always has scale=true." in summary.answers.sentences


def test_two_variants_with_one_letter_everywhere_are_one_function() -> None:
    summary = swept(lambda seed, d, scale, variant: noise(seed, d) + scale, variants=("free", "loose"))
    assert summary.answers.sentences[0] == "free and loose compute the same function in all 32 points."


def test_an_effect_that_grows_with_another_setting_says_so() -> None:
    summary = swept(
        lambda seed, d, scale, variant: noise(seed, d) + 0.01 * d * scale, levels=(8, 128, 16), variants=("free",)
    )
    (sentence,) = [text for text in summary.answers.sentences if text.startswith("scale=true raises")]
    assert sentence == (
        "scale=true raises the entropy by 0.51 nats (8 of 8 seeds), more as d grows: "
        "+0.08 at 8, +1.3 at 128, +0.16 at 16."
    )


def test_noise_is_called_not_sure() -> None:
    summary = swept(lambda seed, d, scale, variant: noise(seed, 2 * d + scale), seeds=12, variants=("free",))
    (sentence,) = [text for text in summary.answers.sentences if "scale=true" in text]
    assert sentence.startswith("It is not sure what scale=true does to the entropy: ")


def test_few_seeds_show_their_differences_and_no_interval() -> None:
    summary = swept(lambda seed, d, scale, variant: (0.1 + 0.1 * seed) * scale, seeds=3, variants=("free",))
    (effect,) = found(summary.answers, "scale", "free", "entropy")
    assert math.isnan(effect.low)
    assert np.allclose(effect.differences, [0.1, 0.2, 0.3])
    assert any("(3 seeds: +0.1, +0.2, +0.3)" in text for text in summary.answers.sentences)


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


@pytest.mark.parametrize("count", [5, 10, 30])
def test_the_interval_holds_the_mean_as_often_as_it_says(count: int) -> None:
    """Of 400 samples of a normal distribution, 95 % within three standard errors hold its mean."""
    rng = np.random.default_rng(1)
    held = [low <= 0 <= high for low, high in (interval(rng.normal(size=count)) for _ in range(400))]
    assert 0.95 - 3 * math.sqrt(0.95 * 0.05 / 400) <= np.mean(held)


def test_the_interval_is_near_that_of_scipy() -> None:
    numbers = np.random.default_rng(2).normal(1, 2, size=200)
    theirs = stats.bootstrap((numbers,), np.mean, method="percentile", rng=3).confidence_interval
    assert np.allclose(interval(numbers), (theirs.low, theirs.high), atol=0.05)


def test_of_more_than_a_thousand_numbers_it_is_that_of_student() -> None:
    numbers = np.random.default_rng(2).exponential(2, size=1500)
    low, high = stats.t.interval(0.95, 1499, loc=numbers.mean(), scale=stats.sem(numbers))
    assert np.allclose(interval(numbers), (low, high), rtol=1e-9)


def test_resamples_that_effects_share_change_no_interval() -> None:
    numbers = np.random.default_rng(4).normal(size=60)
    assert interval(numbers, resamples(60)) == interval(numbers)
    assert interval(numbers[:50], resamples(60)) == interval(numbers[:50])  # of effects that lack some seeds
    assert resamples(4) is resamples(1001) is None


def test_of_very_many_points_the_first_seeds_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubes, "MOST_POINTS", 24)
    answers = swept(lambda seed, d, scale, variant: noise(seed, d) + scale).answers
    assert {effect.seeds for effect in answers.effects} == {6}
    assert "These sentences compare the first 6 of 8 seeds." in answers.sentences


def test_the_table_of_effects_has_a_line_for_each_that_moves() -> None:
    table = effects_table(swept(lambda seed, d, scale, variant: noise(seed, d) + scale).answers)
    assert len({len(line) for line in (table.head, *table.lines)}) == 1
    assert ("scale", "false", "true", "free", "entropy (nats)", "+1") in {line[:6] for line in table.lines}
    assert not [line for line in table.lines if line[0] == "scale" and line[3] == "pinned"]


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

"""What a sweep answers: the table of effects and its sentences, against numbers worked out by hand."""

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
from attn_exp.report.sweep_plots import in_order
from attn_exp.sweeps.effects import Effect, find_level, student_tails, t_quantile
from attn_exp.sweeps.rows import METRICS
from attn_exp.sweeps.summary import Answers, Summary, effects_table, summarize

HEAD = [
    "point",
    "seed",
    "d",
    "scale",
    "status",
    "message",
    "variant",
    "variant_scale",
    "same_as",
    "entropy",
    "max_diff",
]
FLAG = ("true", "false")


def axis(key: str, count: int) -> dict[str, Any]:
    return {"key": key, "column": key, "count": count}


def noise(*key: int) -> float:
    return float(np.random.default_rng(key).normal())


def swept(
    entropy: Callable[[int, int, bool, str], float],
    seeds: int = 8,
    levels: tuple[int, ...] = (8, 16),
    variants: tuple[str, ...] = ("free", "pinned"),
    failed: frozenset[int] = frozenset(),
) -> Summary:
    """The summary of a grid of seeds x d x scale, whose entropies are a function of them.

    The variant `pinned` has its own scale, so that only its distance from the first row varies with that setting.
    """
    lines = []
    for point, (seed, d, scale) in enumerate(itertools.product(range(seeds), levels, FLAG)):
        start = [str(point), str(seed), str(d), scale]
        if point in failed:
            lines.append([*start, "failed", "no room", "", "", "", "", ""])
            continue
        for variant in variants:
            own = "true" if variant == "pinned" else scale
            letter = "A" if own == scale or variant != "pinned" else "B"
            number = entropy(seed, d, own == "true", variant)
            lines.append([*start, "ok", "", variant, own, letter, repr(number), repr(0.5 * (own != scale))])
    return summarize(HEAD, lines, [axis("seed", seeds), axis("d", len(levels)), axis("scale", 2)])


def answered(
    names: Mapping[str, Sequence[Any]], number: Callable[..., float | None], seeds: int = 8, spread: float = 0.01,
    exact: bool = False, matters: Mapping[str, float] | None = None, **more: Callable[..., str],
) -> Answers:  # fmt: skip
    """Return the answers of a sweep of one variant over these settings, with noise; a row of None is not there."""
    head = ["point", "seed", *names, "status", "message", "variant", "entropy", *more]
    lines = []
    for at, (seed, *values) in enumerate(itertools.product(range(seeds), *names.values())):
        labels, entropy = [str(value).lower() for value in values], number(*values)
        tail = [text(*values) for text in more.values()]
        if entropy is None:
            lines.append([str(at), str(seed), *labels, "failed", "no room", "", "", *("" for _ in more)])
        else:
            shown = "" if math.isnan(entropy) else repr(entropy + spread * noise(at, 7))
            lines.append([str(at), str(seed), *labels, "ok", "", "one", shown, *tail])
    axes = [axis("seed", seeds), *(axis(key, len(values)) for key, values in names.items())]
    asked = [name for name in more if name in metrics.all_metrics() and name not in METRICS]
    return summarize(head, lines, axes, asked, matters=matters, exact=exact).answers


def rows(answers: Answers, setting: str, metric: str = "entropy") -> list[Effect]:
    return [each for each in answers.effects if (each.setting, each.metric) == (setting, metric)]


def test_an_effect_is_the_mean_of_the_differences_within_each_seed() -> None:
    """Numbers that differ by 100 from seed to seed still show a difference of a tenth, and Student's interval."""
    answers = swept(lambda seed, d, scale, _: 100.0 * seed + (0.1 + 0.001 * (seed % 2)) * scale + d).answers
    (effect,) = rows(answers, "scale")
    assert (effect.start, effect.end, effect.seeds, effect.verdict) == ("false", "true", 8, "yes")
    assert math.isclose(effect.mean, 0.1005, abs_tol=1e-9)
    expected = stats.t.interval(0.95, 7, 0.1005, 0.0005 * math.sqrt(8 / 7) / math.sqrt(8))
    assert np.allclose((effect.low, effect.high), expected, rtol=1e-6)


def test_an_effect_that_depends_on_another_setting_has_a_row_at_each_of_its_values() -> None:
    """No mean over both is told, and the sentence says the largest and the smallest."""
    answers = answered({"d": (1, 4, 16), "scale": FLAG}, lambda d, scale: math.log2(d) * (scale == "true"), seeds=10)
    found = rows(answers, "scale")
    assert [each.at for each in found] == ["d=1", "d=4", "d=16"]
    assert [round(each.mean) for each in found] == [0, 2, 4]
    assert {each.verdict for each in found} == {"depends on d"}
    (sentence,) = [text for text in answers.sentences if text.startswith("scale=true instead of false")]
    assert re.fullmatch(
        r"scale=true instead of false raises the entropy by (4\.0|3\.99)\d* ± 0\.0\d+ nats at d=16 and does "
        r"not clearly change it at d=1 \(.?0\.0\d* ± 0\.0\d+ nats\)\.", sentence
    )  # fmt: skip


def test_a_small_dependence_leaves_one_row_that_names_it() -> None:
    answers = answered({"b": ("x", "y"), "scale": FLAG}, lambda b, s: (b == "y") * (0.8 + 0.15 * (s == "true")))
    (effect,) = rows(answers, "b")
    assert effect.verdict == "yes" and re.fullmatch(
        r"between \+0.(80|79|8) and \+0.9[456], depending on scale", effect.note
    )


WAYS = {
    (0, 1, 2, 3, 4): [("1", "5", "")],
    (0, 1, 4, 4, 4): [("1", "5", "")],
    (0, 2, 4, 2, 1): [("1", "3", "highest at 3"), ("3", "5", "highest at 3")],
    (0, -2, -1, 0, 1): [("1", "2", "lowest at 2"), ("2", "5", "lowest at 2")],
    (0, 0, -0.6, 0, -0.014): [("1", "3", "lowest at 3"), ("3", "5", "lowest at 3")],
}


@pytest.mark.parametrize(("way", "expected"), WAYS.items())
def test_where_a_way_turns_is_told(way: tuple[float, ...], expected: list[tuple[str, str, str]]) -> None:
    found = rows(answered({"d": (1, 2, 3, 4, 5)}, lambda d: way[d - 1], seeds=12), "d")
    assert [(each.start, each.end, each.note) for each in found] == expected
    assert {each.verdict for each in found} == {"yes"}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("typed", [("-1", "0", "1", "4"), ("4", "-1", "0", "1"), ("0", "1", "4", "-1")])
def test_no_limit_is_more_than_any_number(side: str, typed: tuple[str, ...]) -> None:
    """A window of -1 is of all keys: the entropy rises on the way to it."""
    key, lines = f"mask.window.{side}", []
    for point, (seed, width) in enumerate(itertools.product(range(8), typed)):
        number = (7.0 if width == "-1" else float(width)) + 0.01 * noise(seed, int(width) + 2)
        lines.append([str(point), str(seed), width, "ok", "", "one", repr(number)])
    head = ["point", "seed", key, "status", "message", "variant", "entropy"]
    summary = summarize(head, lines, [axis("seed", 8), axis(key, 4)])
    assert summary.answers.sentences[0].startswith(f"window.{side}=all instead of 0 raises the entropy by 7.0")
    assert {(label,) for label, _ in summary.cells} == {("0",), ("1",), ("4",), ("all",)}
    assert in_order(("all", "4", "0", "1")) == ["0", "1", "4", "all"]


def test_noise_is_too_few_seeds_and_what_is_surely_small_is_no_effect() -> None:
    loud = answered({"scale": FLAG}, lambda scale: 0.0, spread=1.0, seeds=12)
    assert [each.verdict for each in loud.effects] == ["too few seeds"]
    assert re.search(r" may (raise|lower) the entropy by .*; 12 seeds are too few to tell\.", loud.sentences[0])
    quiet = answered({"scale": FLAG}, lambda scale: 0.0, spread=0.001)
    assert [each.verdict for each in quiet.effects] == ["no"]
    assert re.match(r"scale=true instead of false hardly changes the entropy \(\S+ ± \S+ nats\)\.", quiet.sentences[0])


def test_an_interval_that_leaves_out_0_is_said_to_be_one_of_many() -> None:
    """Of fifteen comparisons of noise, one in twenty has a 95 % interval without 0: Holm's test finds no effect."""
    names = {"a": FLAG, "b": FLAG, "c": FLAG}
    answers = answered(names, lambda a, b, c: noise(2, a == "true", b == "true", c == "true"), seeds=6, spread=1.0)
    (effect,) = (each for each in answers.effects if each.low * each.high > 0)
    assert (effect.setting, effect.sign, effect.verdict) == ("b", 0, "too few seeds")
    expected = "may lower the entropy by 0.7 ± 0.6 nats, not significant among 15 comparisons; 6 seeds are too few"
    assert any(expected in sentence for sentence in answers.sentences)


def test_what_matters_can_be_set() -> None:
    """Half a nat either way is no effect to somebody who says so."""
    strict, mild = (
        answered({"b": ("x", "y")}, lambda b: 0.0, spread=0.2, seeds=12, matters={"entropy": limit}).effects[0].verdict
        for limit in (1e-6, 0.5)
    )
    assert (strict, mild) == ("too few seeds", "no")


def test_one_seed_shows_its_differences_and_claims_nothing() -> None:
    answers = answered({"scale": FLAG}, lambda scale: 0.5 * (scale == "true"), seeds=1, spread=0.0)
    (effect,) = answers.effects
    assert (effect.mean, effect.verdict) == (0.5, "too few seeds") and math.isnan(effect.low)
    (sentence,) = answers.sentences
    assert sentence == "scale=true instead of false may raise the entropy by 0.5 nats; 1 seed is too few to tell."
    assert not answers.notes


@pytest.mark.parametrize(("seeds", "exact"), [(3, False), (1, True)])
def test_what_no_seed_changes_is_exact(seeds: int, exact: bool) -> None:
    """A checkpoint draws nothing: its effects need no seeds, and have no interval; the largest is said first."""
    made = {"score": ("none", "alibi", "t5"), "head, embeddings.d_model": ("1, 8", "2, 16")}
    answers = answered(made, lambda score, _: 0.5 * len(score), seeds, spread=0.0, exact=exact)
    assert [(each.verdict, each.mean) for each in answers.effects] == [("yes", 0.5), ("yes", -1.0), ("no", 0.0)]
    assert all(math.isnan(each.low) for each in answers.effects)
    assert answers.sentences == (
        "score=t5 instead of none lowers the entropy by 1 nats.",
        "score=alibi instead of none raises the entropy by 0.5 nats.",
        "head=2 and d_model=16 instead of head=1 and d_model=8 does not change the entropy.",
    )


def test_a_setting_that_a_variant_pins_is_measured_in_the_others_and_printed_once() -> None:
    summary = swept(lambda seed, d, scale, variant: 0.01 * noise(seed, d, scale) + scale)
    (effect,) = rows(summary.answers, "scale")
    assert effect.mean == pytest.approx(1, abs=0.1) and effect.note == "pinned is unaffected"


def test_points_that_failed_leave_out_their_pairs_alone() -> None:
    numbers = swept(lambda seed, d, scale, _: 5.0 * seed + scale, variants=("free",), failed=frozenset({0, 6}))
    (effect,) = rows(numbers.answers, "scale")
    assert (effect.mean, effect.seeds, effect.note) == (1.0, 8, "")


def test_an_effect_that_failed_at_one_value_of_another_setting_says_where_it_was_measured() -> None:
    numbers = swept(lambda seed, d, scale, _: seed + scale, variants=("free",), failed=frozenset(range(0, 40, 4)))
    assert [effect.note for effect in rows(numbers.answers, "scale")] == ["compared only at d=16"]


def test_shares_are_those_of_an_analysis_of_variance_worked_out_by_hand() -> None:
    """y = 3 a + 1 b + 2 a b with a and b of -1 and 1: squares 9, 1 and 4 of 14."""

    def entropy(seed: int, d: int, scale: bool, variant: str) -> float:
        a, b = {8: -1, 16: 1}[d], 1 if scale else -1
        return 3.0 * a + b + 2.0 * a * b

    answers = swept(entropy, variants=("free",)).answers
    shares = {tuple(settings): share for (_, *settings), share in answers.shares.items()}
    expected = {("d",): 9 / 14, ("scale",): 1 / 14, ("d", "scale"): 4 / 14}
    assert {key: shares[key] for key in expected} == pytest.approx(expected)
    assert shares[("seed",)] == pytest.approx(0, abs=1e-15)
    assert rows(answers, "d")[0].explains == pytest.approx(13 / 14)  # it depends on scale, and has that share too


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 30, 200, 201, 5000])
def test_tails_and_intervals_are_those_of_student(freedom: int) -> None:
    distances = [0.0, 0.3, 1.0, 2.5, 6.0, 12.0]
    ours = [student_tails(distance, freedom) for distance in distances]
    assert np.allclose(ours, 2 * stats.t.sf(distances, freedom), rtol=0.01, atol=1e-9)
    assert math.isclose(t_quantile(freedom, 0.01), stats.t.ppf(0.995, freedom), rel_tol=1e-3)


def test_a_family_is_held_by_holm() -> None:
    """0.05 / 4, 0.05 / 3 and 0.05 / 2 are 0.0125, 0.0167 and 0.025: the third of these p-values is too large."""
    assert find_level([0.03, 0.012, 0.2, 0.016]) == 0.016
    assert find_level([0.2, math.nan]) == 0.025


def test_errors_are_compared_by_their_ratio() -> None:
    """Errors of two types differ by powers of ten: float32's is told in spite of float16's, and never below 0."""
    sizes = {"float64": 1e-16, "float32": 1e-7, "float16": 1e-3}
    answers = answered({"dtype": tuple(sizes)}, lambda dtype: 1.0, error=lambda dtype: repr(sizes[dtype]))
    first, second = rows(answers, "dtype", "error")
    assert (first.end, second.end) == ("float32", "float16")
    assert first.mean == pytest.approx(9, abs=0.3) and second.mean == pytest.approx(13, abs=0.3)
    assert "dtype=float32 instead of float64 raises the error by a factor of 1e+09." in answers.sentences
    back = answered({"dtype": ("float32", "float64")}, lambda dtype: 1.0, error=lambda dtype: repr(sizes[dtype]))
    assert "dtype=float64 instead of float32 lowers the error by a factor of 1e+09." in back.sentences
    assert "÷ 1e+09" in str(effects_table(back))


def test_an_output_that_is_wrong_is_said_first() -> None:
    answers = answered(
        {"mistake": ("none", "no_scale")}, lambda mistake: 1.0,
        error=lambda mistake: "1e-16" if mistake == "none" else "0.25",
        error_ulp=lambda mistake: "1.5" if mistake == "none" else "2e15",
    )  # fmt: skip
    assert answers.sentences[0] == "The output is wrong in 8 of 16 rows (mistake=no_scale), by up to 0.25."
    assert {each.metric for each in answers.effects} == {"entropy"}


def test_what_has_no_number_is_named_and_leaves_the_others_alone() -> None:
    """Sigmoid has no entropy: what scaling does is measured over the other two."""
    sizes = {"softmax": 1.0, "sigmoid": math.nan, "sparsemax": 0.2}
    answers = answered({"normalizer": tuple(sizes), "scale": FLAG}, lambda name, scale: sizes[name] * (scale == "true"))
    assert [each.at for each in rows(answers, "scale")] == ["normalizer=softmax", "normalizer=sparsemax"]
    assert [each.end for each in rows(answers, "normalizer")][:1] == ["sparsemax"]
    assert "The entropy is missing in 16 of 48 rows (normalizer=sigmoid)." in answers.notes


def test_means_over_other_queries_are_not_compared() -> None:
    """Queries see more keys the later they stand: without the first ones the mean entropy rises, and nothing did it."""
    for queries, count in (({"a": "all", "b": "all"}, 1), ({"a": "all", "b": "all but 1-4"}, 0)):
        answers = answered({"kind": ("a", "b")}, lambda kind: float(kind == "b"), queries=queries.__getitem__)
        assert len(rows(answers, "kind")) == count
        assert any("only rows with the same queries" in note for note in answers.notes) == (not count)


def test_weights_that_do_not_sum_to_1_are_not_compared_with_those_that_do() -> None:
    answers = answered(
        {"normalizer": ("softmax", "sigmoid"), "scale": FLAG}, lambda *_: 1.0,
        variant_normalizer=lambda normalizer, scale: normalizer,
        largest_weight=lambda normalizer, scale: repr(0.2 + 0.5 * (normalizer == "sigmoid") + 0.1 * (scale == "true")),
    )  # fmt: skip
    assert {each.setting for each in answers.effects if each.metric == "largest_weight"} == {"scale"}


def test_points_of_one_variant_each_are_compared() -> None:
    lines = [
        [str(seed), str(seed), "ok", "", name, repr(2.0 - (name == "sharp") + 0.01 * noise(seed, len(name)))]
        for seed in range(8) for name in ("plain", "sharp")
    ]  # fmt: skip
    head = ["point", "seed", "status", "message", "variant", "entropy"]
    words = axis("variant", 2) | {"words": ["plain", "[sharp]"]}
    (effect,) = summarize(head, lines, [axis("seed", 8), words]).answers.effects
    assert (effect.start, effect.end, effect.sign, effect.verdict) == ("plain", "sharp", -1, "yes")


def test_a_distance_from_one_row_is_not_compared_between_variants() -> None:
    """It is 0 for the row that all are compared with, whatever that computes."""
    head = ["point", "seed", "status", "message", "variant", "total_variation", "gini"]
    lines = [
        [str(seed), str(seed), "ok", "", name, repr(far + 0.001 * noise(seed, 5)), repr(far + 0.001 * noise(seed, 6))]
        for seed in range(8) for name, far in (("other", 0.5), ("compared", 0.0))
    ]  # fmt: skip
    answers = summarize(head, lines, [axis("seed", 8)], ["total_variation", "gini"]).answers
    assert {each.metric for each in answers.effects} == {"gini"}


def test_what_else_a_setting_changes_stands_beside_its_effect() -> None:
    """A mask changes how many keys are seen, and a setting that is no scale the spread of the logits."""
    (alone,) = answered({"mask": ("none", "causal")}, lambda mask: float(mask == "none")).effects
    assert alone.note == "the number of visible keys changes too; metrics=[normalized_entropy] corrects for this"
    both = answered(
        {"mask": ("none", "causal")}, lambda mask: float(mask == "none"),
        normalized_entropy=lambda mask: "0.80" if mask == "none" else "0.78",
        logit_std=lambda mask: "1.0" if mask == "none" else "1.3",
    )  # fmt: skip
    assert rows(both, "mask")[0].note == (
        "the number of visible keys changes too; metrics=[normalized_entropy] corrects for this; "
        "the standard deviation of the logits changes by +30%"
    )
    (heads,) = answered({"head": (1, 8)}, float).effects
    assert heads.note == "d_head = d_model / head changes too"

"""What a sweep says of a setting whose effect depends on others, of cubes whose truth is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
import pytest

from attn_exp.sweeps.answers.answers import Answers, answers
from attn_exp.sweeps.answers.cube import Cube
from attn_exp.sweeps.answers.findings import said_of_shape
from attn_exp.sweeps.answers.intervals import Family, estimated
from attn_exp.sweeps.answers.phrases import ranged
from attn_exp.sweeps.answers.profiles import Profile
from attn_exp.sweeps.answers.shapes import shape_of


def said(
    axes: Mapping[str, Sequence[str]],
    entropy: Callable[..., float],
    seeds: int = 12,
    noise: float = 0.01,
    others: Mapping[str, Callable[..., float]] | None = None,
) -> Answers:
    """What is said of one variant whose metrics are functions of the settings, with noise of each row's own."""
    rng = np.random.default_rng(1)
    shape = (*map(len, axes.values()), seeds, 1)
    metrics = {"entropy": entropy, **(others or {})}
    numbers = {}
    for metric, number in metrics.items():
        truth = np.array([number(*labels) for labels in product(*axes.values())]).reshape(shape[:-2])
        numbers[metric] = truth[..., None, None] + noise * rng.normal(size=shape)
    resolved = np.broadcast_to(np.arange(np.prod(shape[:-2])).reshape(*shape[:-2], 1, 1), shape)
    names, levels = tuple(axes), tuple(map(tuple, axes.values()))
    seed_names = tuple(map(str, range(seeds)))
    letters = np.zeros(shape, dtype=int)
    cube = Cube(names, levels, seed_names, ("one",), numbers, resolved, letters, ({},) * int(np.prod(shape[:-2])))
    return answers(cube)


def of(answered: Answers, subject: str) -> str:
    """The one sentence that begins so."""
    (sentence,) = [text for text in answered.sentences if text.startswith(subject) and "matters" not in text]
    return sentence


FLAG = ("true", "false")
NUMBER = r"\d+\.\d+"


def test_a_mean_over_a_slight_interaction_says_from_where_to_where_it_ranges() -> None:
    sentence = of(said({"b": ("x", "y"), "scale": FLAG}, lambda b, s: (b == "y") * (0.8 + 0.15 * (s == "true"))), "b=y")
    over = r" on average over scale \(0.80 without scaling to 0.95 with it\)\."
    assert re.fullmatch(rf"b=y instead of x raises the entropy by 0.87\d* ± {NUMBER} nats{over}", sentence)


def test_a_shape_over_a_slight_interaction_says_so_too() -> None:
    axes = {"d": ("1", "2", "4"), "head": ("1", "2")}
    sentence = of(said(axes, lambda d, head: float(d) * (1 + 0.1 * int(head))), "d raises")
    assert re.search(r"nats in all, on average over head \(3.3 at head=1 to 3.6 at 2\), and at every step\.", sentence)


def test_a_mean_over_two_slight_interactions_says_where_its_ends_are() -> None:
    axes = {"b": ("x", "y"), "scale": FLAG, "head": ("1", "2")}
    effect = lambda b, s, head: (b == "y") * (0.8 + 0.08 * (s == "true") + 0.07 * (head == "2"))  # noqa: E731 - one line
    sentence = of(said(axes, effect), "b=y")
    ends = r"\(0.80 at head=1 without scaling to 0.95 at head=2 with scaling\)"
    assert re.search(rf"on average over (scale and head|head and scale) {ends}", sentence)


def test_a_mean_over_no_interaction_says_nothing_of_one() -> None:
    sentence = of(said({"b": ("x", "y"), "scale": FLAG}, lambda b, s: (b == "y") * 0.8 + (s == "true")), "b=y")
    assert re.fullmatch(rf"b=y instead of x raises the entropy by 0.(79|80)\d* ± {NUMBER} nats\.", sentence)


def test_what_turns_inside_an_interaction_is_told_there() -> None:
    """Without scaling the entropy rises by 2 up to d=4 and falls by 1 from there; with scaling it rises by 3."""
    way = {"false": (0, 1, 2, 1.5, 1), "true": (0, 1, 2, 2.5, 3)}
    levels = ("1", "2", "4", "8", "16")
    sentence = of(said({"d": levels, "scale": FLAG}, lambda d, s: way[s][levels.index(d)]), "d from 1 to 16")
    top = rf"\(highest at d=4: (1.9|2.0)\d* ± {NUMBER} above 1, (0.9|1.0)\d* ± {NUMBER} above 16\)"
    assert re.search(rf"by (0.9|1.0)\d* ± {NUMBER}( nats)? without scaling {top}", sentence)
    assert re.search(rf"by (2.9|3.0)\d* ± {NUMBER}( nats)? with scaling[,.]", sentence)


def test_what_is_the_same_at_both_ends_of_an_interaction_is_told_to_turn() -> None:
    """Without scaling it comes back to where it began."""
    way = {"false": (0, 1, 2, 1, 0), "true": (0, 1, 2, 3, 4)}
    levels = ("1", "2", "4", "8", "16")
    sentence = of(said({"d": levels, "scale": FLAG}, lambda d, s: way[s][levels.index(d)]), "d from 1 to 16")
    assert re.search(rf"but that is not sure without scaling \([+−]0.0\d* ± {NUMBER}; highest at d=4: ", sentence)


@pytest.mark.parametrize(
    ("effects", "expected"),
    [
        ((0, 1, 2, 3), "more with more heads: "),
        ((0.5, 0.4, 0.3, 0.1), "less with more heads: "),
        ((0, 1, 1, 1), ""),
        ((0, 0, 0, 1), ""),
        ((0, 2, 1, 3), ""),
        ((0.5, 0.5001, 0.5002, 1), ""),
    ],
)
def test_the_more_the_larger_is_said_where_every_step_is_sure(effects: Sequence[float], expected: str) -> None:
    levels = ("1", "2", "4", "8")
    sentence = of(said({"head": levels, "b": ("x", "y")}, lambda h, b: (b == "y") * effects[levels.index(h)]), "b=y")
    assert sentence.startswith(f"b=y instead of x raises the entropy {expected}by ")


def test_the_more_the_larger_is_said_of_all_values_not_only_of_those_compared() -> None:
    """Of ten numbers some are compared; the effect drops at one of them, whichever it is."""
    levels = tuple(map(str, range(1, 11)))
    for drop in range(1, 9):
        effects = [place - 1.5 * (place == drop) for place in range(10)]
        answered = said({"head": levels, "b": ("x", "y")}, lambda h, b: (b == "y") * effects[levels.index(h)])  # noqa: B023
        assert "more heads" not in of(answered, "b=y")
    grows = said({"head": levels, "b": ("x", "y")}, lambda h, b: (b == "y") * float(h))
    assert "more with more heads" in of(grows, "b=y")


def test_effects_over_two_settings_are_told_by_their_ends() -> None:
    """Eight effects: 1 to 5 where there are any, none at head=1 without scaling, and the sentence stays short."""
    axes = {"b": ("x", "y"), "head": ("1", "2", "4", "8"), "scale": FLAG}
    effect = lambda b, head, s: (b == "y") * (int(head).bit_length() - 1 + 2.0 * (s == "true"))  # noqa: E731 - one line
    sentence = of(said(axes, effect), "b=y")
    first, last = r"\(at head=2 without scaling\)", r"\(at head=8 with scaling\)"
    ends = rf"by 1.0\d* ± {NUMBER} nats {first} to 5.0\d* ± {NUMBER} nats {last}"
    nothing = r"; (not at all|but that is not sure) at head=1 without scaling"
    assert re.fullmatch(rf"b=y instead of x raises the entropy {ends}{nothing}\.", sentence)


def test_long_sentences_of_two_metrics_are_two() -> None:
    axes = {"b": ("x", "y"), "head": ("1", "2", "4", "8"), "scale": FLAG}

    def effect(b: str, head: str, s: str) -> float:
        return (b == "y") * (int(head).bit_length() + 2.0 * (s == "true"))

    answered = said(axes, effect, others={"largest_weight": lambda b, head, s: -effect(b, head, s)})
    assert ". It lowers the largest weight by" in of(answered, "b=y")
    assert max(map(len, re.split(r"\. (?=It )", of(answered, "b=y")))) < 180


@pytest.mark.parametrize("seeds", [2, 4])
def test_differences_of_few_seeds_say_over_what_they_are_means(seeds: int) -> None:
    axes = {"b": ("x", "y"), "head": ("1", "2"), "scale": FLAG}
    answered = said(axes, lambda b, head, s: (b == "y") * float(head), seeds=seeds)
    (sentence,) = [text for text in answered.sentences if "what b=y" in text]
    assert " nats), each a mean over head and scale; about " in sentence
    alone = said({"b": ("x", "y")}, lambda b: float(b == "y"), seeds=seeds)
    assert "mean" not in " ".join(alone.sentences)


def test_what_some_rows_lack_is_noted_with_the_reason() -> None:
    names = ("softmax", "sigmoid", "sum")
    entropy = {"softmax": 1.0, "sigmoid": np.nan, "sum": np.nan}
    axes = {"normalizer": names, "scale": FLAG}
    lacking = said(axes, lambda n, s: entropy[n], others={"largest_weight": lambda n, s: names.index(n)})
    where = "The entropy is not compared with normalizer=sigmoid and sum"
    assert lacking.note.endswith(f"{where}: the weights do not sum to 1 there.")
    both = said(axes, lambda n, s: entropy[n], others={"largest_weight": lambda n, s: entropy[n]})
    where = "The entropy and the largest weight are not compared with normalizer=sigmoid and sum"
    assert both.note.endswith(f"{where}: no weights are formed there.")
    asked = said(axes, lambda n, s: 1.0, others={"gini": lambda n, s: entropy[n] if s == "true" else 1.0})
    assert "The Gini index is not compared in 24 of 72 rows: there is no such number there." in asked.note
    assert "compared" not in said(axes, lambda n, s: float(s == "true")).note.replace("comparisons", "")


def test_errors_are_not_averaged_over_types() -> None:
    """Positions double an error that is 1e-3 in float16 and 1e-15 in float64: no mean over both is said."""
    axes = {"dtype": ("float64", "float16"), "position": ("none", "rope")}
    size = lambda dtype, position: (1e-15 if dtype == "float64" else 1e-3) * (1 + (position == "rope"))  # noqa: E731
    pooled = said(axes, lambda *_: 1.0, noise=0.0, others={"error": size, "rms_error": size})
    assert {each.setting for each in pooled.effects if "error" in each.metric} == {"dtype"}
    assert not any("position=rope instead" in text for text in pooled.sentences)
    assert "Errors are compared between values of dtype alone" in pooled.note


def test_what_else_a_setting_changes_is_said() -> None:
    axes = {"embeddings.tokens": ("4", "16"), "mask": ("none", "causal"), "head": ("1", "2")}
    note = said(axes, lambda tokens, mask, head: int(tokens) - (mask == "causal") + int(head)).note
    assert "How many keys a query sees depends on tokens and mask, and that alone changes the entropy" in note
    assert "At a fixed d_model, d_head = d_model / head changes too: what is said of head may be due to it." in note


def test_what_no_seed_changes_is_sure_beside_what_seeds_do_change() -> None:
    """A query that sees no key has no weight, one that sees one key gives it 1: then the largest weight falls."""
    weights = {"0": 0.0, "1": 1.0, "3": 0.6, "5": 0.4}
    rng = np.random.default_rng(3)
    numbers = np.array([[weight + 0.02 * rng.normal(size=6) * (weight not in (0, 1)) for weight in weights.values()]])
    numbers = numbers.reshape(4, 6, 1)
    there = np.zeros(numbers.shape, dtype=int)
    seeds = tuple(map(str, range(6)))
    cube = Cube(("length",), (tuple(weights),), seeds, ("one",), {"largest_weight": numbers}, there, there, ({},))
    assert answers(cube).sentences[0].startswith("length raises the largest weight up to about length=1, by 1, and low")


def test_values_that_do_the_same_are_named_together() -> None:
    levels = ("true", "0.5", "2")
    effect = {"true": 0.0, "0.5": 0.0, "2": 1.0}
    answered = said({"scale": levels, "b": ("x", "y")}, lambda s, b: effect[s] + (b == "y"), noise=0.0)
    assert "scale=true and 0.5 do the same in every point." in answered.sentences
    assert "do the same" not in " ".join(said({"scale": levels, "b": ("x", "y")}, lambda s, b: effect[s]).sentences)


def test_a_turn_is_sought_in_rows_that_all_values_have() -> None:
    """At d=2 the rows with the low entropies failed: its mean alone stands out."""
    way = {"1": 0.0, "2": 1.0, "4": 2.0, "8": 3.0}
    answered = said(
        {"d": tuple(way), "b": ("x", "y")}, lambda d, b: np.nan if (d, b) == ("2", "x") else way[d] + 9 * (b == "y")
    )
    assert of(answered, "d raises").startswith("d raises the entropy from 1 to 8, by ")


def test_one_sure_step_up_and_one_down_are_no_disorder() -> None:
    """Neither the way to the top nor that from it is sure: the two steps are said, and nothing of an order."""
    rng = np.random.default_rng(2)
    numbers = {(0, 1): 1.0, (2, 3): -1.0}
    ends = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (2, 3), (3, 4), (1, 4), (2, 4)]
    spread = {pair: 0.1 if pair in numbers else 9.0 for pair in ends}
    pairs = {pair: estimated(numbers.get(pair, 0.0) + spread[pair] * rng.normal(size=9)) for pair in ends}
    profile = Profile("d", "", "entropy", ("1", "2", "3", "4", "5"), (0.0, 1.0, 1.1, 0.1, 0.0), pairs, (), 1.0, 9)
    shape = shape_of(profile, Family(12, 0.001))
    assert [(each.start, each.end) for each in shape.legs] == [(0, 1), (2, 3)] and shape.parts and not shape.wild
    text = said_of_shape(profile, shape, ["", ""])
    assert re.match(r"raises the entropy from 1 to 2, by [^a-z]*nats, and lowers it from 3 to 4, by [^a-z]*nats$", text)


def test_places_of_one_kind_are_said_together() -> None:
    """Nothing happens at two heads, and a little at most at two others: each has its word once."""
    axes = {"b": ("x", "y"), "normalizer": ("softmax", "sum", "sparsemax", "sigmoid")}
    effects = {"softmax": 1.0, "sum": 0.0, "sparsemax": 0.0, "sigmoid": 0.0}
    sentence = of(said(axes, lambda b, name: (b == "y") * effects[name]), "b=y")
    places = ", ".join(rf"with normalizer={name} \([^)]*\)" for name in ("sum", "sparsemax"))
    rest = rf"but that is not sure {places} and with normalizer=sigmoid \([^)]*\)"
    assert re.search(rf"with normalizer=softmax, {rest}\.", sentence)


def test_a_part_of_the_way_that_does_not_range_says_no_range() -> None:
    """Up to d=2 it rises by 1 whatever b is; from there it falls by more at b=y."""
    way = {("1", "x"): 0.0, ("1", "y"): 0.0, ("2", "x"): 1.0, ("2", "y"): 1.0, ("4", "x"): 0.55, ("4", "y"): 0.4}
    sentence = of(said({"d": ("1", "2", "4"), "b": ("x", "y")}, lambda d, b: way[d, b], noise=0.001), "d ")
    assert "to 1.0 with" not in sentence


DEPTHS = ("4", "8", "16", "32")


@pytest.mark.parametrize(("at_four", "told"), [(0.01, False), (0.5, True)])
def test_from_where_on_a_change_matters_is_said_where_that_holds_whatever_else_is_set(
    at_four: float, told: bool
) -> None:
    """From d=16 on scaling moves the entropy by 0.4 at one head; at four by so much, or by nothing to speak of."""
    axes = {"scale": FLAG, "d": DEPTHS, "head": ("1", "4")}
    effect = lambda s, d, h: (s == "true") * (d in DEPTHS[2:]) * (0.4 if h == "1" else at_four)  # noqa: E731 - one line
    matters = [text for text in said(axes, effect).sentences if "matters" in text]
    assert bool(matters) == told
    assert all("from d=16 on, by more than 0.1 nats; up to d=8 by less" in text for text in matters)


def test_where_it_is_undecided_whether_a_change_matters_is_named() -> None:
    """Scaling moves the entropy by 0, 0.1, 0.5 and 1: at d=8 that is neither surely above 0.1 nor below."""
    moves = dict(zip(DEPTHS, (0.0, 0.1, 0.5, 1.0), strict=True))
    sentences = said({"scale": FLAG, "d": DEPTHS}, lambda s, d: (s == "true") * moves[d]).sentences
    says = "from d=16 on, by more than 0.1 nats; at d=4 by less, and at d=8 that is not sure."
    assert f"scale=true matters for the entropy {says}" in sentences


def test_the_more_the_larger_is_not_said_where_a_third_setting_turns_it_round() -> None:
    grows = {"x": (0.2, 0.6, 1.4, 2.0), "z": (1.15, 1.1, 1.0, 0.95)}
    axes = {"b": ("u", "v"), "head": ("1", "2", "4", "8"), "n": ("x", "z")}
    effect = lambda b, h, n: (b == "v") * grows[n][axes["head"].index(h)]  # noqa: E731 - one line
    assert not any("more heads" in text for text in said(axes, effect).sentences)


@pytest.mark.parametrize(
    ("means", "told"),
    [
        ((1.40, 1.44, 1.43, 1.34, 0.92), ", though on this way its mean is highest at d=2"),
        ((1.40, 1.40, 1.385, 1.37, 1.8), ", though on this way its mean is lowest at d=8"),
        ((1.44, 1.43, 1.40, 1.34, 0.92), ""),
    ],
)
def test_a_way_whose_mean_first_goes_back_says_so(means: Sequence[float], told: str) -> None:
    levels = ("1", "2", "4", "8", "16")
    sentences = said({"d": levels}, lambda d: means[levels.index(d)], seeds=8, noise=0.04).sentences
    (sentence,) = [text for text in sentences if text.startswith("d ")]
    assert told in sentence and ("though" in sentence) == bool(told), sentence


@pytest.mark.parametrize(
    ("rise", "told"),
    [
        ((0.8, 0.8, 0.05, 0.8), r" at tokens=32; at head=4 by .* at tokens=4, by .* at tokens=32\.$"),
        ((0.8, 0.05, 0.05, 0.8), r" on average over (tokens and head|head and tokens) \(0\.0[45] at .* to 0\.8\d? at "),
        ((0.8, 0.8, 0.8, 0.8), r"^b=y instead of x raises the entropy by 0\.\d+ ± 0\.\d+ nats\.$"),
    ],
)
def test_a_mean_is_not_said_over_what_a_setting_does_beside_another_alone(rise: Sequence[float], told: str) -> None:
    """By tokens and head. In the second case neither bears on what b does, over all rows."""
    axes = {"b": ("x", "y"), "tokens": ("4", "32"), "head": ("1", "4")}
    sentence = of(said(axes, lambda b, t, h: (b == "y") * rise[2 * (t == "32") + (h == "4")]), "b=y")
    assert re.search(told, sentence), sentence


def test_the_mean_at_a_value_is_not_said_where_a_third_setting_bears_on_it_there_alone() -> None:
    """Over all rows heads vary the effect by a twentieth; at 32 tokens it is 0.001 at one head and 0.049 at eight."""
    rise = {("4", "1"): 1.0, ("4", "8"): 1.0, ("32", "1"): 0.001, ("32", "8"): 0.049}
    axes = {"b": ("x", "y"), "tokens": ("4", "32"), "head": ("1", "8")}
    sentence = of(said(axes, lambda b, t, h: (b == "y") * rise[t, h], noise=0.002), "b=y")
    assert re.search(r"at tokens=32 by 0\.0(49|50)\d* ± [0-9.]+ at head=8", sentence), sentence
    assert "0.025" not in sentence and "not sure at head=1 (+0.001 ± " in sentence


def test_values_that_a_sentence_does_not_list_are_named() -> None:
    """Of six values four at most are told; of the others it is said where their means lie, and at which values."""
    levels = tuple("abcdef")
    sentence = of(said({"b": ("x", "y"), "n": levels}, lambda b, n: (b == "y") * (1.0 + levels.index(n))), "b=y")
    assert sentence.endswith("; with n=b, c, d and e the mean lies between these."), sentence


def test_what_is_not_sure_of_many_combinations_is_said_of_the_settings() -> None:
    axes = {"b": ("x", "y"), "head": ("1", "2", "4"), "n": ("u", "v", "w")}
    sure = {("1", "u"), ("2", "v"), ("4", "w"), ("1", "v")}
    sentence = of(said(axes, lambda b, h, n: (b == "y") * 1.5 * ((h, n) in sure)), "b=y")
    assert "sure in 5 of the 9 combinations of " in sentence and "wherever that is sure" in sentence, sentence


@pytest.mark.parametrize("ends", [(0.411, 0.4118), (-0.3000001, -0.3), (4.123456781e-9, 4.123456782e-9), (5.0, 5.0)])
def test_a_range_is_never_from_a_number_to_itself(ends: tuple[float, float]) -> None:
    low, _, high = ranged(*ends).partition(" to ")
    assert low != high and bool(high) == (ends[0] != ends[1])


def test_an_interval_without_0_beside_not_sure_says_why() -> None:
    """Sure by itself, and not among forty comparisons: the sentence says that it is these that make it so."""
    rng = np.random.default_rng(5)
    shape = (2, 2, 2, 2, 2, 12, 1)
    numbers = rng.normal(size=shape) * 0.3
    numbers[1] += 0.09
    axes = ("a", "b", "c", "d", "e")
    there = np.zeros(shape, dtype=int)
    seeds = tuple(map(str, range(12)))
    cube = Cube(axes, (("x", "y"),) * 5, seeds, ("one",), {"entropy": numbers}, there, there, ({},))
    found = answers(cube)
    bare = {each.setting: each for each in found.effects}["a"]
    (sentence,) = [text for text in found.sentences if "what a=y" in text]
    assert bare.low > 0 and f", not enough among {found.family.count} comparisons)" in sentence, sentence


def test_a_part_of_the_way_is_no_mean_over_where_it_goes_otherwise() -> None:
    """From its lowest value on it rises, with x alone: with y nothing ever changes."""
    way = {"1": 0.0, "2": 0.03, "3": 0.0, "4": 0.06}
    sentence = of(said({"n": tuple(way), "b": ("x", "y")}, lambda n, b: way[n] * (b == "x"), 12, 0.03), "n from 3 to 4")
    assert re.search(r"raises the entropy by .* nats with b=x, but that is not sure with b=y", sentence)


def test_how_many_seeds_would_tell_is_said_of_each_metric_where_that_differs() -> None:
    others = {"largest_weight": lambda n: 0.35 * (n == "b")}
    sentence = next(text for text in said({"n": ("a", "b")}, lambda n: 0.1 * (n == "b"), 8, 1.0, others).sentences
                    if text.startswith("It is not sure"))  # fmt: skip
    assert "the entropy (" in sentence and "the largest weight (" in sentence
    assert re.search(r"about [\d,]+ seeds would tell( of the|,)", sentence)

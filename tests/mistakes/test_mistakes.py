"""The catalogue: every mistake has its words, the steps it changes are right without it, and it changes a number."""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np
import pytest

from attn_exp import mistakes, registry
from attn_exp.forms.pipeline import Given, Recipe, compute
from attn_exp.mistakes import scale
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window
from attn_exp.rules.positions.position import Position
from attn_exp.rules.positions.rope import Rope
from attn_exp.rules.positions.sinusoidal import Sinusoidal
from attn_exp.rules.rules import Rules
from attn_exp.rules.scores.alibi import Alibi
from attn_exp.rules.scores.score import Score
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.softcap import Softcap
from tests.zoo import calls, oracle
from tests.zoo.case import Case
from tests.zoo.cases import CASES

BETWEEN_CALLS = {"not_deterministic", "changes_inputs", "reuses_output", "mask_stale", "gradients_cut"}
EDGES = {"no_max_subtraction", "nan_leaks", "empty_row_nan", "zero_scores_hidden"}
"""Mistakes that ordinary numbers do not show."""


def test_names_are_listed_in_order_and_none_stands_in_two_groups() -> None:
    groups = registry.names(mistakes.__path__, without=("mistake",))
    entries = [name for group in groups for name in registry.module(mistakes.__name__, group).MISTAKES]
    assert list(mistakes.names()) == sorted(entries)
    assert mistakes.mistake("no_scale").group == "scale" and mistakes.mistake("no_bias").group == "heads"


@pytest.mark.parametrize("name", mistakes.names())
def test_a_mistake_says_what_it_is_and_how_to_mend_it(name: str) -> None:
    mistake = mistakes.mistake(name)
    assert mistake.says.endswith(".") and len(mistake.says) < 130
    assert mistake.fix and mistake.seen and mistake.group
    assert bool(mistake.changes) == (name not in BETWEEN_CALLS)


def problem(layer: bool, masks: tuple[Mask, ...], scores: tuple[Score, ...]) -> tuple[Recipe, Given]:
    """Return a problem with two entries, six heads that share three, and 9 tokens."""
    rng = np.random.default_rng(3)
    rules = Rules(scale=8**-0.5, masks=masks, scores=scores)
    recipe = Recipe(rules, heads=6, groups=3, positions=(Rope(),))
    if not layer:
        q, k, v = (rng.standard_normal((2, heads, 9, 8)) for heads in (6, 3, 3))
        return recipe, Given(q, k, v)
    sizes: dict[str, tuple[int, ...]] = {"W_q": (48, 48), "W_k": (48, 24), "W_v": (48, 24), "W_o": (48, 48)}
    sizes |= {"b_q": (48,), "b_k": (24,), "b_v": (24,), "b_o": (48,)}
    arrays = {name: rng.standard_normal(shape) / 5 for name, shape in sizes.items()}
    return recipe, Given(x=rng.standard_normal((2, 9, 48)), arrays=arrays)


MASKS: tuple[Mask, ...] = (Causal(), Window(4, 0), Padding((7, 8)), Allowed(np.tril(np.ones((9, 9), bool), 7)))
SCORES: tuple[Score, ...] = (Softcap(2.0), Alibi(), Sink(0.3))


@pytest.mark.parametrize("name", [name for name in mistakes.names() if name not in BETWEEN_CALLS | EDGES])
def test_each_way_to_make_a_mistake_changes_a_number(name: str) -> None:
    """One way of each, in heads or in a layer whose projections are square, on masks alone or on all rules."""
    changed = []
    for layer in (False, True):
        for masks, scores in ((MASKS, SCORES), ((Causal(),), ()), ((Window(3, 0),), SCORES), ((Padding((6, 7)),), ())):
            recipe, given = problem(layer, masks, scores)
            right = compute(recipe, given)["output"]
            for change in mistakes.mistake(name).changes:
                try:
                    wrong = compute(change(recipe), given)["output"]
                except ValueError:
                    continue
                changed.append(wrong.shape != right.shape or bool(np.abs(wrong - right).max() > 1e-6))
    square = name in (
        "projection_transposed",
        "projections_unused",
        "qkv_order",
        "causal_top_left",
        "causal_bottom_right",
        "keys_cut_to_queries",
    )
    assert any(changed) or square


OF_THEIR_OWN = {
    "half_sums_loops", "half_exponentials", "half_exponentials_rows", "dropout", "dropout_layer", "dropout_on",
    "dropout_sdpa", "DropoutInside", "flattened_wrong", "query_tail",
}  # fmt: skip
"""Functions whose numbers are random, or rounded where only they round."""


def asked_of(case: Case, square: bool) -> tuple[Recipe, Given, Any]:
    """Return the right recipe and the inputs of a function that others wrote, and what it answers."""
    ask, function = oracle.asked(case.settings), case.function
    if layer := calls.is_layer(function):
        arrays, size, heads = calls.layer_arrays(function, ask, 1), 24 // ask.head, ask.head
    else:
        arrays, size, heads = calls.core_arrays(ask, 1, square), 8, 6
    masks: list[Mask] = [Causal()] if ask.causal else []
    masks += [] if ask.window is None else [Window(*ask.window)]
    masks += [] if ask.length is None else [Padding(ask.length)]
    takes_mask = set(calls.MASKS) & set(calls.takes(function)) and "mask=causal" not in case.settings
    seen = calls.some_mask(arrays, 1) if takes_mask else None
    masks += [] if seen is None else [Allowed(seen)]
    scores: list[Score] = [Alibi()] if ask.alibi else []
    scores += [] if ask.cap is None else [Softcap(ask.cap)]
    scores += [] if ask.sink is None else [Sink(ask.sink)]
    turned: dict[str, tuple[Position, ...]] = {
        "none": (), "rope": (Rope(interleaved=ask.interleaved),), "sinusoidal": (Sinusoidal(),),
    }  # fmt: skip
    offset = arrays["k"].shape[2] - arrays["q"].shape[2] if ask.corner and not layer else 0
    scale = size**-0.5 if ask.scale is None else ask.scale
    rules = Rules(scale=scale, masks=tuple(masks), scores=tuple(scores), offset=offset)
    recipe = Recipe(rules, heads, ask.kv_head or heads, positions=turned[ask.position])
    answer = calls.call(function, arrays, ask, seen)
    given = Given(x=arrays.pop("x")[None], arrays=arrays) if layer else Given(arrays["q"], arrays["k"], arrays["v"])
    return recipe, given, answer


WRITTEN = [case for case in CASES if case.mistake not in BETWEEN_CALLS and case.function.__name__ not in OF_THEIR_OWN]


@pytest.mark.parametrize("case", WRITTEN, ids=lambda case: case.name)
def test_a_mistake_computes_what_the_wrong_code_of_others_does(case: Case) -> None:
    found = []
    for square in (False, True):
        try:
            recipe, given, answer = asked_of(case, square)
        except (ValueError, RuntimeError):  # it takes no more keys than queries
            continue
        for change in mistakes.mistake(case.mistake).changes:
            try:
                made = compute(change(recipe), given)["output"]
            except ValueError:
                continue
            found.append(made.size == answer.size and np.allclose(made.reshape(answer.shape), answer, atol=1e-9))
    assert any(found)


SEEN = np.random.default_rng(2).random((2, 3, 4, 4)) < 0.5
SEEN[..., 0] = True
WHICH: list[tuple[str, Mask, list[Any]]] = [
    ("mask_of_first_entry", Allowed(SEEN), [SEEN[:1], SEEN[:, :1], SEEN[:1, :1]]),
    # masks of heads lie in memory as `b h`, and are repeated as `h b`, or the other way round
    ("mask_tiled_over_heads", Allowed(SEEN[:, :1]), [
        SEEN[[[0, 1, 0], [1, 0, 1]], 0], SEEN[[[0, 0, 1], [0, 1, 1]], 0],
    ]),
    ("mask_tiled_over_heads", Allowed(SEEN), [SEEN, SEEN]),
    ("padding_on_queries", Padding((2, 3)), [np.array([[1, 1, 0, 0], [1, 1, 1, 0]], bool)[:, None, :, None]]),
    ("padding_on_queries", Padding(3), [np.array([1, 1, 1, 0], bool)[:, None]]),
    ("window_one_narrow", Window(1, 1), [np.tri(4, k=1) - np.tri(4, k=-1), np.tri(4) - np.tri(4, k=-2),
                                         np.eye(4)]),
    ("window_one_narrow", Window(1, 0), [np.eye(4), np.eye(4, k=-1), np.zeros((4, 4))]),
    ("window_one_narrow", Window(0, 1), [np.eye(4, k=1), np.eye(4), np.zeros((4, 4))]),
    ("mask_sign", Causal(), [1 - np.tri(4) + np.eye(1, 16, 15).reshape(4, 4) @ np.ones((4, 4))]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "mask", "expected"), WHICH, ids=lambda value: value if isinstance(value, str) else "")
def test_a_wrong_mask_shows_these_keys(name: str, mask: Mask, expected: list[Any]) -> None:
    """All scores are equal, so that the weights are above zero where a key is seen."""
    nothing = np.zeros((2, 3, 4, 2))
    recipe = Recipe(Rules(masks=(mask,)), 3, 3)
    for change, seen in zip(mistakes.mistake(name).changes, expected, strict=False):
        weights = compute(change(recipe), Given(nothing, nothing, nothing))["weights"]
        np.testing.assert_array_equal(weights > 0, np.broadcast_to(seen, weights.shape) > 0)


CAUSAL, BLIND = (Causal(),), (Allowed(np.array([[False, False], [True, True]])),)
AT_THE_EDGE: list[tuple[str, tuple[float, ...], tuple[float, ...], tuple[Mask, ...], list[tuple[float, ...]]]] = [
    ("no_max_subtraction", (0, 1000), (1, 3), CAUSAL, [(1, nan), (nan, nan), (1, nan), (1, nan)]),
    ("no_max_subtraction", (-88, -88), (1, 3), CAUSAL, [(1, 2), (1, 2), (nan, nan), (1, 2)]),
    ("zero_scores_hidden", (0, 1), (1, 3), (), [(3, 3), (3, 3)]),
    ("nan_leaks", (0, 0), (1, nan), CAUSAL, [(nan, nan)]),
    ("empty_row_nan", (0, 0), (1, 3), BLIND, [(nan, 2)]),
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("name", "keys", "values", "masks", "outputs"), AT_THE_EDGE)
def test_what_is_right_of_ordinary_numbers_is_wrong_at_the_edge(
    name: str, keys: Any, values: Any, masks: tuple[Mask, ...], outputs: list[tuple[float, ...]]
) -> None:
    """Two queries of 1, so that keys are logits: exp(1000) is infinite, and 0 times infinity, as infinity over itself,
    is NaN; exp(-88) lies below the normal numbers of float32."""
    k, v = (np.array(column, float)[None, None, :, None] for column in (keys, values))
    recipe = Recipe(Rules(scale=1.0, masks=masks), 1, 1)
    for change, expected in zip(mistakes.mistake(name).changes, outputs, strict=True):
        found = compute(change(recipe), Given(np.ones_like(k), k, v))["output"]
        np.testing.assert_allclose(found.ravel(), expected)


def test_heads_may_be_taken_for_tokens() -> None:
    """What `[b t h d]` gives in an attention function: the heads of one token attend to each other."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, 3, 5, 4)) for _ in "qkv")
    recipe = Recipe(Rules(scale=0.5), 3, 3)
    found = compute(mistakes.mistake("heads_not_transposed").changes[2](recipe), Given(q, k, v))["output"]
    turned = Given(q.swapaxes(1, 2), k.swapaxes(1, 2), v.swapaxes(1, 2))
    np.testing.assert_allclose(found, compute(Recipe(Rules(scale=0.5), 5, 5), turned)["output"].swapaxes(1, 2))


def test_a_name_that_two_groups_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(scale.MISTAKES, "softmax_twice", scale.MISTAKES["no_scale"])
    with pytest.raises(TypeError, match=r"softmax_twice is defined in scale\.py and in softmax\.py"):
        mistakes.catalogue.__wrapped__()


@pytest.mark.long
def test_wrong_slopes_of_alibi_are_those_that_people_take() -> None:
    """For 6 heads the paper has 2^-2, 2^-4, 2^-6, 2^-8 of 4 heads, then 2^-1, 2^-3 of 8 (Press et al., section 3)."""
    i = np.arange(1.0, 7)
    expected = (
        2 ** (-8 * i / 6), 2 ** (-8 * (i - 1) / 6), 2**-i, 2 ** -np.array([3, 1, 8, 6, 4, 2.0]), 2**-i, 1 / i,
        np.full(6, 1 / 4), 2 ** (1 - i), 2 ** (1 - i),
    )  # fmt: skip
    zero = np.zeros((1, 6, 3, 4))
    recipe = Recipe(Rules(scores=(Alibi(),)), 6, 6)
    for change, slopes in zip(mistakes.mistake("alibi_slopes").changes, expected, strict=True):
        weights = compute(change(recipe), Given(zero, zero, np.zeros((1, 6, 3, 4))))["weights"][0, :, 2]
        np.testing.assert_allclose(np.log(weights[:, 2] / weights[:, 1]), slopes)

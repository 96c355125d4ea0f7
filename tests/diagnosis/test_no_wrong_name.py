"""No name where none is right: a name explains what held as well as what broke, and rounding is no wrong number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp import registry
from attn_exp.arrays import Array
from attn_exp.experiment.verdict import Verdict
from attn_exp.rules.masks.mask import Mask


def state(verdict: Verdict, rung: str) -> str:
    return next(finding.state for finding in verdict.findings if finding.rung == rung)


def exponentials(q: Array, k: Array, scale: float | None = None) -> Array:
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return np.asarray(np.exp(scores - scores.max(axis=-1, keepdims=True)))


def shares(powers: Array, more: float = 0.0) -> Array:
    return np.asarray(powers / (powers.sum(axis=-1, keepdims=True) + more))


def late_causal(q: Array, k: Array, v: Array) -> Array:
    powers = exponentials(q, k)
    return np.asarray(shares(powers * np.tril(np.ones(powers.shape[-2:]))) @ v)


def late_even(q: Array, k: Array, v: Array) -> Array:
    powers = exponentials(q, k)
    places = np.arange(powers.shape[-2])[:, None] - np.arange(powers.shape[-1])
    return np.asarray(shares(powers * (places % 2 == 0)) @ v)


def late_given(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    powers = exponentials(q, k)
    return np.asarray(shares(powers if mask is None else powers * mask) @ v)


@dataclass(frozen=True)
class EveryOther(Mask):
    """Query `i` sees the keys that lie a multiple of 2 away from it."""

    def allows(self, grid: Any) -> Any:
        return (grid.query - grid.key) % 2 == 0


WRITTEN = "mask.array.values=[[true,false,false],[true,true,false],[true,false,true]]"


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "words", "seed"),
    [
        (late_causal, ("mask=causal",), 0),
        (late_given, ("mask=causal",), 1),
    ],
)
def test_a_mask_after_exp_has_no_name_but_its_reason(
    function: Callable[..., Any], words: tuple[str, ...], seed: int
) -> None:
    verdict = attn_exp.check(function, *words, f"seed={seed}", quick=True)
    assert not verdict.passed
    assert verdict.mistakes == ()
    assert state(verdict, "large inputs") == "broken"
    assert state(verdict, "values") == "held"
    assert "the maximum is taken over hidden keys too" in verdict.computes


@pytest.mark.long
def test_a_late_mask_of_ones_own_has_no_name_either() -> None:
    with registry.kept():
        attn_exp.register(EveryOther)
        verdict = attn_exp.check(late_even, "mask=every_other", quick=True)
    assert (verdict.passed, verdict.mistakes, state(verdict, "values")) == (False, (), "held")
    assert "the maximum is taken over hidden keys too" in verdict.computes


def more_below(q: Array, k: Array, v: Array, more: float) -> Array:
    return np.asarray(shares(exponentials(q, k), more) @ v)


def rounded_scale(q: Array, k: Array, v: Array) -> Array:
    return np.asarray(shares(exponentials(q, k, 0.3545)) @ v)


@pytest.mark.parametrize("more", [1e-2, 1e-3, 1e-4, 1e-6])
def test_a_number_added_below_is_named_and_no_rounding(more: float) -> None:
    verdict = attn_exp.check(lambda q, k, v: more_below(q, k, v, more), quick=True)
    assert (verdict.passed, verdict.mistakes) == (False, ("sum_epsilon",))


def test_a_number_added_below_that_float32_would_not_show_is_a_remark() -> None:
    verdict = attn_exp.check(lambda q, k, v: more_below(q, k, v, 1e-9), quick=True)
    assert (verdict.passed, verdict.mistakes, state(verdict, "accuracy")) == (True, (), "remark")
    assert any("beside the sums" in finding.said for finding in verdict.findings)


def test_a_scale_of_few_digits_is_no_half_precision() -> None:
    verdict = attn_exp.check(rounded_scale, quick=True)
    assert (verdict.passed, verdict.mistakes) == (False, ("scale_fixed",))


def refusing(q: Array, k: Array, v: Array, softcap: Any = None, window: Any = None) -> Array:
    if softcap is not None:
        raise AssertionError("softcap is for other kernels")
    if window is not None:
        raise ValueError("nothing but whole rows here")
    return np.asarray(shares(exponentials(q, k)) @ v)


def slipping(q: Array, k: Array, v: Array, mask: Any = None) -> Array:
    powers = exponentials(q, k)
    return np.asarray(shares(powers if mask is None else powers * mask[..., :3]) @ v)


def test_a_keyword_refused_in_words_is_not_offered_and_a_slip_is_broken() -> None:
    verdict = attn_exp.check(refusing, quick=True)
    assert (state(verdict, "softcap"), state(verdict, "window")) == ("not offered", "not offered")
    assert verdict.passed
    assert state(attn_exp.check(slipping, quick=True), "masks") == "broken"


def side_by_side(q: Array, k: Array, v: Array, num_heads: int, merge: bool = True) -> Array:
    heads = [array.reshape(*array.shape[:2], num_heads, -1).swapaxes(1, 2) for array in (q, k, v)]
    context = shares(exponentials(heads[0], heads[1])) @ heads[2]
    return np.asarray((context.swapaxes(1, 2) if merge else context).reshape(q.shape))


def merged_wrong(queries: Array, keys: Array, values: Array, n_heads: int = 2) -> Array:
    return side_by_side(queries, keys, values, n_heads, merge=False)


@pytest.mark.long
def test_heads_may_lie_side_by_side() -> None:
    verdict = attn_exp.check(side_by_side, quick=True)
    assert not verdict.is_wrong
    assert "[b t h*d]" in verdict.findings[0].said
    assert not attn_exp.check(side_by_side, layout="btm", quick=True).is_wrong
    assert attn_exp.check(merged_wrong, quick=True).mistakes == ("heads_merged_wrong",)


def by_steps(array: Array, steps: float) -> Array:
    """Return the array in so many steps of its largest number, as quantized code has it."""
    step = np.abs(array).max() / steps or 1.0
    return np.asarray(np.round(array / step) * step)


def in_steps(q: Array, k: Array, v: Array) -> Array:
    return np.asarray(shares(exponentials(q, k)) @ by_steps(v, 127.0))


def three_decimals(q: Array, k: Array, v: Array) -> Array:
    return np.round(shares(exponentials(q, k)) @ v, 3)


def with_noise(q: Array, k: Array, v: Array) -> Array:
    noise = np.random.default_rng(int(abs(q.sum()) * 1e6)).normal(size=v.shape[-1])
    return np.asarray(shares(exponentials(q, k)) @ v + noise * 1e-3)


@pytest.mark.long
@pytest.mark.parametrize("function", [in_steps, three_decimals, with_noise])
def test_errors_as_small_as_those_of_a_half_type_are_not_its_own(function: Callable[..., Any]) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert (verdict.passed, verdict.mistakes) == (False, ())


def squared(q: Array, k: Array, v: Array) -> Array:
    powers = exponentials(q, k) ** 2 + exponentials(q, k)
    return np.asarray(powers / (powers.sum(axis=-1, keepdims=True) * 2) @ v)


def bent_values(q: Array, k: Array, v: Array) -> Array:
    return np.asarray(shares(exponentials(q, k)) @ np.where(v > 0, v, v * v))


def cubes(q: Array, k: Array, v: Array) -> Array:
    return np.asarray(shares(exponentials(q, k) ** 3 + exponentials(q, k)) @ v)


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "stage", "said"),
    [
        (squared, "weights", "The weights of each row sum to 0.5"),
        (bent_values, "context", "Of one-hot values its weights are right: values are mixed otherwise"),
        (cubes, "logits", "The weights of each row sum to 1, and are others than the right ones: look at the scores"),
    ],
)
def test_what_has_no_name_is_told_by_its_weights(function: Callable[..., Any], stage: str, said: str) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert (verdict.passed, verdict.unexplained, verdict.mistakes) == (False, True, ())
    assert verdict.stage == stage and said in verdict.computes, verdict
    assert f"The first stage that differs: {stage}." in str(verdict)


def unscaled_under_a_mask(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    scores = q @ k.swapaxes(-1, -2)
    scores = scores / q.shape[-1] ** 0.5 if mask is None else np.where(mask, scores, -1e-9)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(shares(powers) @ v)


def test_a_branch_for_masks_may_hold_two_mistakes() -> None:
    verdict = attn_exp.check(unscaled_under_a_mask, quick=True)
    assert verdict.mistakes == ("mask_small_fill", "no_scale"), verdict
    assert verdict.where == "a mask is given"


def merged_with_a_rounded_root(queries: Array, keys: Array, values: Array, n_heads: int = 2) -> Array:
    return side_by_side(queries * (1 + 2.0**-25), keys, values, n_heads, merge=False)


@pytest.mark.long
def test_a_root_that_was_taken_in_float32_is_no_other_scale() -> None:
    verdict = attn_exp.check(merged_with_a_rounded_root, quick=True)
    assert verdict.mistakes == ("heads_merged_wrong",), verdict


def tokens_before_heads(q: Array, k: Array, v: Array) -> Array:
    assert q.shape[1] == k.shape[1] == v.shape[1]
    weights = shares(exponentials(q.swapaxes(0, 1), k.swapaxes(0, 1), 1.0))
    return np.asarray((weights @ v.swapaxes(0, 1)).swapaxes(0, 1))


def test_a_mistake_is_named_where_tokens_come_before_heads() -> None:
    assert attn_exp.check(tokens_before_heads, quick=True).mistakes == ("no_scale",)

"""Mistakes in score rules: ALiBi and other biases, soft-caps and sinks that are missing, wrong or misplaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms.pipeline import Recipe
from attn_exp.mistakes.mistake import Change, Mistake, instead
from attn_exp.rules.grid import Grid
from attn_exp.rules.scores.alibi import Alibi, slopes
from attn_exp.rules.scores.score import Score

# ALiBi: slope * distance is subtracted, with a slope for each head


@dataclass(frozen=True)
class AddedBias(Score):
    added: Callable[[Grid], Any]

    def bias(self, grid: Grid) -> Array:
        return np.asarray(self.added(grid))


def change_alibi(replacement: Callable[[Alibi], Score]) -> Change:
    return lambda recipe: recipe.with_rules(
        scores=tuple(replacement(rule) if isinstance(rule, Alibi) else rule for rule in recipe.rules.scores)
    )


@dataclass(frozen=True)
class AlibiWithSlopes(Alibi):
    """ALiBi with wrong slopes: `other(heads)` returns one slope per head."""

    other: Callable[[int], Array] = lambda heads: np.array(slopes(heads))

    def rates(self, heads: int) -> Array:
        return self.other(heads)


def change_slopes(rates: Callable[[int], Array]) -> Change:
    return change_alibi(lambda rule: AlibiWithSlopes(rule.signed, rates))


def change_sign(direction: Callable[[Grid], Any]) -> Change:
    """Add slope * distance with the sign that `direction` returns, whatever sign the rule uses."""
    return change_alibi(lambda rule: AddedBias(lambda grid: np.abs(rule.bias(grid)) * direction(grid)))


def powers_of_half(heads: int, first: int = 1) -> Array:
    """Return `2^-i` for each head, where i counts the heads from `first`."""
    return 2.0 ** -np.arange(float(first), heads + first)


def up_to_8(heads: int, first: int = 1) -> Array:
    """Return `2^(-8 i / h)` for each head, where i counts the h heads from `first`.

    These slopes are correct if `first` is 1 and h is a power of two.
    """
    return 2.0 ** (-8.0 * np.arange(first, heads + first) / heads)


def next_power_of_two(heads: int) -> int:
    return 1 << (heads - 1).bit_length()


WRONG_SLOPES = (
    up_to_8,  # the closed formula, whatever the number of heads
    lambda heads: up_to_8(heads, first=0),  # the exponent is off by one
    powers_of_half,  # 2^-i, which is right for 8 heads only
    lambda heads: np.asarray(slopes(heads)[::-1]),  # in reverse order
    lambda heads: up_to_8(next_power_of_two(heads))[:heads],  # the first slopes of the next power of two
    lambda heads: np.asarray(1.0 / np.arange(1.0, heads + 1)),  # 1 / i
    lambda heads: np.full(heads, slopes(heads)[0]),  # the same slope for every head
    lambda heads: powers_of_half(heads, first=0),
    lambda heads: up_to_8(next_power_of_two(heads), first=0)[:heads],
)


# Rules that are left out, or applied in the wrong place


def keep_only(is_kept: Callable[[Score], bool]) -> Change:
    return lambda recipe: recipe.with_rules(scores=tuple(rule for rule in recipe.rules.scores if is_kept(rule)))


skip_softcap = instead(bent=lambda setup, logits: logits)


def cap_before_scale(recipe: Recipe) -> Recipe:
    return skip_softcap(instead(scaled=lambda setup, scores: recipe.scaled(setup, recipe.bent(setup, scores)))(recipe))


def cap_after_mask(recipe: Recipe) -> Recipe:
    change = instead(forbid=lambda setup, logits, allowed: recipe.bent(setup, recipe.forbid(setup, logits, allowed)))
    return skip_softcap(change(recipe))


MISTAKES = {
    "alibi_slopes": Mistake(
        says="ALiBi's slopes are wrong for this number of heads.",
        fix="2^(-8 i / h) from i = 1 if h is a power of two; else combine the slopes of the powers below and above",
        seen="mlx issue 343 (heads not a power of two); aprender PR 2143 (exponent off by one)",
        stage="masked",
        changes=tuple(change_slopes(rates) for rates in WRONG_SLOPES),
        needs=("alibi",),
    ),
    "alibi_sign": Mistake(
        says="ALiBi has the wrong sign: far keys are favoured.",
        fix="subtract slope * distance",
        seen="distance computed as j - i instead of i - j",
        stage="masked",
        changes=(
            change_sign(lambda grid: 1.0),
            change_sign(lambda grid: np.sign(grid.query - grid.key)),
            change_sign(lambda grid: np.sign(grid.key - grid.query)),
        ),
        needs=("alibi",),
    ),
    "position_bias_missing": Mistake(
        says="The position bias is missing: no bias that depends on distance is added to the logits.",
        fix="logits = scores / sqrt(d) + bias, before the mask and the softmax",
        seen="a call without the slopes of its ALiBi model: bias keywords default to None",
        stage="masked",
        changes=(keep_only(lambda rule: type(rule).bias is Score.bias),),
        needs=("added",),
    ),
    "softcap_missing": Mistake(
        says="The soft-cap is missing.",
        fix="logits = cap * tanh(logits / cap)",
        seen="sglang issue 33915; vllm-metal issue 665",
        stage="capped",
        changes=(skip_softcap,),
        needs=("softcap",),
    ),
    "softcap_before_scale": Mistake(
        says="The soft-cap is applied before the scale.",
        fix="scale the scores first, then cap the logits",
        seen="scale applied in the kernel after a capped product",
        stage="logits",
        changes=(cap_before_scale,),
        needs=("softcap",),
    ),
    "softcap_after_mask": Mistake(
        says="The soft-cap comes after the mask: -inf becomes -cap, and hidden keys get weight.",
        fix="cap the logits first, then mask them",
        seen="flash-attention PR 1025; ONNX's reference code up to 1.21",
        stage="masked",
        changes=(cap_after_mask,),
        needs=("softcap", "mask"),
    ),
    "sink_missing": Mistake(
        says="The attention sink is missing: the weights of a row sum to 1.",
        fix="add the sink's exp(logit) to the sum of each row",
        seen="AttentionIsOFFByOne issue 5; gpt-oss loaded without its sinks",
        stage="weights",
        changes=(keep_only(lambda rule: rule.extra(np.zeros(1, np.int64)) is None),),
        needs=("sink",),
    ),
}

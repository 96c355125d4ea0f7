"""Mistakes with masks: ignored, inverted, misplaced, or off by one at a causal, padding or window edge."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms.pipeline import Recipe, Setup, Step
from attn_exp.mistakes.mistake import Change, Mistake, around, instead, together
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.mask import AllOf, AnyOf, Mask
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window

# Changing the mask


@dataclass(frozen=True)
class MaskFunction(Mask):
    seen: Callable[[Grid], Any]

    def allows(self, grid: Grid) -> Array | bool:
        return np.asarray(self.seen(grid))


def change_masks(masks: tuple[Mask, ...], kind: type[Mask], change: Callable[[Any], Mask | None]) -> tuple[Mask, ...]:
    """Return the masks with every mask of one kind changed, also inside combined masks; None removes a mask."""
    changed: list[Mask | None] = []
    for mask in masks:
        if isinstance(mask, AllOf | AnyOf):
            changed.append(type(mask)(change_masks(mask.masks, kind, change)))
        else:
            changed.append(change(mask) if isinstance(mask, kind) else mask)
    return tuple(mask for mask in changed if mask is not None)


def change_each(kind: type[Mask], change: Callable[[Any], Mask | None]) -> Change:
    return lambda recipe: recipe.with_rules(masks=change_masks(recipe.rules.masks, kind, change))


def change_causal(allows: Callable[[Grid], Any]) -> Change:
    return change_each(Causal, lambda mask: MaskFunction(allows))


def place_first_query(offset: Callable[[Setup], int]) -> Change:
    """Evaluate the masks as if the first query were at position `offset(setup)`."""

    def allowed(step: Step, setup: Setup) -> Any:
        return step(replace(setup, rules=replace(setup.rules, offset=offset(setup))))

    return around("allowed", allowed)


def lengthen_padding(keys: int) -> Change:
    return change_each(
        Padding, lambda mask: Padding(tuple(max(int(length) + keys, 0) for length in np.ravel(mask.lengths)))
    )


def widen_window(left: int, right: int) -> Change:
    """Widen a window by this many keys on each side; a negative number narrows it.

    If a side of length 0 becomes one key narrower, it excludes the query's own key. A length of -1 cannot express that:
    it means that the side has no limit.
    """

    def widen(mask: Window) -> Mask:
        sides = [side if side < 0 else side + extra for side, extra in ((mask.left, left), (mask.right, right))]
        new_left, new_right = sides
        if new_left == -1 and mask.left == 0:
            return MaskFunction(lambda grid: (grid.key > grid.query) & (grid.key <= grid.query + max(new_right, 0)))
        if new_right == -1 and mask.right == 0:
            return MaskFunction(lambda grid: (grid.key < grid.query) & (grid.key >= grid.query - new_left))
        return Window(new_left, new_right)

    return change_each(Window, widen)


def change_all_masks(transform: Callable[[Any], Any]) -> Change:
    change = around("allowed", lambda allowed, setup: transform(allowed(setup)))
    return lambda recipe: change(recipe) if recipe.rules.masks else recipe


# Filling the logits of hidden keys

FILLS = (-10.0, -1.0, -2.0, -3.0, -4.0, -5.0, -8.0, -9.0, -15.0, -20.0, -30.0, 1e-9, 1e-6, -1e-9, 1e-12, -1e-12,
         -50.0, -100.0, -1e3, -1e4)  # fmt: skip
"""Common fill values; the diagnosis fits any other value to the answer."""


def fill_hidden(number: float) -> Change:
    return instead(forbid=lambda setup, logits, allowed: np.where(allowed, logits, number))


def add_to_hidden(number: float) -> Change:
    return instead(forbid=lambda setup, logits, allowed: np.where(allowed, logits, logits + number))


def mask_weights(fill: float, *, added: bool = False) -> Change:
    """Mask the weights instead of the logits: `fill` replaces the weights of hidden keys, or is `added` to them."""

    def after(step: Step, setup: Setup, weights: Array, allowed: Array) -> Any:
        changed_weights = step(setup, weights, allowed)
        return np.where(allowed, changed_weights, changed_weights + fill if added else fill)

    return together(instead(forbid=lambda setup, logits, allowed: logits), around("after", after))


def use_first_mask(axis: str) -> Change:
    """Use the mask of the first example (axis "entry") for the whole batch, or of the first head for all heads."""

    def take_first(step: Step, setup: Setup) -> Any:
        allowed = np.broadcast_to(step(setup), (setup.batch, setup.heads, setup.rows, setup.keys))
        return allowed[:1] if axis == "entry" else allowed[:, :1]

    return around("allowed", take_first)


def tile_masks(head_major: bool) -> Change:
    """Repeat the mask of each example along an axis `[b*h]`, in the wrong order of examples and heads."""

    def tile(step: Step, setup: Setup) -> Any:
        allowed = np.broadcast_to(step(setup), (setup.batch, setup.heads, setup.rows, setup.keys))
        if (allowed != allowed[:, :1]).any():  # per-head masks are not repeated
            return allowed
        index = np.arange(setup.batch * setup.heads)
        example_of = index // setup.heads if head_major else index % setup.batch
        order = index.reshape(setup.heads, setup.batch).T if head_major else index.reshape(setup.batch, setup.heads)
        return allowed[example_of[order], np.arange(setup.heads)]

    return around("allowed", tile)


def hide_padded_queries(recipe: Recipe) -> Recipe:

    def hide_queries(mask: Padding) -> Mask:
        lengths = np.ravel(mask.lengths)
        return MaskFunction(
            lambda grid: np.asarray(grid.row) < lengths[np.asarray(grid.batch) if len(lengths) > 1 else 0]
        )

    return change_each(Padding, hide_queries)(recipe)


def hide_all(weight_of: Callable[[int], float]) -> Change:
    """Hide every key if there is a mask; each of n keys then gets the weight `weight_of(n)`."""
    change = instead(
        forbid=lambda setup, logits, allowed: logits,
        normalize=lambda setup, masked: np.full(masked.shape, weight_of(masked.shape[-1])),
    )
    return lambda recipe: change(recipe) if recipe.rules.masks else recipe


def show_only_hidden(setup: Setup, logits: Array, allowed: Array) -> Array:
    """If a row has hidden keys, show only these, with equal logits.

    This is what adding 1e9 to the logits of hidden keys does in float32: a score is too small to change 1e9.
    """
    return np.where(np.asarray(allowed).all(axis=-1, keepdims=True), logits, np.where(allowed, -np.inf, 0.0))


MISTAKES = {
    "mask_ignored": Mistake(
        says="The mask has no effect.",
        fix="set logits to -inf where the mask hides a key, before the softmax",
        seen="a mask dropped on one code path; jax issue 32300",
        stage="masked",
        changes=(
            lambda recipe: recipe.with_rules(masks=()),
            change_each(Allowed, lambda mask: None),  # the mask as passed in
            change_each(Padding, lambda mask: None),
            change_each(Window, lambda mask: None),
        ),
        needs=("mask",),
    ),
    "mask_inverted": Mistake(
        says="The mask is inverted: keys that a query may attend to are hidden, and the hidden ones are visible.",
        fix="True means that a query may attend; pass ~mask to a function with the opposite convention",
        seen="True attends in scaled_dot_product_attention, hides in MultiheadAttention; PyTorch issue 170400",
        stage="masked",
        changes=(
            change_all_masks(lambda allowed: ~allowed),
            change_each(Allowed, lambda mask: Allowed(~mask.values)),
            change_each(Padding, lambda mask: MaskFunction(lambda grid: ~np.asarray(mask.allows(grid)))),
        ),
        needs=("mask",),
    ),
    "mask_transposed": Mistake(
        says="The mask is transposed: its query and key axes are swapped.",
        fix="give the mask the axes [queries, keys]",
        seen="hyunwoongko/transformer PR 40: padding on the query axis",
        stage="masked",
        changes=(
            change_all_masks(lambda allowed: allowed.swapaxes(-1, -2)),
            change_each(Allowed, lambda mask: Allowed(mask.values.swapaxes(-1, -2))),
        ),
        needs=("mask",),
    ),
    "mask_after_softmax": Mistake(
        says="The mask is applied after the softmax, so the weights of a row no longer sum to 1.",
        fix="set logits to -inf where the mask hides a key, before the softmax",
        seen="timm PR 2236; memory-compressed-attention issue 2",
        stage="weights",
        changes=(mask_weights(0.0), mask_weights(-math.inf), mask_weights(-1e9, added=True)),
        needs=("mask",),
    ),
    "mask_multiplied": Mistake(
        says="The logits are multiplied by the mask: a hidden key has logit 0 and still gets weight.",
        fix="set logits to -inf where the mask hides a key",
        seen="XLA PR 11444; good-features PR 1",
        stage="masked",
        changes=(fill_hidden(0.0),),
        needs=("mask",),
    ),
    "mask_sign": Mistake(
        says="The mask is added with the wrong sign: hidden keys are favoured.",
        fix="add 0 where a query may attend and -inf elsewhere",
        seen="scores - mask; (1 - mask) * 1e9 added",
        stage="masked",
        changes=(
            change_all_masks(lambda allowed: ~allowed | allowed.all(axis=-1, keepdims=True)),  # only hidden keys
            *(add_to_hidden(number) for number in (1e9, 1.0, 1e4, math.inf)),
            instead(forbid=show_only_hidden),
        ),
        needs=("mask",),
        of_code=True,
    ),
    "mask_hides_all": Mistake(
        says="A mask hides every key: ~ of an integer 0 or 1 is never zero (~1 is -2).",
        fix="make the mask boolean before ~, or write mask == 0",
        seen="masked_fill(~mask, -1e9) with an integer mask",
        stage="masked",
        changes=(hide_all(lambda keys: 1 / keys), hide_all(lambda keys: math.nan), hide_all(lambda keys: 0.0)),
        needs=("mask",),
        of_code=True,
    ),
    "mask_of_first_entry": Mistake(
        says="The mask of the first example is used for the whole batch, or the mask of the first head for all heads.",
        fix="use the whole mask, which is [b, 1, t, s] or [b, h, t, s]",
        seen="mask[0], or mask[:, 0] of a per-head mask",
        stage="masked",
        changes=(
            use_first_mask("entry"),
            use_first_mask("head"),
            together(use_first_mask("entry"), use_first_mask("head")),
        ),
        needs=("mask",),
        of_code=True,
    ),
    "mask_tiled_over_heads": Mistake(
        says="Per-example masks are repeated with batch and heads in the wrong order: a head gets the wrong mask.",
        fix="repeat_interleave(heads, 0) where the batch comes first, repeat(heads, 1, 1) where the heads do",
        seen="CyberZHG/torch-multi-head-attention; sooftware/attentions",
        stage="masked",
        changes=(tile_masks(False), tile_masks(True)),
        needs=("mask", "batch"),
        of_code=True,
    ),
    "padding_on_queries": Mistake(
        says="The padding mask hides queries instead of keys: padding keys are visible.",
        fix="give the padding mask the axes [b, 1, 1, s]",
        seen="mask.unsqueeze(-1) instead of unsqueeze(-2)",
        stage="masked",
        changes=(hide_padded_queries,),
        needs=("mask", "padding"),
        of_code=True,
    ),
    "mask_small_fill": Mistake(
        says="The fill value of hidden keys is not negative enough, such as -10 or 1e-9, so they keep some weight.",
        fix="fill with -inf, or with the lowest number of the dtype",
        seen="gluonts PR 1401 (1e-9 instead of -1e9); transformers issues 14859 and 17121",
        stage="masked",
        changes=(
            *(fill_hidden(number) for number in FILLS),
            *(add_to_hidden(number) for number in FILLS if number < -0.5),
        ),
        needs=("mask",),
    ),
    "zero_scores_hidden": Mistake(
        says="A score of 0 counts as hidden: a query of zeros sees no key, and no query sees a key of zeros.",
        fix="scores.masked_fill(mask == 0, -inf): test the mask for 0, not the scores",
        seen="scores = tril(scores); scores.masked_fill(scores == 0, -inf)",
        stage="masked",
        changes=tuple(
            instead(forbid=lambda setup, logits, allowed, fill=fill: np.where(allowed & (logits != 0), logits, fill))
            for fill in (-math.inf, -1e9)
        ),
        of_code=True,
    ),
    "causal_ignored": Mistake(
        says="The causal mask is missing: queries see later keys.",
        fix="hide key j from query i where j > i",
        seen="keras issue 23038; candle issue 3567; transformers PR 48821",
        stage="masked",
        changes=(
            change_each(Causal, lambda mask: None),
            # the code implements the causal mask as a window
            together(change_each(Causal, lambda mask: None), change_each(Window, lambda mask: None)),
        ),
        needs=("causal",),
    ),
    "causal_flipped": Mistake(
        says="The causal mask is flipped: queries see themselves and later keys.",
        fix="keep the lower triangle: tril, not triu",
        seen="nanoGPT issue 170",
        stage="masked",
        changes=(change_causal(lambda grid: grid.key >= grid.query),),
        needs=("causal",),
    ),
    "causal_strict": Mistake(
        says="The causal mask hides the diagonal: a query does not see its own key.",
        fix="query i sees keys j <= i, itself included",
        seen="GPT-SoVITS issue 965",
        stage="masked",
        changes=(change_causal(lambda grid: grid.key < grid.query),),
        needs=("causal",),
    ),
    "causal_next": Mistake(
        says="The causal mask is one key too wide: a query sees the next token.",
        fix="query i sees keys j <= i",
        seen="triu(diagonal=2) instead of triu(diagonal=1)",
        stage="masked",
        changes=(change_causal(lambda grid: grid.key <= grid.query + 1),),
        needs=("causal",),
    ),
    "causal_top_left": Mistake(
        says="The causal mask is aligned top left: first query with first key, not last query with last key.",
        fix="query i sees keys j <= i + (keys - queries); if the top left is intended, check with align=top_left",
        seen="PyTorch issues 108108 and 144858; flash-attention issue 282",
        stage="masked",
        changes=(place_first_query(lambda setup: 0),),
        needs=("causal",),
    ),
    "causal_bottom_right": Mistake(
        says="The causal mask is aligned bottom right: last query with last key, not first query with first key.",
        fix="query i sees keys j <= i; if the bottom right is intended, check with align=bottom_right",
        seen="flash-attention from 2.1 on; mlx PR 2836",
        stage="masked",
        changes=(place_first_query(lambda setup: setup.keys - setup.rows),),
        needs=("causal",),
    ),
    "padding_one_long": Mistake(
        says="The padding mask ends one key late: the first padding key is visible.",
        fix="key j is visible if j < length",
        seen="<= instead of <",
        stage="masked",
        changes=(lengthen_padding(1),),
        needs=("padding",),
    ),
    "padding_one_short": Mistake(
        says="The padding mask ends one key early: the last real key is hidden.",
        fix="key j is visible if j < length",
        seen="length - 1 instead of length",
        stage="masked",
        changes=(lengthen_padding(-1),),
        needs=("padding",),
    ),
    "window_one_wide": Mistake(
        says="The window is one key too wide.",
        fix="a window of w tokens has left = w - 1: the query's own token counts",
        seen="Megatron-Bridge PR 2656; transformers PR 26792",
        stage="masked",
        changes=(widen_window(1, 0), widen_window(0, 1), widen_window(1, 1)),
        needs=("window",),
    ),
    "window_one_narrow": Mistake(
        says="The window is one key too narrow.",
        fix="a window with left = n covers n keys before the query, plus the query's own",
        seen="vllm issue 3385; mlx-lm PR 390",
        stage="masked",
        changes=(widen_window(-1, 0), widen_window(0, -1), widen_window(-1, -1)),
        needs=("window",),
    ),
}

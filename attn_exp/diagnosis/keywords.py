"""How what a case asks is said in a function's own keywords; what it has no keyword for, it must do by itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asked import Asked
from attn_exp.diagnosis.case import Case
from attn_exp.diagnosis.filler import Filler
from attn_exp.diagnosis.offer import Offer
from attn_exp.forms import steps
from attn_exp.forms.pipeline import At, Recipe
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window
from attn_exp.rules.scores.added import Added
from attn_exp.rules.scores.alibi import Alibi, slopes
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.softcap import Softcap

SCORES: dict[type, str] = {Softcap: "softcap", Alibi: "alibi", Sink: "sinks", Added: "added"}
OWN_WORD: dict[type, str] = {Causal: "causal", Window: "window", Padding: "lengths"}
"""The keyword that says a mask by itself."""


def for_case(case: Case, offer: Offer, asked: Asked, wide: bool = False) -> dict[str, Any]:
    """Return the keywords of a case, by role; `wide`: the function splits heads itself, as a layer does."""
    at = at_of(case)
    return {
        **unasked(at, offer),
        **spoken_masks(case.recipe, at, offer, asked),
        **spoken_scores(case.recipe, at, offer),
        **spoken_heads(case, at, offer, wide or case.given.x is not None),
    }


def unasked(at: At, offer: Offer) -> dict[str, Any]:
    """Return what a function must be given though nobody asks for it: full lengths, a mask that allows all."""
    neutral: dict[str, Any] = {
        "lengths": np.full(at.batch, at.keys, np.int64),
        "mask": np.ones((at.rows, at.keys), np.bool_),
        "causal": False,
    }
    needed = {role for role in neutral if offer.takes(role) and role not in offer.defaults}
    needed |= {"causal"} if offer.defaults.get("causal") is True else set()
    return {role: value for role, value in neutral.items() if role in needed}


def at_of(case: Case) -> At:
    """Return the sizes of a case."""
    recipe, given = case.recipe, case.given
    if given.x is not None:
        batch, rows, width = given.x.shape
        size = given.arrays["W_q"].shape[1] // recipe.heads
        return At(recipe.rules, batch, recipe.heads, recipe.groups, rows, rows, size, width)
    assert given.q is not None and given.k is not None
    batch, heads, rows, size = given.q.shape
    return At(recipe.rules, batch, heads, given.k.shape[1], rows, given.k.shape[2], size, heads * size)


def spoken_masks(recipe: Recipe, at: At, offer: Offer, asked: Asked) -> dict[str, Any]:
    """Return the keywords for the masks: each by its own word, the others joined as one boolean mask."""
    said: dict[str, Any] = {}
    rest: list[Mask] = []
    for mask in recipe.rules.masks:
        word = OWN_WORD.get(type(mask), "")
        if word and offer.takes(word) and word not in said:
            said[word] = own_word(mask, offer, at)
        elif isinstance(mask, Padding | Filler) and offer.takes("padding"):
            said["padding"] = filler(mask, at, asked)
        else:
            rest.append(mask)
    if rest and offer.takes("mask"):
        said["mask"] = boolean(rest, at, asked)
    return said


def own_word(mask: Mask, offer: Offer, at: At) -> Any:
    """Return what a mask's own keyword is given."""
    if isinstance(mask, Window):
        default = offer.defaults.get("window")
        one_number = isinstance(default, int) and not isinstance(default, bool)
        return mask.left + 1 if one_number else (mask.left, mask.right)
    if isinstance(mask, Padding):
        lengths = np.ravel(mask.lengths)
        return np.broadcast_to(lengths, (at.batch,)).astype(np.int64)
    return True


def filler(mask: Padding | Filler, at: At, asked: Asked) -> Array:
    """Return `[b s]`, True = may attend, or True = filler where the convention says so."""
    if isinstance(mask, Filler):
        kept = np.resize(mask.kept, at.keys)
    else:
        kept = np.arange(at.keys) < np.ravel(mask.lengths)[:, None]
    kept = np.broadcast_to(kept, (at.batch, at.keys)).copy()
    return ~kept if asked.blocks else kept


def boolean(masks: list[Mask], at: At, asked: Asked) -> Array:
    """Return one boolean mask, `[t s]` where all entries and heads share it, else as many axes as it needs."""
    rules = at.rules.__class__(masks=tuple(masks), offset=at.rules.offset)
    whole = steps.allowed(At(rules, at.batch, at.heads, at.groups, at.rows, at.keys, at.size, at.width))
    shared = whole[0, 0] if whole.shape[:2] == (1, 1) else whole
    written = any(isinstance(mask, Allowed) for mask in masks) or bool(masks)
    return ~shared if asked.blocks and written else shared


def spoken_scores(recipe: Recipe, at: At, offer: Offer) -> dict[str, Any]:
    """Return the keywords for score rules."""
    said: dict[str, Any] = {}
    for rule in recipe.rules.scores:
        word = SCORES.get(type(rule), "")
        if not word or not offer.takes(word):
            continue
        if isinstance(rule, Softcap):
            said[word] = float(rule.cap)
        elif isinstance(rule, Alibi):
            said[word] = np.array(slopes(at.heads))
        elif isinstance(rule, Sink):
            said[word] = np.broadcast_to(np.ravel(np.asarray(rule.logit, np.float64)), (at.heads,)).copy()
        elif isinstance(rule, Added):
            said[word] = np.asarray(rule.values, np.float64)
    return said


def spoken_heads(case: Case, at: At, offer: Offer, wide: bool) -> dict[str, Any]:
    """Return the keywords for heads, the scale, and dropout, which is always off."""
    said: dict[str, Any] = {}
    if offer.takes("heads") and (wide or "heads" not in offer.defaults):
        said["heads"] = case.recipe.heads
    if offer.takes("kv_heads") and (wide or "kv_heads" not in offer.defaults):
        said["kv_heads"] = case.recipe.groups
    if offer.takes("shared") and at.groups != at.heads:
        said["shared"] = True
    needed = offer.takes("scale") and "scale" not in offer.defaults
    if offer.takes("scale") and (case.explicit_scale or needed):
        said["scale"] = float(case.recipe.rules.scale)
    if offer.takes("dropout") and offer.defaults.get("dropout", 0.0) is not None:
        said["dropout"] = 0.0
    return said

"""What a function takes, inferred from its parameter names, and how a case is passed to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Case
from attn_exp.diagnosis.asking.request import Filler, Gap, Request
from attn_exp.forms import steps
from attn_exp.forms.pipeline import At, Recipe
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window
from attn_exp.rules.scores.added import Added
from attn_exp.rules.scores.alibi import Alibi, slopes
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.softcap import Softcap


@dataclass(frozen=True)
class Offer:
    """What a function takes: q, k and v if `core`, else x and a layer's weight matrices.

    `parameters` maps each role to the function's own name for it; `positional` are the positional-only ones; `defaults`
    holds the function's defaults. `said`: what else is passed, in words. `only_if_right`: names did not tell which
    arguments hold the arrays, or how, so a wrong answer does not imply wrong attention. `divides`: scores are divided
    by the scale argument.
    """

    core: bool
    parameters: Mapping[str, str]
    positional: tuple[str, ...]
    defaults: Mapping[str, Any]
    said: str = ""
    only_if_right: bool = False
    divides: bool = False

    def takes(self, role: str) -> bool:
        return role in self.parameters

    def of_keys_alone(self) -> Offer:
        words, defaults = (
            {"padding" if role == "mask" else role: value for role, value in said.items()}
            for said in (self.parameters, self.defaults)
        )
        return replace(self, parameters=words, defaults=defaults)


def told(default: Any) -> Any:
    """Return a default if it is a plain value, else `...`, which only records that there is one."""
    return default if default is None or isinstance(default, bool | int | float | str | tuple | np.generic) else ...


# A case as keyword arguments; the function must do by itself what has no keyword

SCORES: dict[type, str] = {Softcap: "softcap", Alibi: "alibi", Sink: "sinks", Added: "added"}
OWN_WORD: dict[type, str] = {Causal: "causal", Window: "window", Padding: "lengths"}
"""The role of the keyword that requests this mask on its own."""


def for_case(case: Case, offer: Offer, request: Request, wide: bool = False) -> dict[str, Any]:
    """Return the keyword arguments of a case, by role; `wide`: the function splits heads itself, as a layer does."""
    at = at_of(case)
    return {
        **neutral_arguments(at, offer, request),
        **mask_arguments(case.recipe, at, offer, request),
        **score_arguments(case.recipe, at, offer),
        **head_arguments(case, at, offer, wide or case.given.x is not None),
    }


def neutral_arguments(at: At, offer: Offer, request: Request) -> dict[str, Any]:
    neutral: dict[str, Any] = {
        "lengths": np.full(at.batch, at.keys, np.int64),
        "mask": np.full((at.rows, at.keys), not request.blocks),
        "padding": np.full((at.batch, at.keys), not request.blocks),
        "query_padding": np.full((at.batch, at.rows), not request.blocks),
        "causal": False,
    }
    needed = {role for role in neutral if offer.takes(role) and role not in offer.defaults}
    needed |= {"causal"} if offer.defaults.get("causal") is True else set()
    return {role: value for role, value in neutral.items() if role in needed}


def at_of(case: Case) -> At:
    recipe, given = case.recipe, case.given
    if given.x is not None:
        batch, rows, width = given.x.shape
        size = given.arrays["W_q"].shape[1] // recipe.heads
        keys = rows if given.memory is None else given.memory.shape[1]
        return At(recipe.rules, batch, recipe.heads, recipe.groups, rows, keys, size, width)
    assert given.q is not None and given.k is not None
    batch, heads, rows, size = given.q.shape
    return At(recipe.rules, batch, heads, given.k.shape[1], rows, given.k.shape[2], size, heads * size)


def mask_arguments(recipe: Recipe, at: At, offer: Offer, request: Request) -> dict[str, Any]:
    said: dict[str, Any] = {}
    rest: list[Mask] = []
    for mask in recipe.rules.masks:
        word = OWN_WORD.get(type(mask), "")
        if word and offer.takes(word) and word not in said:
            said[word] = own_word(mask, offer, at)
        elif isinstance(mask, Padding | Filler) and offer.takes("padding"):
            said["padding"] = padding_mask(mask, at, request)
            if offer.takes("query_padding"):  # some need both or none
                said["query_padding"] = np.full((at.batch, at.rows), not request.blocks)
        else:
            rest.append(mask)
    if rest and offer.takes("mask"):
        said["mask"] = join_masks(rest, at, request)
    return said


def own_word(mask: Mask, offer: Offer, at: At) -> Any:
    if isinstance(mask, Window):
        default = offer.defaults.get("window")
        one_number = isinstance(default, int) and not isinstance(default, bool)
        return mask.left + 1 if one_number else (mask.left, mask.right)
    if isinstance(mask, Padding):
        lengths = np.ravel(mask.lengths)
        return np.broadcast_to(lengths, (at.batch,)).astype(np.int64)
    return True


def padding_mask(mask: Padding | Filler, at: At, request: Request) -> Array:
    """Return a padding mask `[b s]`: True = attend, or True = padding if the convention says so."""
    kept = kept_by(mask, at)
    return ~kept if request.blocks else kept


def kept_by(mask: Padding | Filler, at: At) -> Array:
    if isinstance(mask, Filler):
        kept = np.resize(mask.kept, at.keys)
    else:
        places, lengths = np.arange(at.keys), np.ravel(mask.lengths)[:, None]
        kept = places != lengths if isinstance(mask, Gap) else places < lengths
    return np.broadcast_to(kept, (at.batch, at.keys)).copy()


def join_masks(masks: list[Mask], at: At, request: Request) -> Array:
    """Return one boolean mask, `[t s]` if batch and heads share it, else with axes for them."""
    rules = at.rules.__class__(masks=tuple(masks), offset=at.rules.offset)
    whole = steps.allowed(At(rules, at.batch, at.heads, at.groups, at.rows, at.keys, at.size, at.width))
    shared = whole[0, 0] if whole.shape[:2] == (1, 1) else whole
    return ~shared if request.blocks else shared


def score_arguments(recipe: Recipe, at: At, offer: Offer) -> dict[str, Any]:
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


def head_arguments(case: Case, at: At, offer: Offer, wide: bool) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if offer.takes("heads") and (wide or "heads" not in offer.defaults):
        said["heads"] = case.recipe.heads
    if offer.takes("kv_heads") and (wide or "kv_heads" not in offer.defaults):
        said["kv_heads"] = case.recipe.groups
    if offer.takes("shared") and at.groups != at.heads:
        said["shared"] = True
    needed = offer.takes("scale") and "scale" not in offer.defaults
    if offer.takes("scale") and (case.explicit_scale or needed):
        scale = float(case.recipe.rules.scale)
        said["scale"] = 1 / scale if offer.divides else scale
    if offer.takes("dropout") and offer.defaults.get("dropout", 0.0) is not None:
        said["dropout"] = 0.0
    return said
